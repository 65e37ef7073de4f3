"""The JSON door, a request's body to typed values; and why a request fails, as a client is told.

RequestError    {"error", "error_type"} with a status: one of `FailureKind`
BodyError       a body that is not the JSON asked for: plain text with a status
ShardCallError  a call to the shards failed: what the first failing rank said

Keys that nobody reads are ignored, as TGI does. A key that is missing and a key that is
null are the same, except for `has`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Final

_U32: Final = 2**32 - 1
_U64: Final = 2**64 - 1
_F32: Final = 3.4028234663852886e38
"""The largest number of 32 bits: the wire's."""


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object. Every reader raises BodyError(422) on a value of another type."""

    values: dict[str, object]
    path: str = ""

    def has(self, key: str) -> bool:
        """Whether the key is there, null or not."""
        return key in self.values

    def text(self, key: str) -> str | None:
        """A string."""
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(key, "a string")

    def required_text(self, key: str) -> str:
        """A string that must be there."""
        value = self.text(key)
        if value is None:
            raise unprocessable(f"{self.path}missing field `{key}`")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """true or false."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise self._wrong(key, "a boolean")

    def count(self, key: str, largest: int = _U32) -> int | None:
        """An integer of 0..largest."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest:
            return value
        raise self._wrong(key, f"an integer of 0..{largest}")

    def seed(self, key: str) -> int | None:
        """An unsigned integer of 64 bits."""
        return self.count(key, _U64)

    def number(self, key: str) -> float | None:
        """A number that fits 32 bits."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _F32:
            return float(value)
        raise self._wrong(key, "a number")

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; () where it is not there. One bare string is a list of one."""
        value = self.values.get(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(str(item) for item in value)
        raise self._wrong(key, "a list of strings")

    def mapping(self, key: str) -> Fields | None:
        """A JSON object."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, dict):
            return Fields(value, f"{self.path}{key}: ")
        raise self._wrong(key, "an object")

    def mappings(self, key: str) -> tuple[Fields, ...]:
        """A list of JSON objects; () where it is not there."""
        value = self.values.get(key)
        if value is None:
            return ()
        if isinstance(value, list):
            return tuple(self._item(key, at, item) for at, item in enumerate(value))
        raise self._wrong(key, "a list of objects")

    def _item(self, key: str, at: int, item: object) -> Fields:
        if isinstance(item, dict):
            return Fields(item, f"{self.path}{key}[{at}]: ")
        raise self._wrong(f"{key}[{at}]", "an object")

    def _wrong(self, key: str, wanted: str) -> BodyError:
        return unprocessable(f"{self.path}{key}: invalid type, expected {wanted}")


def parse(payload: bytes, content_type: str) -> Fields:
    """Read a body. Raises BodyError 415, 400 or 422 with the router's sentence."""
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise BodyError(415, "Expected request with `Content-Type: application/json`")
    try:
        value = json.loads(payload, parse_constant=_refuse_constant)
        if b"\\ud" in payload.lower():
            # Half a surrogate pair is a str to Python and no text to anyone else.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BodyError(400, f"Failed to parse the request body as JSON: {error}") from error
    if not isinstance(value, dict):
        raise unprocessable("invalid type, expected an object")
    return Fields(value)


def _refuse_constant(name: str) -> None:
    """NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(f"{name} is not JSON")


def unprocessable(reason: str) -> BodyError:
    """JSON that is well formed and not what was asked for."""
    return BodyError(422, f"Failed to deserialize the JSON body into the target type: {reason}")


@dataclass(frozen=True, slots=True)
class FailureFacts:
    """error_type of the body, status outside a stream, `err` label of tgi_request_failure."""

    error_type: str
    status: int
    label: str


class FailureKind(Enum):
    """The kinds of failure of a request."""

    VALIDATION = FailureFacts("validation", 422, "validation")
    OVERLOADED = FailureFacts("overloaded", 429, "overloaded")
    GENERATION = FailureFacts("generation", 424, "generation")
    INCOMPLETE = FailureFacts("incomplete_generation", 500, "incomplete")
    UNHEALTHY = FailureFacts("healthcheck", 503, "healthcheck")


class RequestError(Exception):
    """One request cannot be answered; `str()` is the `error` of the body."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def body(self) -> dict[str, object]:
        """The JSON of the answer, and of the event in a stream."""
        return {"error": str(self), "error_type": self.kind.value.error_type}


def invalid(reason: str) -> RequestError:
    """A request that a limit or a rule refuses."""
    return RequestError(FailureKind.VALIDATION, f"Input validation error: {reason}")


def overloaded() -> RequestError:
    """No permit was free."""
    return RequestError(FailureKind.OVERLOADED, "Model is overloaded")


def incomplete() -> RequestError:
    """Batching ended before the request did."""
    return RequestError(FailureKind.INCOMPLETE, "Incomplete generation")


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
            FailureKind.GENERATION, f"Request failed during generation: Server error: {self}"
        )
