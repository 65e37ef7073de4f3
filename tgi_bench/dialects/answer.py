"""An answer: its bytes and times, what is collected of it while it is read, and what it means.

The errors that servers tell in it are known here, for every dialect.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from tgi_bench.inert import shortened
from tgi_bench.load_observation import RequestOutcome, TokenSource

MOST_OF_AN_ERROR = 300
"""Characters of what a server said of an error."""
_OVERLOADED_TYPES = frozenset(
    {
        "overloaded",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "unavailable_error",
    }
)
"""error_type of TGI; type of the OpenAI dialects; llama.cpp's for 503."""
_OVERLOADED_CODES = frozenset({429, 503, "429", "503"})
_REJECTED_TYPES = frozenset({"validation", "invalid_request_error", "BadRequestError"})
_REJECTED_CODES = frozenset({400, 413, "400", "413"})
"""Not 422, as which TGI's chat stream gives every cause."""
_TGI_REJECTED = "Input validation error"
_TGI_OVERLOADED = "Model is overloaded"
"""TGI's chat stream gives 422 with it, as with every other cause."""


def _overload() -> bytes:
    def one_of(words: Iterable[object]) -> str:
        return "|".join(sorted(re.escape(word) for word in words if isinstance(word, str)))

    kinds, codes = one_of(_OVERLOADED_TYPES), one_of(_OVERLOADED_CODES)
    return (
        rf'"(?:error_type|type)"\s*:\s*"(?:{kinds})"'
        rf'|"(?:code|http_status_code|status_code)"\s*:\s*"?(?:{codes})\b'
        rf'|"(?:error|message)"\s*:\s*"{re.escape(_TGI_OVERLOADED)}"'
    ).encode()


