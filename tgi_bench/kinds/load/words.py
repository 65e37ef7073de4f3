"""Loads in words: what they ask, where prompts come from, and what came of them."""

from __future__ import annotations

import re
from pathlib import PurePath

from tgi_bench.analysis.samples import LoadDistribution
from tgi_bench.dialects import AUTO, speaking
from tgi_bench.kinds.load.figures import StageSummary
from tgi_bench.load_observation import LoadStage
from tgi_bench.report import units
from tgi_bench.sections.section import Sampling
from tgi_bench.trials.load import (
    METRICS,
    SUCCESS,
    Arrivals,
    ClosedLoop,
    Empirical,
    Extent,
    FileKind,
    Fixed,
    Length,
    LoadTrial,
    LogNormal,
    Normal,
    OpenLoop,
    Process,
    RatePart,
    Slo,
    Sought,
    TraceTimes,
    Uniform,
    Workload,
)
from tgi_bench.trials.load_keys import OUTPUT_TOKENS

_MOST_VALUES = 8
"""Values of an empirical length that are listed; of more only their range is."""
_WITH_TEXTS = (FileKind.JSONL, FileKind.SHAREGPT)


def prompts(workload: Workload) -> str:
    """Where prompts come from, how long they are, what they share; a file by its name alone."""
    file = workload.file
    parts = [] if file is None else [f"file {PurePath(file.path).name} ({file.kind.value})"]
    if file is not None and file.shuffle:
        parts.append("shuffled")
    if workload.prompt is not None:
        parts.append(length(workload.prompt))
    if (prefix := workload.shared_prefix) is not None:
        parts.append(
            f"the first {prefix.tokens} tokens shared within each of "
            f"{counted(prefix.groups, 'group')}"
        )
    if (turns := workload.turns) is not None:
        parts.append(
            f"conversations of {_numbers(turns.count)} turns, {seconds(turns.think_ns)} "
            "after each answer"
        )
    return "; ".join((*parts, _texts_of(workload)))


def _texts_of(workload: Workload) -> str:
    """Whether another run sends the same texts."""
    if workload.file is not None and workload.file.kind in _WITH_TEXTS:
        own = "its own texts" if workload.seed is None else f"seed {workload.seed}"
        return f"{own}, which may repeat and be cached" if workload.repeats else own
    if workload.seed is None:
        return "new texts in each run"
    return f"texts repeat those of other runs with seed {workload.seed}"


def outputs(trial: LoadTrial) -> str:
    """How many new tokens are asked for."""
    workload = trial.workload
    if workload.output is not None:
        return length(workload.output)
    if workload.file is None or workload.file.kind is not FileKind.SHAREGPT:
        return f"as the file says, {OUTPUT_TOKENS} where it does not"
    if trial.tokenizer is None:
        return f"{OUTPUT_TOKENS} tokens, for no tokenizer was named to count the file's answers"
    return f"as many tokens as the file's answers have, {OUTPUT_TOKENS} where it has none"


def length(asked: Length) -> str:
    """ "512 tokens", "100 to 1000 tokens, uniform"."""
    match asked:
        case Fixed():
            return f"{asked.tokens} tokens"
        case Empirical():
            return f"one of {_numbers(asked)} tokens"
        case _:
            return f"{_numbers(asked)}, tokens"


def _numbers(asked: Length) -> str:
    match asked:
        case Fixed():
            return str(asked.tokens)
        case Uniform():
            return f"{asked.lowest} to {asked.highest}, uniform"
        case Normal():
            return (
                f"normal with mean {plain(asked.mean)} and deviation {plain(asked.deviation)}, "
                f"within {asked.lowest} to {asked.highest}"
            )
        case LogNormal():
            return (
                f"log-normal with median {plain(asked.median)} and sigma {plain(asked.sigma)}, "
                f"within {asked.lowest} to {asked.highest}"
            )
        case Empirical():
            return _listed(asked)


def _listed(asked: Empirical) -> str:
    if len(asked.values) > _MOST_VALUES:
        text = f"{len(asked.values)} values within {min(asked.values)} to {max(asked.values)}"
        return text + (", weighted" if asked.weights else "")
    values = ", ".join(map(str, asked.values))
    weights = ":".join(map(plain, asked.weights))
    return f"{values}, weighted {weights}" if weights else values


METRIC_NAMES = dict(
    zip(
        METRICS,
        ("TTFT", "Service TTFT", "ITL", "Inter-event gap", "TPOT", "E2E", "Send lag"),
        strict=True,
    )
)
_PROCESSES = {Process.CONSTANT: "constant", Process.POISSON: "Poisson", Process.GAMMA: "gamma"}


