"""What the driver and its processes say to each other: marshalled tuples, and the typed values in
them.

Both ends are of one Python, so marshal's format is the same; it is the quickest there is for
tuples of numbers and bytes.
To a worker of a load: SETUP, START, JOBS, LAST, DRAIN, CUT. From it: READY, ANSWERS, DONE.
To a process of direct mode: LOAD, RUN. From it: LOADED, RAN, or FAILED in place of either; each
with one value, whole (`told`, `of`).
"""

from __future__ import annotations

import marshal
import socket
import struct
from array import array
from collections import deque
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar, cast

from tgi_bench.load_observation import RequestOutcome

if TYPE_CHECKING:
    from tgi_bench.dialects.answer import Answer
    from tgi_bench.trials.direct import DirectModel, GenerateTask, SummarizeTask


T = TypeVar("T")

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
LOAD = "load"
RUN = "run"
LOADED = "loaded"
RAN = "ran"
FAILED = "failed"


class _Plain:
    """A dataclass of numbers, texts and tuples, which the channel takes field by field."""

    __slots__ = ()
    KIND: ClassVar[str]

    def message(self) -> Message:
        """For the channel."""
        return (self.KIND, *astuple(self))  # type: ignore[call-overload]

    @classmethod
    def of(cls, message: Message) -> Self:
        """From the channel."""
        return cls(*message[1:])


@dataclass(frozen=True, slots=True)
class WorkerSetup(_Plain):
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

    KIND = SETUP

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


@dataclass(frozen=True, slots=True)
class Ready(_Plain):
    """connections: open ones. failure: why one could not be opened, or "".

    stamp_reason: why stamps are not the kernel's; "" where they are.
    """

    KIND = READY

    connections: int
    failure: str
    stamp_reason: str


@dataclass(frozen=True, slots=True)
class Done(_Plain):
    """What a worker was. cpu_ns: since the start. peak_bytes: of its memory.

    opened: connections before the start; reopened: after it. waits: fields of Waits.
    """

    KIND = DONE

    cpu_ns: int
    peak_bytes: int
    clock_step_ns: int
    opened: int
    reopened: int
    user_stamped: int
    waits: tuple[int, int, int]


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
        from tgi_bench.dialects.answer import Answer  # no worker needs what knows the dialects

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


@dataclass(frozen=True, slots=True)
class LoadAsk:
    """Load the model, as one rank of it. master_port: where ranks meet; 0 where there is one."""

    model: DirectModel
    shard_rank: int
    master_port: int


@dataclass(frozen=True, slots=True)
class RunAsk:
    """Run the task once. batch_size: of its calls, also where the task itself looks for one."""

    task: GenerateTask | SummarizeTask
    batch_size: int
    probe: int
    run_index: int
    warmup: bool
    prompt_seed: int


def told(kind: str, value: object) -> Message:
    """For the channel: a value of any type, between processes of one Python that trust each
    other."""
    import pickle  # no worker of a load needs it

    return (kind, pickle.dumps(value))


def of(kind: type[T], message: Message) -> T:
    """From the channel: the value that was told, which is of that type."""
    import pickle

    value = pickle.loads(cast(bytes, message[1]))
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} was to come, and {type(value).__name__} came")
    return value


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


Message = tuple[object, ...]
"""The message's kind, then what belongs to it; the constants below name the kinds."""

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 18


class Channel:
    """One end of a stream socket. Sending never blocks: what does not fit is kept for later."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._received = bytearray()
        self._unsent: deque[memoryview] = deque()
        self.closed = False

    def fileno(self) -> int:
        """Of the socket, for epoll and select."""
        return self._sock.fileno()

    @property
    def pending(self) -> bool:
        """Whether something was kept that did not fit."""
        return bool(self._unsent)

    @property
    def pending_bytes(self) -> int:
        """How much that is."""
        return sum(map(len, self._unsent))

    def send(self, message: Message) -> None:
        """Hand a message over, as far as the socket takes it now."""
        payload = marshal.dumps(message)  # type: ignore[arg-type]  # its kinds are simple ones
        self._unsent.append(memoryview(_LENGTH.pack(len(payload)) + payload))
        self.flush()

    def flush(self) -> bool:
        """Send what was kept; whether all of it is gone."""
        while self._unsent:
            view = self._unsent[0]
            try:
                sent = self._sock.send(view)
            except BlockingIOError:
                return False
            except OSError:
                # The other end is gone: whoever reads next will see it.
                self.closed = True
                self._unsent.clear()
                return True
            if sent < len(view):
                self._unsent[0] = view[sent:]
                return False
            self._unsent.popleft()
        return True

    def receive(self) -> list[Message]:
        """Every message that is there whole; `closed` is set at the other end's end."""
        while True:
            try:
                data = self._sock.recv(_READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            self._received += data
            if len(data) < _READ_BYTES:
                break
        return self._taken()

    def _taken(self) -> list[Message]:
        received, messages, position = self._received, [], 0
        while len(received) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, position)
            end = position + _LENGTH.size + length
            if end > len(received):
                break
            with memoryview(received) as view:
                messages.append(marshal.loads(view[position + _LENGTH.size : end]))
            position = end
        del received[:position]
        return messages

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self._sock.close()