OVERLOAD = _overload()
"""A regular expression that finds in its bytes each error that told_error calls an overload: for
who has no time to read it. Inside a generated text a quote has a backslash before it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request.

    status: of HTTP; None where no whole head came. headers: names in lower case, in order.
    pieces: (arrival_ns, bytes) of each read that brought some of the body, with the HTTP framing
        taken off: an event may lie in several pieces, a piece may hold several events.
    head_ns: when the head was whole, None where it never was; ended_ns: when the body ended as
        its framing says, or the failure was known.
    failure: None where HTTP itself went well, whatever the status is; else its kind, and reason
        says why. What came before it is kept.
    """

    status: int | None
    headers: tuple[tuple[bytes, bytes], ...]
    pieces: tuple[tuple[int, bytes], ...]
    head_ns: int | None
    ended_ns: int
    failure: RequestOutcome | None
    reason: str

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, by its name in lower case."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer as its dialect means it; the fields are those of RequestObservation.

    text: what was generated; a conversation's next turn needs it. models, fingerprints: which
    model and which build the answer names, each once; () where it names none. counted_each: each
    of at least two events said how many tokens there were until then.
    """

    event_ns: array[int]
    event_tokens: array[int]
    events: int
    shared_reads: int
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int
    counted_by: TokenSource
    finish_reason: str | None
    outcome: RequestOutcome
    reason: str
    text: str
    models: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    tokens_told: bool = True
    first_told: bool = True
    text_tokens: int | None = None
    counted_each: bool = False


@dataclass(slots=True)
class Said:
    """Filled while an answer is read.

    arrivals, reads, counts: of each event with tokens: when, in which read (ascending numbers),
        how many. events: all of them.
    failed: the first failure that the answer itself showed, and why. ended: its last event came.
    models, fingerprints, counted_each: as of Reading. tokens_told, first_told, text_tokens: as of
        RequestObservation.
    """

    arrivals: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    events: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    counted_by: TokenSource = TokenSource.EVENTS
    finish_reason: str | None = None
    text: str = ""
    failed: tuple[RequestOutcome, str] | None = None
    ended: bool = False
    models: list[str] = field(default_factory=list)
    fingerprints: list[str] = field(default_factory=list)
    tokens_told: bool = True
    first_told: bool = True
    text_tokens: int | None = None
    counted_each: bool = False

    def name(self, model: object, fingerprint: object) -> None:
        """Keep who an event or a body says that answers."""
        if isinstance(model, str) and model and model not in self.models:
            self.models.append(model)
        if isinstance(fingerprint, str) and fingerprint and fingerprint not in self.fingerprints:
            self.fingerprints.append(fingerprint)

    def fail(self, outcome: RequestOutcome, reason: str) -> None:
        """Keep a failure, unless one came before."""
        if self.failed is None:
            self.failed = (outcome, reason)

    def all_at_once(self, tokens: int, arrival_ns: int) -> None:
        """One event with all tokens; none where there are none."""
        self.events = 1
        if tokens > 0:
            self.arrivals, self.reads, self.counts = [arrival_ns], [0], [tokens]

    def reading(self, outcome: RequestOutcome, reason: str) -> Reading:
        """As a Reading; events whose count came to be 0 carry no token and are left out."""
        arrivals, reads, counts = self.arrivals, self.reads, self.counts
        if 0 in counts:
            kept = [index for index, count in enumerate(counts) if count]
            arrivals = [arrivals[index] for index in kept]
            reads = [reads[index] for index in kept]
            counts = [counts[index] for index in kept]
        return Reading(
            event_ns=array("q", arrivals),
            event_tokens=array("i", counts),
            events=self.events,
            shared_reads=len(reads) - len(set(reads)),
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=sum(counts),
            counted_by=self.counted_by,
            finish_reason=self.finish_reason,
            outcome=outcome,
            reason=reason,
            text=self.text,
            models=tuple(map(shortened, self.models)),
            fingerprints=tuple(map(shortened, self.fingerprints)),
            tokens_told=self.tokens_told,
            first_told=self.first_told,
            text_tokens=self.text_tokens,
            counted_each=self.counted_each,
        )


def told_error(said: dict[object, object]) -> tuple[RequestOutcome, str] | None:
    """The error in an event or a body; None where there is none.

    Forms: {"error": text, "error_type"} of TGI, {"error": {"message", "type", "code"}} of the
    OpenAI dialects, and {"object": "error", "message", "type", "code"} of older vLLM.
    """
    error = said.get("error")
    if error is None:
        if said.get("object") != "error":
            return None
        error = said
    if isinstance(error, dict):
        message, kind = error.get("message"), error.get("type")
        codes = (error.get("code"), error.get("http_status_code"), error.get("status_code"))
    else:
        message, kind, codes = error, said.get("error_type"), (None, None, None)
    said_so = message if isinstance(message, str) and message else repr(error)
    text = shortened(said_so, MOST_OF_AN_ERROR)
    overloaded = (
        (isinstance(kind, str) and kind in _OVERLOADED_TYPES)
        or any(isinstance(code, int | str) and code in _OVERLOADED_CODES for code in codes)
        or message == _TGI_OVERLOADED
    )
    rejected = (
        (isinstance(kind, str) and kind in _REJECTED_TYPES)
        or any(isinstance(code, int | str) and code in _REJECTED_CODES for code in codes)
        or (isinstance(message, str) and message.startswith(_TGI_REJECTED))
    )
    outcome = RequestOutcome.REJECTED if rejected else RequestOutcome.SERVER_ERROR
    if overloaded:
        outcome = RequestOutcome.OVERLOADED
    return outcome, f"{text} ({kind})" if isinstance(kind, str) and kind else text


def count_of(value: object) -> int | None:
    """A number of tokens as JSON has it; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        return None
    return value


def word_of(value: object) -> str | None:
    """A text that is not empty, else None: TGI's completions say "" for no finish reason."""
    return value if isinstance(value, str) and value else None


def unreadable(data: bytes, where: str) -> str:
    """Why bytes are not the JSON that they should be."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"{where} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start:,}"
    begun = shortened(data[:80].decode(errors="replace"))
    return f"{where} is not JSON: {begun}" if begun else f"{where} is empty"
