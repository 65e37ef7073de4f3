"""What the load client saw: requests over HTTP, the stages they belong to, and the client itself.

Nothing here is computed. Times are integer nanoseconds of one monotonic clock of the client.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from tgi_bench.observation import Blob, Named, table


class RequestOutcome(StrEnum):
    """How one request over HTTP ended."""

    OK = "ok"
    DROPPED = "dropped"
    """Never sent: at its time no further connection was allowed, or the run was over."""
    CUT_OFF = "cut_off"
    """Stopped by the client: the run was ended while it was in flight."""
    CONNECTION_REFUSED = "connection_refused"
    CONNECTION_RESET = "connection_reset"
    """Reset, or closed before a whole head came."""
    DNS = "dns"
    TLS = "tls"
    TIMEOUT = "timeout"
    OVERLOADED = "overloaded"
    """429 or 503, or an overload reported inside a 200."""
    HTTP_ERROR = "http_error"
    """Another status than 200, redirects included."""
    SERVER_ERROR = "server_error"
    """An error reported inside a 200."""
    REJECTED = "rejected"
    """The request itself was refused: 400, 413 or 422, or a validation error inside a 200."""
    INCOMPLETE = "incomplete"
    """The answer ended before its last event."""
    PROTOCOL = "protocol"
    """What came is not HTTP, not of the expected content type, or not of the dialect."""
    CLIENT_LIMIT = "client_limit"
    """This machine refused: file descriptors, ports or memory."""


class LoadPart(StrEnum):
    """Which part of a load a request was intended in; only MEASURED makes figures."""

    WARMUP = "warmup"
    MEASURED = "measured"
    COOLDOWN = "cooldown"


class TokenSource(StrEnum):
    """Who counted a request's new tokens."""

    SERVER = "server"
    """Each event is one token and says so, or the answer's details give the count."""
    USAGE = "usage"
    """The answer's usage object."""
    TOKENIZER = "tokenizer"
    """A tokenizer counted the text that came."""
    EVENTS = "events"
    """Nobody: events that carry text were counted, each as one."""


@table("requests", key=("stage", "request_index"))
@dataclass(frozen=True, slots=True)
class RequestObservation:
    """One request over HTTP. Times are of the client's monotonic clock.

    stage: which LoadStage it belongs to. request_index: 0-based within the stage, in the order
        of intended. worker: 0-based.
    conversation, turn: 0-based; turn is 0 outside conversations.
    intended_ns: when it was to be sent; closed loop: when its slot was free, which is sent_ns but
        where it had to wait for a connection or was sent again.
    sent_ns: just before its first byte was handed to the system; None where it never was. Of the
        sending that was answered: what a dead connection took lies between intended and sent, in
        TTFT and E2E as a user has it, and not in service TTFT, which is the server's.
    ended_ns: when the last byte of the answer arrived, or its failure was known.
    event_ns, event_tokens: arrival (typecode "q") and new tokens (typecode "i") of each event
        that carried at least one token, in order; events of one read share one arrival.
    events: every event, those without a token included.
    shared_reads: events of event_ns that arrived in one read with the one before.
    prompt_tokens_asked, output_tokens_asked: None where the workload does not say.
    prompt_tokens, cached_tokens: as the server says; None where it does not.
    output_tokens: sum of event_tokens; counted_by says by whom.
    finish_reason: in the server's own word; None where it gave none.
    status: of HTTP; None where no answer came.
    new_connection: True where its connection was opened for it, not before.
    kernel_stamps: True where the arrivals are the kernel's receive timestamps.
    resent: times that it was sent again, at most 1, because the connection that had been kept
        alive for it was ended before a byte of an answer. Another answers it, so new_connection
        is True. A connection that had never served a request gives an error instead.
    tokens_told: whether event_tokens is what the server said of each event; False where a sum was
        spread over the events.
    first_told: False where an event without text came before the first one with text, and nobody
        says whether that was a token: event_ns then begins with the one with text.
    text_tokens: of the generated text, by load.tokenizer; None where there is none.
    """

    stage: int
    request_index: int
    worker: int
    part: LoadPart
    conversation: int
    turn: int
    intended_ns: int
    sent_ns: int | None
    ended_ns: int
    event_ns: Annotated[array[int], Blob("q", ends=("first_event_ns", "last_event_ns"))]
    event_tokens: Annotated[array[int], Blob("i")]
    events: int
    shared_reads: int
    prompt_tokens_asked: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens_asked: int | None
    output_tokens: int
    counted_by: TokenSource
    finish_reason: str | None
    status: int | None
    new_connection: bool
    kernel_stamps: bool
    outcome: RequestOutcome
    reason: str
    resent: int = 0
    tokens_told: bool = True
    first_told: bool = True
    text_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What the load client was during one stage.

    workers: processes that sent. worker_cpu_ns: CPU time of each; parent_cpu_ns: of the
        process that made requests and read answers. wall_ns: of the stage.
    kernel_stamps: False where arrivals were stamped after the read, in user space; stamp_reason
        then says why.
    clock_step_ns: how far the wall clock moved against the monotonic one during the stage.
    connections_opened: ahead of the requests, or in the place of one that the client closed;
        connections_reopened: during the stage, for a request that had to wait for it.
    """

    workers: int
    worker_cpu_ns: tuple[int, ...]
    parent_cpu_ns: int
    wall_ns: int
    kernel_stamps: bool
    stamp_reason: str
    clock_step_ns: int
    connections_opened: int
    connections_reopened: int


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of a closed loop's slots, or of its users, because the server refused: 429, 503, or an
    overload told inside a 200. count: of them; total_ns: over all slots; longest_ns: 0 for none."""

    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0


