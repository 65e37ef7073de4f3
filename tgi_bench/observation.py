"""What a driver saw: the one currency between drive, record and analysis.

Nothing here is computed: no mean, no rate. Times are integer nanoseconds of one
monotonic clock of the client; durations that a server reported are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kept:
    """Where run.db keeps the values of a class.

    name: of the table. key: columns that tell the rows of one attempt apart (or of the run, where
    of_run); one that is no field is the row's place. unique: columns that do so too.
    """

    name: str
    key: tuple[str, ...]
    of_run: bool = False
    unique: tuple[str, ...] = ()


TABLES: dict[type, Kept] = {}
"""Every class that has a table. `tgi_bench.record.tables` makes the tables of it."""


def table(
    name: str, key: tuple[str, ...], of_run: bool = False, unique: tuple[str, ...] = ()
) -> Callable[[type[T]], type[T]]:
    """Values of the dataclass below are kept in run.db, one in each row: see Kept."""

    def declare(kind: type[T]) -> type[T]:
        TABLES[kind] = Kept(name, key, of_run, unique)
        return kind

    return declare


@dataclass(frozen=True, slots=True)
class Named:
    """On a field: the name of its column, where that is not the field's."""

    column: str


@dataclass(frozen=True, slots=True)
class Blob:
    """On an array: its typecode. ends: columns with its first and its last value, for queries."""

    typecode: str
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Child:
    """On a tuple of dataclasses: the table that has a row for each.

    key, unique: as of Kept. of: another such table, and the column that with those above names the
    row there that each belongs to.
    """

    name: str
    key: tuple[str, ...]
    unique: tuple[str, ...] = ()
    of: tuple[str, str] | None = None


class Outcome(StrEnum):
    """How a step or a trial ended."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    """Of the device."""
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    """The limit of the container or of the host was reached, which says nothing of the device."""
    SHARD_DIED = "shard_died"
    SERVER_DIED = "server_died"
    """Under a load over HTTP, which does not tell whether it was a shard."""
    TIMEOUT = "timeout"
    REFUSED = "refused"
    """Not sent: the server said that it has no room for it."""
    SKIPPED = "skipped"
    """Not sent: a smaller batch of the same shape already ran out of memory."""
    LAUNCH_FAILED = "launch_failed"
    """Not sent: its server did not start."""
    FAILED = "failed"
    """The server answered with another error."""

    @property
    def memory_ran_out(self) -> bool:
        """Of the device, or of the host."""
        return self in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)


class Phase(StrEnum):
    """Which of the two RPCs a step was."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class RankTiming:
    """What one rank of a tensor-parallel server said of one step.

    shard_rank: 0-based. forward_ns, decode_ns, total_ns: the server's own durations;
    None where its version does not send them (before 1.3.3). requests: of the batch that it
    answered for; None in files of before.
    """

    shard_rank: int
    forward_ns: int | None
    decode_ns: int | None
    total_ns: int | None
    requests: int | None = None


@table("steps", key=("run_index", "step_index"))
@dataclass(frozen=True, slots=True)
class StepObservation:
    """One Prefill or one Decode, sent to all ranks at once.

    run_index: 0-based, counted over warm-ups first and then over runs.
    warmup: kept as a record, left out of every figure.
    step_index: 0 is the prefill step, 1..decode_length-1 the decode steps.
    sent_ns: just before the first rank's call; ended_ns: when the slowest rank answered
        (or when the failure was known).
    prompt_tokens: batch size x the longest prompt, as the room that the server set aside for
        the batch tells; None for decode steps, and where the reply does not tell (decode_length
        1, and flash models, whose room is whole blocks).
    new_tokens: tokens that came back, summed over the requests of the batch.
    outcome: OK, or why this step failed; reason is empty when OK.
    health_ns: of a prefill step: what a call that computes nothing (Health) took to all ranks just
        before this run, less what a thread of the client waited for a core in it; None where it
        was not asked, or where either is not known.
    """

    run_index: int
    warmup: bool
    phase: Phase
    step_index: int
    sent_ns: int
    ended_ns: int
    prompt_tokens: int | None
    new_tokens: int
    ranks: Annotated[tuple[RankTiming, ...], Child("step_ranks", key=("shard_rank",))]
    outcome: Outcome
    reason: str
    health_ns: int | None = None

    @property
    def latency_ns(self) -> int:
        """ended - sent: the slowest rank's step as the client saw it."""
        return self.ended_ns - self.sent_ns


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How a trial ended; reason is empty when OK."""

    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server said of itself over HTTP; None, and () of models, where it did not say.

    engine: as its routes and headers tell: "tgi", "vllm", "sglang", "llamacpp", "litellm".
    models: that it serves, in its order: /info's model_id, or the ids of /v1/models. revision:
    of the model (/info's model_sha). sha, docker_label: what TGI was built from.
    """

    engine: str | None = None
    version: str | None = None
    models: tuple[str, ...] = ()
    revision: str | None = None
    sha: str | None = None
    docker_label: str | None = None
    device_type: str | None = None
    dtype: str | None = None


