"""A load over HTTP as it will be sent: what is asked, when, for how long, what it must meet.

Times are nanoseconds, as everywhere inside; the YAML says "500ms" and "2%".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from tgi_bench.dialects import API_NAMES
from tgi_bench.sections.quantities import NsOrZero, Part
from tgi_bench.sections.section import FromYaml, Sampling, Seed, Value, one_of, refused
from tgi_bench.trials.lengths import Empirical as Empirical
from tgi_bench.trials.lengths import Fixed as Fixed
from tgi_bench.trials.lengths import Length as Length
from tgi_bench.trials.lengths import LogNormal as LogNormal
from tgi_bench.trials.lengths import Normal as Normal
from tgi_bench.trials.lengths import RequestCount, Tokens
from tgi_bench.trials.lengths import Uniform as Uniform

if TYPE_CHECKING:
    ApiName = str
else:
    ApiName = Literal[API_NAMES]
"""Which API is asked; `auto` is found by asking the server."""


class FileKind(StrEnum):
    """What a workload's file holds."""

    JSONL = "jsonl"
    """A prompt a line: "prompt" or "messages", and optionally "output_tokens"."""
    SHAREGPT = "sharegpt"
    """A JSON list of conversations: [{"conversations": [{"from": "human", "value": ...}]}]."""
    AZURE = "azure"
    """CSV: TIMESTAMP, ContextTokens, GeneratedTokens."""
    MOONCAKE = "mooncake"
    """JSONL: timestamp (ms), input_length, output_length, hash_ids."""
    CSV = "csv"
    """CSV: time_s, prompt_tokens, output_tokens, in any order."""


def _file(value: object) -> object:
    """A lone text is the path; a name that ends in .jsonl tells the kind."""
    if isinstance(value, str):
        value = {"path": value}
    if isinstance(value, dict) and value.get("kind") is None:
        path = value.get("path")
        told = not path or not isinstance(path, str) or PurePath(path).suffix == ".jsonl"
        return {**value, "kind": FileKind.JSONL.value if told else None}
    return value


def _kind(value: object) -> object:
    if value is None:
        kinds = ", ".join(kind.value for kind in FileKind)
        raise refused(f"is missing, and the name does not tell: one of {kinds}")
    return value


_KIND = one_of(FileKind).form


@dataclass(frozen=True, slots=True)
class WorkloadFile(Value):
    """A file that requests come from."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    """Its path, from the folder that tgi-bench runs in."""
    kind: Annotated[
        FileKind,
        FromYaml(
            Annotated[_KIND, BeforeValidator(_kind, json_schema_input_type=_KIND | None)], FileKind
        ),
    ] = FileKind.JSONL
    """What it holds; a name that ends in `.jsonl` tells it."""
    shuffle: bool = False
    """In a seeded order instead of the file's own."""


@dataclass(frozen=True, slots=True)
class SharedPrefix(Value):
    """Requests that begin alike: they share their first tokens with others of their group."""

    tokens: Tokens
    """How many of a prompt's first tokens are shared."""
    groups: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """How many different prefixes there are; each request has one of them."""


@dataclass(frozen=True, slots=True)
class Turns(Value):
    """Conversations: each request carries the ones before it and their answers."""

    count: RequestCount
    """Requests of a conversation; a number, or a distribution as of lengths."""
    think_ns: Annotated[NsOrZero, Field(alias="think")] = 0
    """The wait after an answer before the next request: `2s`."""