@dataclass(frozen=True, slots=True)
class SmallWrites:
    """What control requests for one token told, before the load; medians of up to `pairs` of them
    on one kept-alive connection.

    ttft_ns: as a load asks. quickack_ttft_ns: where each read is acknowledged at once; None where
    it was not asked, for by after_head_ns nothing waited. after_head_ns: from the answer's head to
    its first token, as a load asks; load_after_head_ns: the same of the load's own answers, None
    where none came. apart: whether every first token as a load asks came later than every other
    one, and all of them as late after their heads as a timer makes them: chance alone does not.
    """

    pairs: int
    ttft_ns: float
    quickack_ttft_ns: float | None
    after_head_ns: float
    load_after_head_ns: float | None = None
    apart: bool = False


class Untold(StrEnum):
    """Why nobody can tell what a server had of the CPU of the client's machine."""

    ELSEWHERE = "elsewhere"
    """Its address is another machine's, or a container's own."""
    UNSEEN = "unseen"
    """Nothing that this user may look into listens there: another user's, or in a container."""
    FORWARDED = "forwarded"
    """What listens there hands on to a server somewhere else, or works with another one here."""
    OWN_PROCESS = "own_process"
    """It is a thread of the client's own process."""
    ENDED = "ended"
    """None of its processes was there at the end."""
    SYSTEM = "system"
    """The system has no /proc, or does not count how long threads wait for a core."""


@dataclass(frozen=True, slots=True)
class ServerCpu:
    """The process tree of a server. processes: at the end. threads: that were seen, by a look about
    once a second and one at the end.

    cpu_ns: in the kernel's ticks, of all threads, seen or not, and of processes that ended. ran_ns:
    of the seen ones; waited_ns: of the same, ready to run while others ran.
    """

    processes: int
    threads: int
    cpu_ns: int
    ran_ns: int
    waited_ns: int