SIMULATED_DEVICE = "simulated"
"""The device type that a simulated shard says."""


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What the ranks behind a server's sockets said of themselves, by shard_rank.

    protocol: that they speak, "generate.v3". device_types, dtypes: as in "cuda",
    "torch.float16".
    """

    protocol: str
    device_types: tuple[str, ...]
    dtypes: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """num_shard."""
        return len(self.device_types)

    @property
    def simulated(self) -> bool:
        """Whether one of them computes on no device."""
        return SIMULATED_DEVICE in self.device_types


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a started server said of itself, as opposed to what was requested of it.

    command: the command line that started it, program first.
    arguments: name and text of each launcher argument as its `Args {...}` log line prints
        them; None where no such line was seen.
    version: of its engine as it says; None where it does not.
    capacity_tokens: room of its KV cache as it said; None where it did not say.
    capacity_source: which line or metric said so; empty where none did.
    simulated: True where its times come from an estimate and not from a device.
    ready_ns: from the start of its process until it was ready.
    details: name and value of what else is known of this start: /info, an image's digest, the
        container's GPUs and driver.
    identity: what it said of itself. shards: None where its sockets were not asked.
    """

    command: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...] | None
    version: str | None
    capacity_tokens: int | None
    capacity_source: str
    simulated: bool
    ready_ns: int
    details: tuple[tuple[str, str], ...] = ()
    identity: Identity = Identity()
    shards: ShardFacts | None = None

    @property
    def device_type(self) -> str | None:
        """What it computes on, as in "cuda"; None where neither ranks nor router said it."""
        ranks = self.shards.device_types if self.shards is not None else ()
        return ranks[0] if ranks else self.identity.device_type


@table("published", key=("position",))
@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """One row of somebody's published report, in our units, where no samples are known.

    step: "prefill", "decode_token" or "decode_total". Latencies in ns, rates in tokens/s
    (prompt tokens/s for prefill). None: the report has no such figure.
    """

    step: str
    mean_ns: float
    lowest_ns: float
    highest_ns: float
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    mean_tokens_per_s: float | None
    lowest_tokens_per_s: float | None
    highest_tokens_per_s: float | None


class PublishedMetric(StrEnum):
    """What a figure of a published table is, with its unit in its name."""

    FORWARD_MS = "forward_ms"
    """One forward pass over the whole batch, as the sum of its kernels' times."""
    MEMORY_GIB = "memory_gib"
    """The most memory that was allocated on one device."""
    ENERGY_J_PER_TOKEN = "energy_j_per_token"
    """Of all devices, for each prompt token."""
    PROMPT_TOKENS_PER_S = "prompt_tokens_per_s"
    """batch size x prompt tokens / the forward pass."""
    GENERATE_S = "generate_s"
    """One generate call: prefill and every new token of the whole batch."""
    NEW_TOKENS_PER_S = "new_tokens_per_s"
    """batch size x new tokens / the generate call."""
    MS_PER_NEW_TOKEN = "ms_per_new_token"
    """1000 / new_tokens_per_s: spread over the batch, so no step's latency."""
    MS_PER_DECODE_STEP = "ms_per_decode_step"
    """One decode step of the whole batch."""
    SUMMARIZE_S = "summarize_s"
    """One summary of a document: several generate calls."""
    SUMMARIZE_NEW_TOKENS = "summarize_new_tokens"
    """New tokens of all calls of one summary."""
    QUARTER_CHARACTERS_PER_S = "quarter_characters_per_s"
    """Characters of an answer / 4 / the wall time of its call."""


class FigureKind(StrEnum):
    """Whether a published figure was measured or estimated by its authors."""

    MEASURED = "measured"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One figure of a published table.

    value: in the metric's unit, after corrections. printed: the cell as the table has it.
    reason: why the value is not what is printed, or why it is in doubt; "" where neither is.
    """

    metric: PublishedMetric
    kind: FigureKind
    value: float
    printed: str
    reason: str

    def __post_init__(self) -> None:
        """Raises ValueError: what was corrected was printed as a number."""
        if self.reason:
            float(self.printed)


@table("published_entries", key=("position",), of_run=True, unique=("entry_id",))
@dataclass(frozen=True, slots=True)
class PublishedEntry:
    """One configuration of a published table that is not of TGI's steps.

    entry_id: unique in its table. accelerator: as the table names it. devices: as it states.
    parallelism: how devices share the model; "" with one. quantize: in text-generation-launcher's
    words; None where weights keep their dtype. dtype, batch_size, prompt_tokens, new_tokens,
    runs: None where it is not known. new_tokens: of each request; 0 is a forward pass alone.
    end: None where the table has neither a figure nor a word. doubts: sentences about this entry.
    """

    entry_id: str
    model: str
    accelerator: str
    devices: int
    parallelism: str
    dtype: str | None
    quantize: str | None
    batch_size: int | None
    prompt_tokens: int | None
    new_tokens: int | None
    runs: int | None
    end: Annotated[TrialEnd | None, Named("ended")]
    values: Annotated[
        tuple[PublishedValue, ...],
        Child("published_values", key=("place",), unique=("metric", "kind")),
    ]
    doubts: tuple[str, ...] = ()

    @property
    def trial_id(self) -> str:
        """Its own id: an entry stands for a trial."""
        return self.entry_id

    @property
    def deployment_id(self) -> None:
        """None: no server of ours."""
        return None

    def value(
        self, metric: PublishedMetric, kind: FigureKind = FigureKind.MEASURED
    ) -> float | None:
        """That figure; None where the table does not have it."""
        return next((v.value for v in self.values if (v.metric, v.kind) == (metric, kind)), None)