def metrics(stage: StageSummary) -> tuple[tuple[str, LoadDistribution | None], ...]:
    """Each of METRICS with its distribution, in their order."""
    values = (
        stage.ttft,
        stage.service_ttft,
        stage.itl,
        stage.event_gap,
        stage.tpot,
        stage.e2e,
        stage.send_lag,
    )
    return tuple(zip(METRICS, values, strict=True))


def unmeasurable(metric: str, stage: StageSummary) -> str:
    """Why a metric has no figure although there are answers; "" where that is not so."""
    if (tokens := stage.unmeasurable.get(metric)) is None:
        return ""
    return f"not measurable: {tokens:.3g} tokens an event"


def plain(number: float) -> str:
    """ "4", "2.5", "0.001": at most 6 significant digits."""
    return f"{number:.6g}"


def seconds(ns: float) -> str:
    """ "60 s", "500 ms"."""
    return f"{plain(ns / 1e9)} s" if ns >= 1e9 or ns == 0 else f"{plain(ns / 1e6)} ms"


def counted(number: int, noun: str) -> str:
    """ "1 request", "1,000 requests"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def success(stage: StageSummary) -> float | None:
    """Requests with outcome OK of all that were measured; None without any."""
    total = sum(count for _, count in stage.outcomes)
    return sum(n for outcome, n in stage.outcomes if outcome == "ok") / total if total else None


def metric_name(metric: str) -> str:
    """ "ttft_p999" as "TTFT p99.9"."""
    name, _, statistic = metric.rpartition("_")
    return f"{METRIC_NAMES[name]} {'p99.9' if statistic == 'p999' else statistic}"


def slo(wanted: Slo) -> str:
    """ "TTFT p99 at most 500 ms", "success at least 99.9%"."""
    if wanted.metric == SUCCESS:
        return f"success at least {plain(wanted.limit * 100)}%"
    return f"{metric_name(wanted.metric)} at most {seconds(wanted.limit)}"


def slo_value(wanted: Slo, value: float | None) -> str:
    """What was found of it, in its own unit."""
    return (units.SHARE if wanted.metric == SUCCESS else units.FINE_MS).text(value)


def slo_met(value: float | None, met: bool | None) -> str:
    """What follows a value that was found of an SLO: ", met"."""
    if met is None:
        return "" if value is None else ", too few requests to tell"
    return ", met" if met else ", not met"


def value_header(trial: LoadTrial) -> str:
    """The head of the column that `value_asked` fills."""
    match trial.arrivals:
        case ClosedLoop():
            return "Concurrency"
        case OpenLoop(rate_per_s=float() | int()):
            return "Rate asked (1/s)"
        case _:
            return "Load"


def value_asked(trial: LoadTrial, stage: LoadStage | None) -> str:
    """A stage's concurrency or rate, or the trial's where there is no stage; else "ramp"."""
    if stage is not None and stage.concurrency is not None:
        return str(stage.concurrency)
    if stage is not None and stage.rate_per_s is not None:
        return plain(stage.rate_per_s)
    match trial.arrivals:
        case ClosedLoop(concurrency):
            return str(concurrency)
        case OpenLoop(rate_per_s=float() | int() as asked):
            return plain(asked)
        case OpenLoop():
            return "ramp"
        case TraceTimes():
            return "trace"


def load_name(trial: LoadTrial) -> str:
    """What `load.name` says, from the trial's id; "" where it has none."""
    last = trial.trial_id.rpartition("/")[2]
    end = r"-(?:c\d+|r[\d.e+-]+|ramp|trace|find-max_rate|find-max_concurrency)"
    head = re.sub(f"{end}$", "", last)
    if trial.find is None and isinstance(trial.arrivals, OpenLoop) and not trial.arrivals.parts:
        head = head.removesuffix(f"-{trial.arrivals.process.value}")
    return head.removeprefix("load-") if head.startswith("load-") else ""


def load_asked(trial: LoadTrial, stage: LoadStage) -> str:
    """ "concurrency 8", "chat: 4/s Poisson", "ramp": by itself, among loads of other kinds."""
    text = _named(trial, _by_itself(trial, value_asked(trial, stage)))
    return text if trial.find is None else f"{text}, repeat {stage.repeat + 1}"


def load_planned(trial: LoadTrial) -> str:
    """As load_asked, of a load without a stage: "search for the highest rate"."""
    if trial.find is not None:
        return _named(trial, _kind(trial).lower())
    return _named(trial, _by_itself(trial, value_asked(trial, None)))


