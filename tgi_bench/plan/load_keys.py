"""The `load:` section of an experiment as pydantic models: requests over HTTP.

Durations are held as seconds and shares as fractions, so that what a run file stores reads back
equal; `load_expand` makes nanoseconds of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tgi_bench.dialects import API_NAMES, AUTO
from tgi_bench.errors import InputError
from tgi_bench.plan.host_keys import refused
from tgi_bench.sections.quantities import duration_s, share, span
from tgi_bench.sections.section import (
    LOAD_NAME_PATTERN,
    Positive,
    SamplingKeys,
    Section,
    Seed,
    no_duplicates,
    one_or_list,
    refused_value,
)

if TYPE_CHECKING:
    ApiName = str
else:
    ApiName = Literal[API_NAMES]

MOST_TOKENS = 10_000_000
MOST_IN_FLIGHT = 100_000
MOST_PER_S = 1_000_000
MOST_PARTS = 1000
MOST_WORKERS = 256


def _said(read: Callable[[object], object]) -> Callable[[object], object]:
    """A reader of quantities whose refusals pydantic takes with their key path."""

    def read_or_refuse(value: object) -> object:
        try:
            return read(value)
        except InputError as error:
            raise refused(str(error)) from None

    return read_or_refuse


def _duration_or_zero(value: object) -> float:
    return duration_s(value, zero=True)


def _length(value: object) -> object:
    """A lone number is the fixed length."""
    if isinstance(value, dict):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_TOKENS:
        return {"fixed": value}
    raise _no_length(value)


def _turn_count(value: object) -> object:
    """As _length, of requests."""
    try:
        return _length(value)
    except PydanticCustomError:
        raise _no_length(value, "requests") from None


def _no_length(value: object, of: str = "tokens") -> PydanticCustomError:
    return refused_value(
        f"must be a number of {of} from 1 to {MOST_TOKENS}, or {{uniform: [100, 1000]}}, "
        "{normal: ...}, {lognormal: ...} or {values: [...]}",
        value,
    )


def _file(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


def _find(value: object) -> object:
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


Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Duration = Annotated[float, BeforeValidator(_said(duration_s), json_schema_input_type=float | str)]
DurationOrZero = Annotated[
    float, BeforeValidator(_said(_duration_or_zero), json_schema_input_type=float | str)
]
Part = Annotated[float, BeforeValidator(_said(share), json_schema_input_type=float | str)]
Span = Annotated[int | str, BeforeValidator(_said(span), json_schema_input_type=int | str)]
Rate = Annotated[float, Field(gt=0, le=MOST_PER_S, allow_inf_nan=False)]
RateOrZero = Annotated[float, Field(ge=0, le=MOST_PER_S, allow_inf_nan=False)]
Requests = Annotated[int, Field(ge=1, le=2**31 - 1)]
InFlight = Annotated[int, Field(ge=1, le=MOST_IN_FLIGHT)]
LowHigh = Annotated[list[Tokens], Field(min_length=2, max_length=2)]


class NormalKeys(Section):
    """A normal distribution, rounded and kept between its bounds."""

    mean: Annotated[float, Field(gt=0, le=MOST_TOKENS, allow_inf_nan=False)]
    """The mean before the bounds cut it."""
    deviation: Annotated[float, Field(gt=0, le=MOST_TOKENS, allow_inf_nan=False)]
    """The standard deviation before the bounds cut it."""
    lowest: Tokens = 1
    """The least number of tokens."""
    highest: Tokens | None = None
    """The greatest number of tokens; the mean and 4 deviations by default."""


class LogNormalKeys(Section):
    """A log-normal distribution, rounded and kept between its bounds."""

    median: Annotated[float, Field(gt=0, le=MOST_TOKENS, allow_inf_nan=False)]
    """The median before the bounds cut it."""
    sigma: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]
    """The standard deviation of the natural logarithm."""
    lowest: Tokens = 1
    """The least number of tokens."""
    highest: Tokens | None = None
    """The greatest number of tokens; the median times e to the 4 sigma by default."""


class LengthKeys(Section):
    """How many, drawn for each request. A plain number stands for `fixed`."""

    fixed: Tokens | None = None
    """Always the same number."""
    uniform: LowHigh | None = None
    """Every whole number from the first to the second alike, both included."""
    normal: NormalKeys | None = None
    """From a normal distribution."""
    lognormal: LogNormalKeys | None = None
    """From a log-normal distribution."""
    values: Annotated[list[Tokens], Field(min_length=1, max_length=10_000)] | None = None
    """One of these."""
    weights: Annotated[list[Positive], Field(min_length=1, max_length=10_000)] | None = None
    """How often each of `values` comes, relative to the others; alike by default."""


Length = Annotated[LengthKeys, BeforeValidator(_length, json_schema_input_type=Tokens | LengthKeys)]


class FileKeys(Section):
    """A file that requests come from."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    """Its path, from the folder that tgi-bench runs in."""
    kind: Literal["jsonl", "sharegpt", "azure", "mooncake", "csv"] | None = None
    """What it holds; a name that ends in `.jsonl` tells it."""
    shuffle: bool = False
    """In a seeded order instead of the file's own."""


