"""The `load:` section of an experiment, and the trials that it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from tgi_bench.dialects import AUTO
from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.sections.quantities import NS, Ns, Part, Span, duration_ns, share
from tgi_bench.sections.section import (
    LOAD_NAME_PATTERN,
    Sampling,
    Section,
    Seed,
    no_duplicates,
    one_of,
    one_or_list,
    refused_value,
)
from tgi_bench.trials.load import (
    SUCCESS,
    ApiName,
    Arrivals,
    ClosedLoop,
    Extent,
    Find,
    Fixed,
    LoadTrial,
    OpenLoop,
    Process,
    RatePart,
    Slo,
    Sought,
    TraceTimes,
    Until,
    Workload,
)

MOST_IN_FLIGHT = 100_000
MOST_PER_S = 1_000_000
MOST_PARTS = 1000
MOST_WORKERS = 256
PROMPT_TOKENS = 512
OUTPUT_TOKENS = 128
_DURATION_NS = 30 * NS
_WARMUP_NS = 5 * NS
_WARMUP_PART = 10
"""By default a tenth of the requests."""
_START = 1.0
_LOWEST_RATE = 0.1
_LOWEST_CONCURRENCY = 1.0
_HIGHEST = 1000.0


def _by_name(value: object) -> object:
    """`max_rate` alone is {max_rate: {}}, and so is the key without a value."""
    if isinstance(value, str):
        return {value: {}}
    if isinstance(value, dict) and list(value.values()) == [None]:
        return {key: {} for key in value}
    return value


def _limit(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    raise refused_value("must be a duration such as 500ms, or a share such as 99.9%", value)


Rate = Annotated[float, Field(gt=0, le=MOST_PER_S, allow_inf_nan=False)]
RateOrZero = Annotated[float, Field(ge=0, le=MOST_PER_S, allow_inf_nan=False)]
Requests = Annotated[int, Field(ge=1, le=2**31 - 1)]
InFlight = Annotated[int, Field(ge=1, le=MOST_IN_FLIGHT)]


class RampPartKeys(Section):
    """One part of a ramp: a step (`rate`) or a slope (`from`, `to`)."""

    rate: RateOrZero | None = None
    """Requests/s that stay the same."""
    begin: Annotated[RateOrZero | None, Field(alias="from")] = None
    """Requests/s at the part's beginning."""
    end: Annotated[RateOrZero | None, Field(alias="to")] = None
    """Requests/s at the part's end."""
    length_ns: Annotated[Ns, Field(alias="for")]
    """How long the part is: `60s`."""


class TraceKeys(Section):
    """The file's own times."""

    speed: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] = 1.0
    """2 is twice as fast."""


class SearchKeys(Section):
    """A search for the highest value that meets every SLO."""

    start: Rate | None = None
    """The first value tried; 1, or the nearest bound, by default."""
    lowest: Rate | None = None
    """The least value tried; 0.1 requests/s, or 1 in flight, by default."""
    highest: Rate | None = None
    """The greatest value tried; 1000 by default."""
    tolerance: Part = 0.05
    """The search ends when its bracket is this share of the value: `5%`."""
    repeats: Annotated[int, Field(ge=1, le=100)] = 2
    """How often each value is tried."""


class FindKeys(Section):
    """What is searched for; the name alone takes every default."""

    max_rate: SearchKeys | None = None
    """The highest rate of an open loop."""
    max_concurrency: SearchKeys | None = None
    """The highest concurrency of a closed loop."""


