"""Why a request fails, as a client is told.

RequestError      {"error", "error_type"} with a status: one of `Kind`
BodyError           a body that is not the JSON asked for: plain text with a status
ShardCallError         a call to the shards failed: what the first failing rank said
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class KindFacts:
    """error_type of the body, status outside a stream, `err` label of tgi_request_failure."""

    error_type: str
    status: int
    label: str


class Kind(Enum):
    """The kinds of failure of a request."""

    VALIDATION = KindFacts("validation", 422, "validation")
    OVERLOADED = KindFacts("overloaded", 429, "overloaded")
    GENERATION = KindFacts("generation", 424, "generation")
    INCOMPLETE = KindFacts("incomplete_generation", 500, "incomplete")
    UNHEALTHY = KindFacts("healthcheck", 503, "healthcheck")


class RequestError(Exception):
    """One request cannot be answered; `str()` is the `error` of the body."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def body(self) -> dict[str, object]:
        """The JSON of the answer, and of the event in a stream."""
        return {"error": str(self), "error_type": self.kind.value.error_type}


def invalid(reason: str) -> RequestError:
    """A request that a limit or a rule refuses."""
    return RequestError(Kind.VALIDATION, f"Input validation error: {reason}")


def overloaded() -> RequestError:
    """No permit was free."""
    return RequestError(Kind.OVERLOADED, "Model is overloaded")


def incomplete() -> RequestError:
    """Batching ended before the request did."""
    return RequestError(Kind.INCOMPLETE, "Incomplete generation")


class BodyError(Exception):
    """A body that cannot be read as the request asked for; `str()` is the answer's text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ShardCallError(Exception):
    """A call to the shards failed; `str()` is the gRPC status' message."""

    @property
    def as_request_error(self) -> RequestError:
        """What every request of the failed step is told."""
        return RequestError(
            Kind.GENERATION, f"Request failed during generation: Server error: {self}"
        )
