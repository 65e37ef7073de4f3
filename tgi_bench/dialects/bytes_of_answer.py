"""What a worker hands over of one request: bytes and times, undecoded."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.load_observation import RequestOutcome


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
