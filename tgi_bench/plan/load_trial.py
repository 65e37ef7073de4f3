"""A load over HTTP as it will be sent: what is asked, when, for how long, and what it must meet.

Times are nanoseconds, as everywhere inside; the YAML says "500ms" and "2%".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tgi_bench.dialects.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same number."""

    tokens: int


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every whole number from lowest to highest, both included, alike."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Normal:
    """Rounded; a draw outside lowest..highest is drawn again."""

    mean: float
    deviation: float
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class LogNormal:
    """exp of a normal: median tokens, sigma of the logarithm; bounds as Normal."""

    median: float
    sigma: float
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Empirical:
    """One of the values, with probability weight / sum of weights; () weighs all alike."""

    values: tuple[int, ...]
    weights: tuple[float, ...] = ()


Length = Fixed | Uniform | Normal | LogNormal | Empirical
"""How many tokens, drawn for each request."""


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


@dataclass(frozen=True, slots=True)
class WorkloadFile:
    """A file that requests come from. shuffle: in a seeded order, not the file's."""

    path: str
    kind: FileKind
    shuffle: bool


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Requests share their first `tokens` tokens with others of the same one of `groups`."""

    tokens: int
    groups: int


@dataclass(frozen=True, slots=True)
class Turns:
    """Conversations of `count` requests; each waits think_ns after the answer before."""

    count: Length
    think_ns: int


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked. seed: of prompts and lengths; 0 is a seed. None: each run has texts of its
    own, and lengths as of seed 0. repeats: a file's texts may repeat and begin alike.

    prompt, output: tokens of each request; with a file of prompts prompt is None, and output is
    what the file's own lengths are replaced with, or None to take the file's.
    """

    prompt: Length | None
    output: Length | None
    file: WorkloadFile | None
    shared_prefix: SharedPrefix | None
    turns: Turns | None
    seed: int | None
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """The next send waits for a completion: always `concurrency` in flight."""

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

    rate_per_s: float | None
    parts: tuple[RatePart, ...]
    process: Process
    burstiness: float
    seed: int


@dataclass(frozen=True, slots=True)
class TraceTimes:
    """Sends at the file's own times. speed: 2 is twice as fast."""

    speed: float


Arrivals = ClosedLoop | OpenLoop | TraceTimes


@dataclass(frozen=True, slots=True)
class Until:
    """Stop when the metric's 95 % confidence interval is no wider than ±share of its value."""

    metric: str
    share: float


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
    spoken: str
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
