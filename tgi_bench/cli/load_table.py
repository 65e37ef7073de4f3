"""Load trials in words, and as a table of `tgi-bench plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from tgi_bench.analysis.remaining import LoadTime
from tgi_bench.report.durations import counted, duration
from tgi_bench.trials.load import (
    ClosedLoop,
    Empirical,
    Extent,
    Find,
    Fixed,
    Length,
    LoadTrial,
    LogNormal,
    Normal,
    OpenLoop,
    Process,
    RatePart,
    Sought,
    TraceTimes,
    Uniform,
    Workload,
)

_HEADERS = ("Load", "Arrivals", "Prompt", "Output", "Measured", "Takes")


def load_table(
    console: Console, trials: Sequence[LoadTrial], known: Mapping[str, LoadTime]
) -> Table:
    """A row a trial; its words may take several lines, its figures never do."""
    table = Table(
        box=None, padding=(0, 2, 0, 2) if console.width >= 120 else (0, 1), header_style=""
    )
    for name in _HEADERS:
        table.add_column(name, no_wrap=name == "Takes", overflow="fold")
    for trial in trials:
        prompt, output = lengths_in_words(trial.workload)
        table.add_row(
            trial.trial_id.partition("/")[2],
            arrivals_in_words(trial),
            prompt,
            output,
            extent_in_words(trial.extent),
            time_in_words(known.get(trial.trial_id)),
        )
    return table


def arrivals_in_words(trial: LoadTrial) -> str:
    """ "8 in flight", "4 requests/s, poisson", and so on."""
    if trial.find is not None:
        return _find_in_words(trial.find)
    match trial.arrivals:
        case ClosedLoop(concurrency):
            return f"{concurrency} in flight"
        case TraceTimes(speed):
            return "the file's times" + ("" if speed == 1 else f", {speed:g} times as fast")
        case OpenLoop(rate, parts, process, burstiness):
            drawn = process.value
            if process is Process.GAMMA:
                drawn += f" of shape {burstiness:g}"
            steps = " then ".join(_part_in_words(part) for part in parts)
            return f"{steps if rate is None else f'{rate:g}'} requests/s, {drawn}"


def _find_in_words(find: Find) -> str:
    what = "requests/s" if find.sought is Sought.MAX_RATE else "in flight"
    return (
        f"search {find.lowest:g} to {find.highest:g} {what} from {find.start:g}, "
        f"within {find.tolerance * 100:g} %, each {counted(find.repeats, 'time')}"
    )


def _part_in_words(part: RatePart) -> str:
    same = part.from_rate_per_s == part.to_rate_per_s
    slope = "" if same else f" to {part.to_rate_per_s:g}"
    return f"{part.from_rate_per_s:g}{slope} for {duration(part.duration_ns / 1e9)}"


def lengths_in_words(workload: Workload) -> tuple[str, str]:
    """Prompt and output; the file's name where it says them."""
    file = None if workload.file is None else workload.file.path
    prompt = file or _length_in_words(workload.prompt)
    if workload.shared_prefix is not None:
        shared = workload.shared_prefix
        prompt += f" ({shared.tokens} shared by {counted(shared.groups, 'group')})"
    if workload.turns is not None:
        prompt += f", {_length_in_words(workload.turns.count)} turns"
    output = "as the file" if workload.output is None else _length_in_words(workload.output)
    return prompt, output


def _length_in_words(length: Length | None) -> str:
    match length:
        case None:
            return "-"
        case Fixed(tokens):
            return str(tokens)
        case Uniform(lowest, highest):
            return f"{lowest} to {highest}"
        case Normal(mean, deviation, lowest, highest):
            return f"normal {mean:g} +- {deviation:g}, {lowest} to {highest}"
        case LogNormal(median, sigma, lowest, highest):
            return f"log-normal {median:g}, sigma {sigma:g}, {lowest} to {highest}"
        case Empirical(values):
            return f"one of {counted(len(values), 'value')}"


def extent_in_words(extent: Extent) -> str:
    """ "30.0 s after 5.0 s", "1000 requests after 100"."""
    ends = []
    if extent.duration_ns is not None:
        ends.append(duration(extent.duration_ns / 1e9))
    if extent.requests is not None:
        ends.append(counted(extent.requests, "request"))
    words = " or ".join(ends) or "the whole file"
    if extent.warmup_ns or extent.warmup_requests:
        words += f" after {_span(extent.warmup_ns, extent.warmup_requests)}"
    if extent.cooldown_ns or extent.cooldown_requests:
        words += f" before {_span(extent.cooldown_ns, extent.cooldown_requests)}"
    if extent.until is not None:
        words += f", until {extent.until.metric} within {extent.until.share * 100:g} %"
    return words


def _span(ns: int, requests: int) -> str:
    return duration(ns / 1e9) if ns else counted(requests, "request")


def time_in_words(time: LoadTime | None) -> str:
    """ "35.0 s", "<= 2 min 05 s"; "-" where nothing tells."""
    if time is None:
        return "-"
    return f"{'<= ' if time.at_most else ''}{duration(time.total_s)}"