class LoadKeys(Section):
    """Requests over HTTP: one trial for each concurrency or rate."""

    name: Annotated[str, Field(pattern=LOAD_NAME_PATTERN)] | None = None
    """Tells several loads apart; part of the trials' ids."""
    spoken: Annotated[ApiName, Field(alias="api")] = AUTO
    """Which API is asked; `auto` is found by asking the server."""
    stream: bool = True
    """Answers are streamed, a token at a time."""
    workload: Workload = Field(default_factory=Workload)
    """What is asked."""
    concurrency: (
        Annotated[
            list[InFlight],
            BeforeValidator(one_or_list, json_schema_input_type=InFlight | list[InFlight]),
            Field(min_length=1, max_length=1000),
            AfterValidator(no_duplicates),
        ]
        | None
    ) = None
    """A closed loop: so many requests are always in flight; a trial each."""
    rate: (
        Annotated[
            list[Rate],
            BeforeValidator(one_or_list, json_schema_input_type=Rate | list[Rate]),
            Field(min_length=1, max_length=1000),
            AfterValidator(no_duplicates),
        ]
        | None
    ) = None
    """An open loop: requests/s, whatever comes back; a trial each."""
    ramp: Annotated[list[RampPartKeys], Field(min_length=1, max_length=MOST_PARTS)] | None = None
    """An open loop whose rate changes: steps and slopes, one after the other."""
    trace: TraceKeys | None = None
    """An open loop at the file's own times; {} is as they are."""
    find: (
        Annotated[FindKeys, BeforeValidator(_by_name, json_schema_input_type=str | FindKeys)] | None
    ) = None
    """A search for the highest rate or concurrency that meets every SLO."""
    arrivals: Annotated[Process, one_of(Process)] | None = None
    """How an open loop's gaps are drawn; `poisson` by default."""
    burstiness: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] | None = None
    """Read with `arrivals: gamma`: the distribution's shape; 1 is Poisson, less is burstier."""
    arrival_seed: Seed = 0
    """Seed of the gaps; 0 is a seed."""
    duration_ns: Annotated[Ns | None, Field(alias="duration")] = None
    """How long is measured, after the warm-up; 30s where `requests` does not say either."""
    requests: Requests | None = None
    """How many requests are measured, after the warm-up."""
    warmup: Span | None = None
    """Before it, recorded and left out of every figure: `10s`, or a number of requests."""
    cooldown: Span | None = None
    """After it, recorded and left out of every figure: `10s`, or a number of requests."""
    until: Until | None = None
    """Stop before that when a confidence interval is narrow enough."""
    slo: dict[
        str,
        Annotated[
            str | int | float | bool | None,
            BeforeValidator(_limit, json_schema_input_type=str | float),
        ],
    ] = Field(default_factory=dict)
    """What the load must meet: `{ttft_p99: 500ms, itl_p99: 50ms, success: 99.9%}`."""
    request_timeout_ns: Annotated[
        Ns, Field(alias="request_timeout", json_schema_extra={"default": 60.0})
    ] = 60 * NS
    """How long one request may take, to its last byte."""
    max_in_flight: InFlight | None = None
    """Requests that an open loop may have in flight; what is above is dropped and counted."""
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] | None = None
    """Processes that send; as many as the load needs by default."""
    tokenizer: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Path of a tokenizer.json, or of its folder, which counts tokens beside the server."""
    quickack: bool = False
    """Acknowledge each read at once: for a server that holds small pieces back until then."""
    sampling: Sampling = Field(default_factory=Sampling)
    """How the next token is chosen."""


Loads = Annotated[
    list[LoadKeys],
    BeforeValidator(one_or_list, json_schema_input_type=LoadKeys | list[LoadKeys]),
    Field(min_length=1, max_length=1000),
]


def load_trials(loads: Sequence[LoadKeys], deployment_ids: Sequence[str]) -> tuple[LoadTrial, ...]:
    """A trial for each deployment and each concurrency, rate, ramp, trace or search.

    Raises ExperimentError where two loads give trials of one id.
    """
    named = [(name, keys, arrivals) for keys in loads for name, arrivals in _named(keys)]
    twice = [name for name, count in Counter(name for name, _, _ in named).items() if count > 1]
    if twice:
        message = f"gives the trial `{twice[0]}` twice: tell the loads apart with `name`"
        raise ExperimentError(Problem("load", message))
    return tuple(
        _trial(deployment_id, name, keys, arrivals)
        for deployment_id in deployment_ids
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
    process = keys.arrivals or Process.POISSON
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
        process=keys.arrivals or Process.POISSON,
        burstiness=1.0 if keys.burstiness is None else keys.burstiness,
        seed=keys.arrival_seed,
    )


def _part(part: RampPartKeys) -> RatePart:
    begin, end = (part.begin, part.end) if part.rate is None else (part.rate, part.rate)
    return RatePart(part.length_ns, begin or 0.0, end or 0.0)


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
        spoken=keys.spoken,
        stream=keys.stream,
        workload=_filled(keys.workload),
        arrivals=arrivals,
        extent=_extent(keys, arrivals),
        slos=tuple(slo_of(metric, limit) for metric, limit in keys.slo.items()),
        find=_find(keys),
        sampling=keys.sampling,
        request_timeout_ns=keys.request_timeout_ns,
        max_in_flight=keys.max_in_flight,
        workers=keys.workers,
        tokenizer=keys.tokenizer,
        quickack=keys.quickack,
    )


def _filled(workload: Workload) -> Workload:
    """With the default lengths where no file says them."""
    if workload.file is not None:
        return workload
    prompt, output = (
        workload.prompt or Fixed(PROMPT_TOKENS),
        workload.output or Fixed(OUTPUT_TOKENS),
    )
    return replace(workload, prompt=prompt, output=output)


def _extent(keys: LoadKeys, arrivals: Arrivals) -> Extent:
    """A ramp's parts hold its warm-up and cool-down; elsewhere these come on top."""
    duration_ns = keys.duration_ns
    if duration_ns is None and keys.requests is None and keys.ramp is None and keys.trace is None:
        duration_ns = _DURATION_NS
    warmup = _default_warmup(keys, arrivals, duration_ns) if keys.warmup is None else keys.warmup
    warmup_ns, warmup_requests = _both_kinds(warmup)
    cooldown_ns, cooldown_requests = _both_kinds(keys.cooldown or 0)
    if keys.ramp is not None:
        whole_ns = sum(part.length_ns for part in keys.ramp)
        duration_ns = whole_ns - warmup_ns - cooldown_ns
    return Extent(
        duration_ns=duration_ns,
        requests=keys.requests,
        warmup_ns=warmup_ns,
        warmup_requests=warmup_requests,
        cooldown_ns=cooldown_ns,
        cooldown_requests=cooldown_requests,
        until=keys.until,
    )


def _default_warmup(keys: LoadKeys, arrivals: Arrivals, duration_ns: int | None) -> int | str:
    """5 s, or the duration where it is shorter; of a count a tenth, and one for each in flight.

    A ramp and a trace have none: their first requests are part of what is asked.
    """
    if keys.ramp is not None or keys.trace is not None:
        return 0
    if duration_ns is not None:
        return f"{min(_WARMUP_NS, duration_ns)}ns"
    tenth = (keys.requests or 0) // _WARMUP_PART
    return max(tenth, arrivals.concurrency) if isinstance(arrivals, ClosedLoop) else tenth


def _both_kinds(span: int | str) -> tuple[int, int]:
    """(ns, requests), one of them 0."""
    return (duration_ns(span, zero=True), 0) if isinstance(span, str) else (0, span)


def slo_of(metric: str, limit: str | float | bool | None) -> Slo:
    """One SLO, its limit in ns, or as a share; InputError for a limit that is none."""
    if metric == SUCCESS:
        return Slo(metric, share(limit))
    return Slo(metric, float(duration_ns(limit)))