def _named(trial: LoadTrial, text: str) -> str:
    name = load_name(trial)
    return f"{name}: {text}" if name else text


def _by_itself(trial: LoadTrial, value: str) -> str:
    match trial.arrivals:
        case ClosedLoop():
            return f"concurrency {value}"
        case OpenLoop(rate_per_s=float() | int(), process=process):
            return f"{value}/s {_PROCESSES[process]}"
        case _:
            return value


def heading(trial: LoadTrial) -> str:
    """ "Closed loop", "Open loop, Poisson", "chat: Search for the highest rate"."""
    return _named(trial, _kind(trial))


def _kind(trial: LoadTrial) -> str:
    if trial.find is not None:
        what = "rate" if trial.find.sought is Sought.MAX_RATE else "concurrency"
        return f"Search for the highest {what}"
    match trial.arrivals:
        case ClosedLoop():
            return "Closed loop"
        case OpenLoop(rate_per_s=None, process=process):
            return f"Open loop, {_PROCESSES[process]}, rate that changes"
        case OpenLoop(process=process):
            return f"Open loop, {_PROCESSES[process]}"
        case TraceTimes():
            return "Open loop, times of a trace"


def arrivals(asked: Arrivals) -> str:
    """Whether a slow server is asked less often, and when requests are sent."""
    match asked:
        case ClosedLoop():
            return "closed loop: the next send waits, so a slow server is asked less often"
        case OpenLoop():
            drawn = f"{_PROCESSES[asked.process]} gaps"
            if asked.process is Process.GAMMA:
                drawn += f" of burstiness {plain(asked.burstiness)}"
            parts = "".join(f"; {_part(part)}" for part in asked.parts)
            seed = "" if asked.process is Process.CONSTANT else f", seed {asked.seed}"
            return f"open loop: sends follow a schedule whatever happens; {drawn}{seed}{parts}"
        case TraceTimes():
            speed = "" if asked.speed == 1 else f", {plain(asked.speed)} times as fast"
            return (
                "open loop: sends follow a schedule whatever happens; the file's own times" + speed
            )


def _part(part: RatePart) -> str:
    begin, end = plain(part.from_rate_per_s), plain(part.to_rate_per_s)
    rates = f"{begin}/s" if begin == end else f"{begin}/s to {end}/s"
    return f"{rates} for {seconds(part.duration_ns)}"


def api(trial: LoadTrial, dialects: tuple[str, ...]) -> str:
    """Which path was asked, and whether the experiment or the server said it."""
    kind = "streamed" if trial.stream else "not streamed"
    names = dialects or (() if trial.spoken == AUTO else (trial.spoken,))
    if not names:
        return f"to be found by asking the server, {kind}"
    paths = ", ".join(speaking(name)[0].path(trial.stream) for name in dict.fromkeys(names))
    return f"{paths}, {kind}" + (", found by asking" if trial.spoken == AUTO else "")


def extent(trial: LoadTrial) -> str:
    """How long, and what is left out of it."""
    asked = trial.extent
    ends = []
    if asked.duration_ns is not None:
        ends.append(seconds(asked.duration_ns))
    if asked.requests is not None:
        ends.append(counted(asked.requests, "request"))
    if not ends:
        ends.append("to the end of its schedule")
    text = " or ".join(ends) + (", whichever comes first" if len(ends) > 1 else "")
    text += _until(asked)
    for part, ns, count in (
        ("warm-up", asked.warmup_ns, asked.warmup_requests),
        ("cool-down", asked.cooldown_ns, asked.cooldown_requests),
    ):
        if ns or count:
            text += f"; {part} {seconds(ns) if ns else counted(count, 'request')}"
    return text


def _until(asked: Extent) -> str:
    if asked.until is None:
        return ""
    name = metric_name(asked.until.metric)
    return f", or once the interval of {name} is within ±{plain(asked.until.share * 100)}%"


def sampling(asked: Sampling) -> str:
    """ "greedy", or what was given."""
    given = (
        ("temperature", asked.temperature),
        ("top_k", asked.top_k),
        ("top_p", asked.top_p),
        ("typical_p", asked.typical_p),
        ("repetition_penalty", asked.repetition_penalty),
    )
    words = ["sampled" if asked.do_sample else "greedy"]
    words += [f"{name} {plain(value)}" for name, value in given if value is not None]
    return ", ".join((*words, "watermark") if asked.watermark else words)
