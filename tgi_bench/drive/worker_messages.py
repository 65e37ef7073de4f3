"""What the driver and its workers say to each other, as typed values around the channel's tuples.

To a worker: SETUP, START, JOBS, LAST, DRAIN, CUT. From it: READY, ANSWERS, DONE.
"""

from __future__ import annotations

from array import array
from dataclasses import astuple, dataclass

from tgi_bench.dialects.answer import Answer
from tgi_bench.drive.channel import Message
from tgi_bench.load_observation import RequestOutcome

SETUP = "setup"
START = "start"
"""With the time of the first send; jobs may come before it."""
JOBS = "jobs"
LAST = "last"
"""No more jobs will come."""
DRAIN = "drain"
"""Begin nothing more; wait for what is in flight."""
CUT = "cut"
"""End what is in flight."""
READY = "ready"
ANSWERS = "answers"
DONE = "done"


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """How a worker is to send.

    slots: requests in flight of the jobs without a time. connections: to open before the start.
    stop_ns: jobs without a time are begun until then, from the start; 0: no such end.
    most_in_flight: a job with a time that finds as many in flight is dropped.
    eager: hand every answer over at once, for a conversation waits for it.
    kernel_stamps: False: do without them. most_held_bytes: of answers, those in flight and those
    not handed over yet; an answer in flight fails where there are more. refusal: what an answer
    holds, as a regular expression, that refuses inside a 200, so that its slot waits; b"": none
    ever waits. quickack: each read is acknowledged at once.
    """

    host: str
    port: int
    server_name: str
    tls: bool
    verify: bool
    slots: int
    connections: int
    stop_ns: int
    timeout_ns: int
    most_in_flight: int
    eager: bool
    kernel_stamps: bool
    most_held_bytes: int
    refusal: bytes
    quickack: bool

    def message(self) -> Message:
        """For the channel."""
        return (SETUP, *astuple(self))

    @classmethod
    def of(cls, message: Message) -> WorkerSetup:
        """From the channel."""
        return cls(*message[1:])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Ready:
    """connections: open ones. failure: why one could not be opened, or "".

    stamp_reason: why stamps are not the kernel's; "" where they are.
    """

    connections: int
    failure: str
    stamp_reason: str

    def message(self) -> Message:
        """For the channel."""
        return (READY, *astuple(self))

    @classmethod
    def of(cls, message: Message) -> Ready:
        """From the channel."""
        return cls(*message[1:])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Done:
    """What a worker was. cpu_ns: since the start. peak_bytes: of its memory.

    opened: connections before the start; reopened: after it. waits: fields of Waits.
    """

    cpu_ns: int
    peak_bytes: int
    clock_step_ns: int
    opened: int
    reopened: int
    user_stamped: int
    waits: tuple[int, int, int]

    def message(self) -> Message:
        """For the channel."""
        return (DONE, *astuple(self))

    @classmethod
    def of(cls, message: Message) -> Done:
        """From the channel."""
        return cls(*message[1:])  # type: ignore[arg-type]


JobFields = tuple[int, int, bytes]
"""number, due_ns (0: as soon as a slot is free), request."""

Answered = tuple[int, int, int, bool, int, bytes, bytes, bytes, bytes, int, int, str, str, int]
"""number, intended_ns, sent_ns (0: never), new_connection, status (0: none), headers, stamps and
ends (int64 each: when a piece of the body arrived, and where it ends), body, head_ns (0: none),
ended_ns, failure ("": none), reason, resent."""


@dataclass(frozen=True, slots=True)
class Returned:
    """One job's answer, and how it was sent. sent_ns: None where it never was; of the sending that
    was answered. resent: times that it was sent again."""

    number: int
    intended_ns: int
    sent_ns: int | None
    new_connection: bool
    answer: Answer
    resent: int

    @classmethod
    def of(cls, fields: Answered) -> Returned:
        """From the tuple that a worker makes."""
        number, intended, sent, new, status, headers, *body, head, ended, failure, why, n = fields
        answer = Answer(
            status=status or None,
            headers=_headers(headers),
            pieces=_pieces(*body),
            head_ns=head or None,
            ended_ns=ended,
            failure=RequestOutcome(failure) if failure else None,
            reason=why,
        )
        return cls(number, intended, sent or None, new, answer, n)


def joined(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """The headers as one text, which marshals quicker than pairs."""
    return b"\n".join(b"%b:%b" % pair for pair in headers)


def _headers(text: bytes) -> tuple[tuple[bytes, bytes], ...]:
    pairs = (line.partition(b":") for line in text.split(b"\n") if line)
    return tuple((name, value) for name, _, value in pairs)


def _pieces(stamps: bytes, ends: bytes, body: bytes) -> tuple[tuple[int, bytes], ...]:
    at, pieces = 0, []
    for arrival_ns, end in zip(array("q", stamps), array("q", ends), strict=True):
        pieces.append((arrival_ns, body[at:end]))
        at = end
    return tuple(pieces)
