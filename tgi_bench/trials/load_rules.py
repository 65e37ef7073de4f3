"""What the keys of a load mean together, and what is refused of it, each in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tgi_bench.errors import InputError, Problem
from tgi_bench.sections.quantities import NS, duration_ns
from tgi_bench.trials.lengths import least_tokens
from tgi_bench.trials.load import METRICS, STATISTICS, SUCCESS, FileKind, Process, Workload
from tgi_bench.trials.load_keys import (
    PROMPT_TOKENS,
    FindKeys,
    LoadKeys,
    RampPartKeys,
    SearchKeys,
    slo_of,
)
from tgi_bench.words import shown, suggestion

WAYS = ("concurrency", "rate", "ramp", "trace", "find")
LATENCIES = tuple(f"{metric}_{statistic}" for metric in METRICS for statistic in STATISTICS)
"""What an SLO may name, beside SUCCESS."""
WITH_INTERVAL = tuple(name for name in LATENCIES if not name.endswith("_max"))
"""What `until` may name: a greatest value has no confidence interval."""
_OWN_TEXTS = (FileKind.JSONL, FileKind.SHAREGPT)
_TIMED = (FileKind.AZURE, FileKind.MOONCAKE, FileKind.CSV)

_Found = Iterator[tuple[str, str]]


def load_problems(loads: Sequence[LoadKeys], paths: Sequence[str]) -> tuple[Problem, ...]:
    """Every problem of every load; paths: the key path that each load stands at."""
    problems = []
    for keys, path in zip(loads, paths, strict=True):
        for found in (_ways(keys), _workload(keys), _extent(keys), _goals(keys)):
            problems += [
                Problem(f"{path}.{inner}" if inner else path, text) for inner, text in found
            ]
    return tuple(problems)


def ways_given(keys: LoadKeys) -> tuple[str, ...]:
    """Which of concurrency, rate, ramp, trace and find are given."""
    values = (keys.concurrency, keys.rate, keys.ramp, keys.trace, keys.find)
    return tuple(name for name, value in zip(WAYS, values, strict=True) if value is not None)


def _ways(keys: LoadKeys) -> _Found:
    given = ways_given(keys)
    if not given:
        yield "", f"does not say how requests come: give one of {', '.join(WAYS)}"
    elif len(given) > 1:
        yield given[1], f"stands beside `{given[0]}`: give one of {', '.join(WAYS)} in a load"
    paced = keys.rate is not None or keys.ramp is not None or _seeks_rate(keys)
    if given and not paced:
        for name, value in (("arrivals", keys.arrivals), ("burstiness", keys.burstiness)):
            if value is not None:
                yield name, "is read with `rate`, `ramp` and `find: max_rate` only: leave it out"
    elif keys.burstiness is not None and keys.arrivals is not Process.GAMMA:
        yield "burstiness", "is read with `arrivals: gamma` only: say so, or leave it out"
    for index, part in enumerate(keys.ramp or ()):
        if message := _part_problem(part):
            yield f"ramp.{index}", message
    if keys.ramp and all((p.rate or p.begin or p.end or 0) == 0 for p in keys.ramp):
        yield "ramp", "has no part with a rate above 0: nothing would be sent"
    if keys.max_in_flight is not None and _closed(keys):
        yield "max_in_flight", _bounded_already(keys, keys.max_in_flight)


def _closed(keys: LoadKeys) -> bool:
    seeks = keys.find is not None and keys.find.max_concurrency is not None
    return keys.concurrency is not None or seeks


def _bounded_already(keys: LoadKeys, most_in_flight: int) -> str:
    """A closed loop has as many in flight as its concurrency says, whatever else is said."""
    most = max(keys.concurrency or [0])
    if most_in_flight < most:
        return f"is less than the concurrency {most}: leave it out"
    return "is read with `rate`, `ramp`, `trace` and `find: max_rate` only: leave it out"


def _seeks_rate(keys: LoadKeys) -> bool:
    return keys.find is not None and keys.find.max_rate is not None


def _part_problem(part: RampPartKeys) -> str:
    step = part.rate is not None
    slope = part.begin is not None or part.end is not None
    if step and slope:
        return "holds `rate` and `from` or `to`: give `rate`, or `from` and `to`"
    if not step and (part.begin is None or part.end is None):
        return "needs `rate`, or both `from` and `to`"
    return ""


def _workload(keys: LoadKeys) -> _Found:
    workload = keys.workload
    kind = None if workload.file is None else workload.file.kind
    if kind is not None:
        yield from _with_file(workload, kind)
    if workload.repeats and kind not in _OWN_TEXTS:
        kinds = ", ".join(kind.value for kind in _OWN_TEXTS)
        yield "workload.repeats", f"is read with a file of texts only (kind: {kinds}): leave it out"
    if keys.trace is not None:
        yield from _with_trace(workload)
    if workload.turns is not None:
        if not _closed(keys):
            yield (
                "workload.turns",
                "needs a closed loop: a turn waits for the answer before it, so give `concurrency`",
            )
        if kind not in (None, FileKind.SHAREGPT):
            yield "workload.turns", "takes no file but one of conversations (kind: sharegpt)"
    shared = workload.shared_prefix
    least = PROMPT_TOKENS if workload.prompt is None else least_tokens(workload.prompt)
    if shared is not None and kind is None and least <= shared.tokens:
        yield (
            "workload.shared_prefix.tokens",
            f"must be less than every prompt, which is {least} tokens at least with the prefix "
            f"in it, not {shared.tokens}",
        )


def _with_file(workload: Workload, kind: FileKind) -> _Found:
    if workload.prompt is not None:
        yield "workload.prompt_tokens", "is what the file says: leave it out, or the file"
    if workload.shared_prefix is not None and kind in (*_OWN_TEXTS, FileKind.MOONCAKE):
        yield "workload.shared_prefix", f"is what a file of kind {kind.value} says: leave it out"


def _with_trace(workload: Workload) -> _Found:
    kinds = ", ".join(timed.value for timed in _TIMED)
    if workload.file is None:
        yield "trace", f"needs a file with times: give workload.file, of kind {kinds}"
        return
    if workload.file.kind not in _TIMED:
        kind = workload.file.kind.value
        yield "trace", f"needs a file with times: one of kind {kinds}, not {kind}"
    if workload.file.shuffle:
        yield "workload.file.shuffle", "cannot be: a trace's requests have the file's own order"


def _extent(keys: LoadKeys) -> _Found:
    """Whether it ends, and whether warm-up and cool-down are of the kind that ends it."""
    if keys.ramp is not None and keys.duration_ns is not None:
        yield "duration", "is what the ramp's parts add up to: leave it out"
    counted = keys.requests is not None
    timed = keys.duration_ns is not None or keys.ramp is not None or not counted
    spans = (("warmup", keys.warmup), ("cooldown", keys.cooldown))
    outside = 0
    for name, span in spans:
        if isinstance(span, int) and span > 0 and not counted:
            yield (
                name,
                f"is a number of requests, but a time ends the load: write `{span}s`, or "
                "give `requests`",
            )
        if isinstance(span, str):
            outside += duration_ns(span, zero=True)
            if not timed:
                yield name, "is a time, but `requests` ends the load: give a number of requests"
    whole = sum(part.length_ns for part in keys.ramp or ())
    if keys.ramp and outside >= whole:
        yield "warmup", f"and `cooldown` leave nothing of the ramp's {whole / NS:g} s to measure"
    if keys.until is not None:
        if keys.ramp is not None or keys.trace is not None:
            yield "until", "needs a load that stays the same: leave it out of a ramp or a trace"
        if keys.until.metric not in WITH_INTERVAL:
            yield "until.metric", _no_metric(keys.until.metric, WITH_INTERVAL)


def _no_metric(name: str, allowed: Sequence[str]) -> str:
    others = f" or {SUCCESS}" if SUCCESS in allowed else ""
    statistics = [s for s in STATISTICS if f"ttft_{s}" in allowed]
    return (
        f"`{shown(name)}` is no metric: write one of {', '.join(METRICS)} with one of "
        f"{', '.join(statistics)}, as in ttft_p99{others}{suggestion(name, allowed)}"
    )


def _goals(keys: LoadKeys) -> _Found:
    for metric, limit in keys.slo.items():
        if metric not in LATENCIES and metric != SUCCESS:
            yield f"slo.{metric}", _no_metric(metric, (*LATENCIES, SUCCESS))
            continue
        try:
            slo_of(metric, limit)
        except InputError as error:
            yield f"slo.{metric}", str(error)
    if keys.find is None:
        return
    if not keys.slo:
        yield "find", "needs `slo`: a search finds the highest value that meets every SLO"
    yield from _searches(keys.find)


def _searches(find: FindKeys) -> _Found:
    given = [
        (name, search)
        for name, search in (("max_rate", find.max_rate), ("max_concurrency", find.max_concurrency))
        if search is not None
    ]
    if len(given) != 1:
        yield "find", "must hold one of max_rate and max_concurrency"
    for name, search in given:
        for inner, message in _search_problems(search, whole=name == "max_concurrency"):
            yield f"find.{name}.{inner}", message


def _search_problems(search: SearchKeys, whole: bool) -> _Found:
    bounds = {"start": search.start, "lowest": search.lowest, "highest": search.highest}
    for name, value in bounds.items():
        if whole and value is not None and value != int(value):
            yield name, f"must be a whole number of requests in flight, not {value:g}"
    low, high = search.lowest, search.highest
    if low is not None and high is not None and low >= high:
        yield "highest", f"must be more than lowest, {low:g}, not {high:g}"
    elif search.start is not None:
        if low is not None and search.start < low:
            yield "start", f"must be at least lowest, {low:g}, not {search.start:g}"
        if high is not None and search.start > high:
            yield "start", f"must be at most highest, {high:g}, not {search.start:g}"