class SharedPrefixKeys(Section):
    """Requests that begin alike."""

    tokens: Tokens
    """How many of a prompt's first tokens are shared."""
    groups: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """How many different prefixes there are; each request has one of them."""


class TurnsKeys(Section):
    """Conversations: each request carries the ones before it and their answers."""

    count: Annotated[
        LengthKeys, BeforeValidator(_turn_count, json_schema_input_type=Tokens | LengthKeys)
    ]
    """Requests of a conversation; a number, or a distribution as of lengths."""
    think: DurationOrZero = 0.0
    """The wait after an answer before the next request: `2s`."""


class WorkloadKeys(Section):
    """What is asked."""

    prompt_tokens: Length | None = None
    """Tokens of each prompt; 512 by default. With a file the file says it."""
    output_tokens: Length | None = None
    """New tokens of each request; the file's, else 128, by default."""
    file: (
        Annotated[FileKeys, BeforeValidator(_file, json_schema_input_type=str | FileKeys)] | None
    ) = None
    """A file that prompts, or their lengths and times, come from."""
    shared_prefix: SharedPrefixKeys | None = None
    """Requests that begin alike; by default no two do."""
    turns: TurnsKeys | None = None
    """Conversations of several requests."""
    seed: Seed | None = None
    """Seed of prompts and lengths; 0 is a seed. Without one each run has texts of its own."""
    repeats: bool = False
    """A file's texts may repeat or begin alike, and a cache of the server may answer them."""


class RampPartKeys(Section):
    """One part of a ramp: a step (`rate`) or a slope (`from`, `to`)."""

    rate: RateOrZero | None = None
    """Requests/s that stay the same."""
    begin: Annotated[RateOrZero | None, Field(alias="from")] = None
    """Requests/s at the part's beginning."""
    end: Annotated[RateOrZero | None, Field(alias="to")] = None
    """Requests/s at the part's end."""
    length: Annotated[Duration, Field(alias="for")]
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


class UntilKeys(Section):
    """When a load may stop by itself."""

    ci: Part
    """Half the width of the 95 % confidence interval, as a share of the value: `2%`."""
    metric: str
    """Whose: `ttft_p99`, or another metric and statistic."""


class LoadKeys(Section):
    """Requests over HTTP: one trial for each concurrency or rate."""

    name: Annotated[str, Field(pattern=LOAD_NAME_PATTERN)] | None = None
    """Tells several loads apart; part of the trials' ids."""
    api: ApiName = AUTO
    """Which API is asked; `auto` is found by asking the server."""
    stream: bool = True
    """Answers are streamed, a token at a time."""
    workload: WorkloadKeys = Field(default_factory=WorkloadKeys)
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
        Annotated[FindKeys, BeforeValidator(_find, json_schema_input_type=str | FindKeys)] | None
    ) = None
    """A search for the highest rate or concurrency that meets every SLO."""
    arrivals: Literal["constant", "poisson", "gamma"] | None = None
    """How an open loop's gaps are drawn; `poisson` by default."""
    burstiness: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] | None = None
    """Read with `arrivals: gamma`: the distribution's shape; 1 is Poisson, less is burstier."""
    arrival_seed: Seed = 0
    """Seed of the gaps; 0 is a seed."""
    duration: Duration | None = None
    """How long is measured, after the warm-up; 30s where `requests` does not say either."""
    requests: Requests | None = None
    """How many requests are measured, after the warm-up."""
    warmup: Span | None = None
    """Before it, recorded and left out of every figure: `10s`, or a number of requests."""
    cooldown: Span | None = None
    """After it, recorded and left out of every figure: `10s`, or a number of requests."""
    until: UntilKeys | None = None
    """Stop before that when a confidence interval is narrow enough."""
    slo: dict[
        str,
        Annotated[
            str | int | float | bool | None,
            BeforeValidator(_limit, json_schema_input_type=str | float),
        ],
    ] = Field(default_factory=dict)
    """What the load must meet: `{ttft_p99: 500ms, itl_p99: 50ms, success: 99.9%}`."""
    request_timeout: Duration = 60.0
    """How long one request may take, to its last byte."""
    max_in_flight: InFlight | None = None
    """Requests that an open loop may have in flight; what is above is dropped and counted."""
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] | None = None
    """Processes that send; as many as the load needs by default."""
    tokenizer: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Path of a tokenizer.json, or of its folder, which counts tokens beside the server."""
    quickack: bool = False
    """Acknowledge each read at once: for a server that holds small pieces back until then."""
    sampling: SamplingKeys = Field(default_factory=SamplingKeys)
    """How the next token is chosen."""


Loads = Annotated[
    list[LoadKeys],
    BeforeValidator(one_or_list, json_schema_input_type=LoadKeys | list[LoadKeys]),
    Field(min_length=1, max_length=1000),
]
