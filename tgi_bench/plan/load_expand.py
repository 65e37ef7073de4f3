"""The `load:` sections of an experiment to load trials; nanoseconds from here on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil, exp

from tgi_bench.dialects.sampling import Sampling
from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.plan.load_keys import (
    MOST_TOKENS,
    FileKeys,
    LengthKeys,
    LoadKeys,
    RampPartKeys,
    SearchKeys,
    WorkloadKeys,
)
from tgi_bench.plan.load_rules import file_kind, slo_of
from tgi_bench.plan.load_trial import (
    Arrivals,
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
    SharedPrefix,
    Sought,
    TraceTimes,
    Turns,
    Uniform,
    Until,
    Workload,
    WorkloadFile,
)
from tgi_bench.plan.plan import Deployment
from tgi_bench.sections.quantities import duration_s, to_ns
from tgi_bench.sections.section import SamplingKeys

PROMPT_TOKENS = 512
OUTPUT_TOKENS = 128
_DURATION_S = 30.0
_WARMUP_S = 5.0
_WARMUP_PART = 10
"""By default a tenth of the requests."""
_START = 1.0
_LOWEST_RATE = 0.1
_LOWEST_CONCURRENCY = 1.0
_HIGHEST = 1000.0
_BOUND_SIGMAS = 4


def load_trials(
    loads: Sequence[LoadKeys], deployments: Sequence[Deployment]
) -> tuple[LoadTrial, ...]:
    """A trial for each deployment and each concurrency, rate, ramp, trace or search.

    Raises ExperimentError where two loads give trials of one id.
    """
    named = [(name, keys, arrivals) for keys in loads for name, arrivals in _named(keys)]
    twice = [name for name, count in Counter(name for name, _, _ in named).items() if count > 1]
    if twice:
        message = f"gives the trial `{twice[0]}` twice: tell the loads apart with `name`"
        raise ExperimentError(Problem("load", message))
    return tuple(
        _trial(deployment.deployment_id, name, keys, arrivals)
        for deployment in deployments
        for name, keys, arrivals in named
    )


def trial_count(loads: Sequence[LoadKeys]) -> int:
    """Trials of one deployment."""
    return sum(len(keys.concurrency or keys.rate or (None,)) for keys in loads)


def _named(keys: LoadKeys) -> Iterator[tuple[str, Arrivals]]:
    """The end of a trial's id and its arrivals, for each trial of a load."""
    head = f"load-{keys.name}" if keys.name else "load"
    for concurrency in keys.concurrency or ():
        yield f"{head}-c{concurrency}", ClosedLoop(concurrency)
    process = Process(keys.arrivals or Process.POISSON)
    drawn = "" if process is Process.CONSTANT else f"{process.value}-"
    for rate in keys.rate or ():
        yield f"{head}-{drawn}r{plain(rate)}", _open(keys, rate)
    if keys.ramp is not None:
        yield f"{head}-ramp", _open(keys, None)
    if keys.trace is not None:
        yield f"{head}-trace", TraceTimes(keys.trace.speed)
    if keys.find is not None:
        find = _find(keys)
        if find is not None:
            yield f"{head}-find-{find.sought.value}", first_arrivals(keys, find)


def plain(number: float) -> str:
    """A number without a point where it is whole: 4, 0.5."""
    return str(int(number)) if number == int(number) else repr(number)


def first_arrivals(keys: LoadKeys, find: Find) -> Arrivals:
    """Of a search: the first value tried."""
    if find.sought is Sought.MAX_CONCURRENCY:
        return ClosedLoop(int(find.start))
    return _open(keys, find.start)


def _open(keys: LoadKeys, rate: float | None) -> OpenLoop:
    return OpenLoop(
        rate_per_s=rate,
        parts=tuple(_part(part) for part in keys.ramp or ()) if rate is None else (),
        process=Process(keys.arrivals or Process.POISSON),
        burstiness=1.0 if keys.burstiness is None else keys.burstiness,
        seed=keys.arrival_seed,
    )


def _part(part: RampPartKeys) -> RatePart:
    begin, end = (part.begin, part.end) if part.rate is None else (part.rate, part.rate)
    return RatePart(to_ns(part.length), begin or 0.0, end or 0.0)


def _find(keys: LoadKeys) -> Find | None:
    if keys.find is None:
        return None
    if keys.find.max_rate is not None:
        return _search(Sought.MAX_RATE, keys.find.max_rate, _LOWEST_RATE)
    concurrency = keys.find.max_concurrency or SearchKeys()
    return _search(Sought.MAX_CONCURRENCY, concurrency, _LOWEST_CONCURRENCY)


def _search(sought: Sought, keys: SearchKeys, least: float) -> Find:
    """With bounds that were left out put around those that were given."""
    given = [bound for bound in (keys.start, keys.lowest, keys.highest) if bound is not None]
    lowest = min(least, *given, least) if keys.lowest is None else keys.lowest
    highest = max([_HIGHEST, *given]) if keys.highest is None else keys.highest
    start = min(max(_START, lowest), highest) if keys.start is None else keys.start
    return Find(sought, start, lowest, highest, keys.tolerance, keys.repeats)