@dataclass(frozen=True, slots=True)
class Workload(Value):
    """What is asked."""

    prompt: Annotated[Length | None, Field(alias="prompt_tokens")] = None
    """Tokens of each prompt; 512 by default. With a file the file says it."""
    output: Annotated[Length | None, Field(alias="output_tokens")] = None
    """New tokens of each request; the file's, else 128, by default."""
    file: (
        Annotated[WorkloadFile, BeforeValidator(_file, json_schema_input_type=str | WorkloadFile)]
        | None
    ) = None
    """A file that prompts, or their lengths and times, come from."""
    shared_prefix: SharedPrefix | None = None
    """Requests that begin alike; by default no two do."""
    turns: Turns | None = None
    """Conversations of several requests."""
    seed: Seed | None = None
    """Seed of prompts and lengths; 0 is a seed. Without one each run has texts of its own."""
    repeats: bool = False
    """A file's texts may repeat or begin alike, and a cache of the server may answer them."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """The next send waits for a completion: always `concurrency` in flight."""

    kind: Literal["closed_loop"] = field(default="closed_loop", kw_only=True)
    concurrency: int


class Process(StrEnum):
    """How the gaps between arrivals are drawn."""

    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"


@dataclass(frozen=True, slots=True)
class RatePart:
    """From from_rate_per_s to to_rate_per_s, in a straight line, over duration_ns."""

    duration_ns: int
    from_rate_per_s: float
    to_rate_per_s: float


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Sends follow a schedule whatever happens. seed: of the gaps.

    rate_per_s: None where parts (ramps and steps) say it.
    burstiness: shape of the gamma distribution of the gaps: 1 is Poisson, less is burstier.
    """

    kind: Literal["open_loop"] = field(default="open_loop", kw_only=True)
    rate_per_s: float | None
    parts: tuple[RatePart, ...]
    process: Process
    burstiness: float
    seed: int


@dataclass(frozen=True, slots=True)
class TraceTimes:
    """Sends at the file's own times. speed: 2 is twice as fast."""

    kind: Literal["trace_times"] = field(default="trace_times", kw_only=True)
    speed: float


Arrivals = Annotated[ClosedLoop | OpenLoop | TraceTimes, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class Until(Value):
    """Stop when the metric's 95 % confidence interval is narrow enough."""

    metric: str
    """Whose: `ttft_p99`, or another metric and statistic."""
    share: Annotated[Part, Field(alias="ci")]
    """Half the width of the 95 % confidence interval, as a share of the value: `2%`."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How long. Of duration_ns and requests at least one is given; the first one reached ends it.

    warmup_*, cooldown_*: before and after what is measured, kept as records and left out of the
    figures; the duration's or the requests' own kind, the other is 0.
    """

    duration_ns: int | None
    requests: int | None
    warmup_ns: int
    warmup_requests: int
    cooldown_ns: int
    cooldown_requests: int
    until: Until | None


METRICS = ("ttft", "service_ttft", "itl", "event_gap", "tpot", "e2e", "send_lag")
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
SUCCESS = "success"


@dataclass(frozen=True, slots=True)
class Slo:
    """One thing that a load must meet.

    metric: "<one of METRICS>_<one of STATISTICS>", at most limit nanoseconds; or "success", at
    least limit as a share of the requests.
    """

    metric: str
    limit: float


class Sought(StrEnum):
    """What a search looks for: the highest one that meets every SLO."""

    MAX_RATE = "max_rate"
    MAX_CONCURRENCY = "max_concurrency"


LEAST_SEARCH_REQUESTS = 20
"""A search's step at a low rate lasts until so many are due: a few requests say nothing."""


@dataclass(frozen=True, slots=True)
class Find:
    """A search between lowest and highest, until the bracket is within tolerance of its value.

    start: the first value tried. repeats: of each value.
    """

    sought: Sought
    start: float
    lowest: float
    highest: float
    tolerance: float
    repeats: int


@dataclass(frozen=True, slots=True)
class LoadTrial:
    """Requests over HTTP to one server.

    trial_id: "<deployment_id>/load-c64", "/load-r4", "/load-poisson-r4", "/load-ramp",
        "/load-trace", "/load-find-max_rate".
    spoken: which API is asked, as `load.api` has it.
    arrivals: with a search, the first value tried. sampling: as of batches.
    request_timeout_ns: from sent to the last byte. max_in_flight: None: as many as the machine
        allows. workers: None: as many as the load needs. tokenizer: path of a `tokenizers` file;
        None: the server is asked. quickack: each read is acknowledged at once (TCP_QUICKACK).
    """

    trial_id: str
    deployment_id: str
    spoken: ApiName
    stream: bool
    workload: Workload
    arrivals: Arrivals
    extent: Extent
    slos: tuple[Slo, ...]
    find: Find | None
    sampling: Sampling
    request_timeout_ns: int
    max_in_flight: int | None
    workers: int | None
    tokenizer: str | None
    quickack: bool = False