@dataclass(frozen=True, slots=True)
class ServerHost:
    """The CPU of the client's machine from before its workers began until after the last answer.

    busy_ns: of all cores, None where the kernel does not say. client_ns: of all processes of the
    client. server: None where it is not told, and then untold says why. client_waited_ns: of the
    process of the client that waited longest for a core, from its start of the load on; None where
    the kernel does not say.
    """

    cores: int
    wall_ns: int
    busy_ns: int | None
    client_ns: int
    server: ServerCpu | None = None
    untold: Untold | None = None
    client_waited_ns: int | None = None


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Tokens of prompts that a server counted during a stage, warm-up included, and how many of
    them came from a cache. source: where it says so, as "/metrics: <name of the counter>"."""

    prompt_tokens: int
    cached_tokens: int
    source: str


@dataclass(frozen=True, slots=True)
class PromptTexts:
    """Texts of a stage that were sent, of conversations the first ones, against all that its
    server was sent before them by the run.

    repeated: the whole text had been sent. shared_heads: of the others, those whose first 128
    characters, or more, had been. characters: of all; repeated_characters, shared_characters: of
    repeated texts, and at least of shared heads.
    """

    sent: int = 0
    repeated: int = 0
    shared_heads: int = 0
    characters: int = 0
    repeated_characters: int = 0
    shared_characters: int = 0


@dataclass(frozen=True, slots=True)
class ControlPair:
    """Two requests before the load, one after the other and alone: for one token, and for more.

    Times from sending. one_token_ns, one_token_e2e_ns: to the token of the answer of one, and to
    its end. tokens: of the other, as they were counted; first_ns, last_ns: to its first and last
    ones, e2e_ns: to its end.
    """

    one_token_ns: int
    one_token_e2e_ns: int
    tokens: int
    first_ns: int
    last_ns: int
    e2e_ns: int


@dataclass(frozen=True, slots=True)
class StageConditions:
    """What else was seen of one stage that its figures are to be believed by.

    answered_by: each model that answers named, with how many of them did; one that names two
    counts for both. two_models: answers that named more than one. fingerprints: what answers
    named as their system_fingerprint, likewise.
    engine: as it was found by asking: "tgi", "vllm", "sglang", "llamacpp", "litellm", or "".
    asked_model: the name that requests were sent with; "" where the API has no place for one.
    in_place_of: the name that was asked for, where the only one that the server lists was sent
    instead; "" where none was replaced, or the server calls that one so too.
    own_names: what the server calls its models: in its list of them, of itself; where it says
    none, in the answer to the question before the load, whose variants ("name@main") count too.
    versions: what it states of itself, each with where.
    small_writes: None where nothing was streamed, or there was nothing to compare.
    words_by: who counted the words of prompts, "tokenizer" or "server"; "" where nobody did.
    host: the client's machine; None in runs of older versions.
    added_tokens: that the server adds to a prompt, as a BOS or of a template; 0 where not known.
    cache: None where the server's /metrics do not tell, just before and just after the stage.
    prompts: None where nobody counted them, as in a file of before.
    control: () where nothing was streamed, or the server gave nothing to compare.
    """

    answered_by: tuple[tuple[str, int], ...] = ()
    two_models: int = 0
    waits: Waits = Waits()
    small_writes: SmallWrites | None = None
    fingerprints: tuple[tuple[str, int], ...] = ()
    engine: str = ""
    asked_model: str = ""
    own_names: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    words_by: str = ""
    host: ServerHost | None = None
    added_tokens: int = 0
    cache: CacheCounters | None = None
    prompts: PromptTexts | None = None
    control: tuple[ControlPair, ...] = ()
    in_place_of: str = ""


@table("load_stages", key=("stage",))
@dataclass(frozen=True, slots=True)
class LoadStage:
    """One load at one concurrency or rate; a search has many, any other trial one.

    index: 0-based. concurrency, rate_per_s: what was asked; the other is None, and both are
        None where the arrivals change with time (ramp, steps, trace).
    repeat: 0-based, of the same value in a search.
    began_ns .. ended_ns: from the first intended send to the last answer.
    measured_from_ns .. measured_until_ns: the window between warm-up and cool-down; measured
        requests were intended in it, or are those that the counts name.
    dialect: as it was spoken: "tgi", "completions", "chat". details: what else was found by
        asking or chosen for this stage: how prompt lengths were made exact, and so on.
    cut_off: why it ended before it was to; "" where it did not.
    """

    index: Annotated[int, Named("stage")]
    concurrency: int | None
    rate_per_s: float | None
    repeat: int
    began_ns: int
    ended_ns: int
    measured_from_ns: int
    measured_until_ns: int
    dialect: str
    client: ClientFacts
    details: tuple[tuple[str, str], ...] = ()
    cut_off: str = ""
    conditions: StageConditions = StageConditions()


@table("client_floors", key=("position",), of_run=True)
@dataclass(frozen=True, slots=True)
class ClientFloor:
    """The load client's own error, measured against a null server on the same machine.

    streams: at once; interval_ns: between a stream's events (0: as fast as it reads).
    cpu_ns_per_event: of all client processes. ttft_error_ns, itl_error_ns: absolute error
        against the null server's own log at p50, p90, p99. start_lateness_ns: the same of
        sent - intended; None where the load was closed.
    """

    streams: int
    interval_ns: int
    events: int
    events_per_s: float
    cpu_ns_per_event: float
    ttft_error_ns: tuple[float, float, float]
    itl_error_ns: tuple[float, float, float] | None
    start_lateness_ns: tuple[float, float, float] | None
    kernel_stamps: bool