def _trial(deployment_id: str, name: str, keys: LoadKeys, arrivals: Arrivals) -> LoadTrial:
    return LoadTrial(
        trial_id=f"{deployment_id}/{name}",
        deployment_id=deployment_id,
        spoken=keys.api,
        stream=keys.stream,
        workload=_workload(keys.workload),
        arrivals=arrivals,
        extent=_extent(keys, arrivals),
        slos=tuple(slo_of(metric, limit) for metric, limit in keys.slo.items()),
        find=_find(keys),
        sampling=sampling_of(keys.sampling),
        request_timeout_ns=to_ns(keys.request_timeout),
        max_in_flight=keys.max_in_flight,
        workers=keys.workers,
        tokenizer=keys.tokenizer,
        quickack=keys.quickack,
    )


def _workload(keys: WorkloadKeys) -> Workload:
    file = keys.file
    prompt = None if keys.prompt_tokens is None else length_of(keys.prompt_tokens)
    output = None if keys.output_tokens is None else length_of(keys.output_tokens)
    if file is None:
        prompt, output = prompt or Fixed(PROMPT_TOKENS), output or Fixed(OUTPUT_TOKENS)
    shared, turns = keys.shared_prefix, keys.turns
    return Workload(
        prompt=prompt,
        output=output,
        file=None if file is None else _file(file),
        shared_prefix=None if shared is None else SharedPrefix(shared.tokens, shared.groups),
        turns=None if turns is None else Turns(length_of(turns.count), to_ns(turns.think)),
        seed=keys.seed,
        repeats=keys.repeats,
    )


def _file(keys: FileKeys) -> WorkloadFile:
    kind = file_kind(keys.path, keys.kind)
    if kind is None:
        raise ExperimentError(Problem("load.workload.file.kind", "is missing"))
    return WorkloadFile(keys.path, kind, keys.shuffle)


def length_of(keys: LengthKeys) -> Length:
    """The distribution that the keys, which passed the rules, describe."""
    if keys.fixed is not None:
        return Fixed(keys.fixed)
    if keys.uniform is not None:
        return Uniform(keys.uniform[0], keys.uniform[1])
    if (normal := keys.normal) is not None:
        highest = ceil(normal.mean + _BOUND_SIGMAS * normal.deviation)
        return Normal(
            normal.mean, normal.deviation, normal.lowest, normal.highest or _capped(highest)
        )
    if (lognormal := keys.lognormal) is not None:
        highest = ceil(lognormal.median * exp(_BOUND_SIGMAS * lognormal.sigma))
        return LogNormal(
            lognormal.median,
            lognormal.sigma,
            lognormal.lowest,
            lognormal.highest or _capped(highest),
        )
    return Empirical(tuple(keys.values or ()), tuple(keys.weights or ()))


def _capped(tokens: int) -> int:
    return min(tokens, MOST_TOKENS)


def _extent(keys: LoadKeys, arrivals: Arrivals) -> Extent:
    """A ramp's parts hold its warm-up and cool-down; elsewhere these come on top."""
    duration_ns = None if keys.duration is None else to_ns(keys.duration)
    if duration_ns is None and keys.requests is None and keys.ramp is None and keys.trace is None:
        duration_ns = to_ns(_DURATION_S)
    warmup = _default_warmup(keys, arrivals, duration_ns) if keys.warmup is None else keys.warmup
    warmup_ns, warmup_requests = _both_kinds(warmup)
    cooldown_ns, cooldown_requests = _both_kinds(keys.cooldown or 0)
    if keys.ramp is not None:
        whole_ns = sum(to_ns(part.length) for part in keys.ramp)
        duration_ns = whole_ns - warmup_ns - cooldown_ns
    until = keys.until
    return Extent(
        duration_ns=duration_ns,
        requests=keys.requests,
        warmup_ns=warmup_ns,
        warmup_requests=warmup_requests,
        cooldown_ns=cooldown_ns,
        cooldown_requests=cooldown_requests,
        until=None if until is None else Until(until.metric, until.ci),
    )


def _default_warmup(keys: LoadKeys, arrivals: Arrivals, duration_ns: int | None) -> int | str:
    """5 s, or the duration where it is shorter; of a count a tenth, and one for each in flight.

    A ramp and a trace have none: their first requests are part of what is asked.
    """
    if keys.ramp is not None or keys.trace is not None:
        return 0
    if duration_ns is not None:
        return f"{min(to_ns(_WARMUP_S), duration_ns)}ns"
    tenth = (keys.requests or 0) // _WARMUP_PART
    return max(tenth, arrivals.concurrency) if isinstance(arrivals, ClosedLoop) else tenth


def _both_kinds(span: int | str) -> tuple[int, int]:
    """(ns, requests), one of them 0."""
    return (to_ns(duration_s(span, zero=True)), 0) if isinstance(span, str) else (0, span)


def sampling_of(keys: SamplingKeys) -> Sampling:
    """The frozen value of the keys."""
    return Sampling(
        do_sample=keys.do_sample,
        temperature=keys.temperature,
        top_k=keys.top_k,
        top_p=keys.top_p,
        typical_p=keys.typical_p,
        repetition_penalty=keys.repetition_penalty,
        watermark=keys.watermark,
    )
