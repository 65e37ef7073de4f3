"""Values of the plan and observations as JSON, and back to equal values."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
"""Made when they are first needed: each takes a millisecond or so."""


def to_json(value: object, kind: Any = None) -> str:
    """The dataclass's fields by name. kind: its type, where that says more than its class.

    The text is ASCII, so that it can hold whatever a command line or a server can say.
    """
    said = _adapter(type(value) if kind is None else kind).dump_python(value, mode="json")
    return json.dumps(said, separators=(",", ":"))


def from_json(kind: type[T], text: str | bytes) -> T:
    """An equal value of that type; fields that are missing have their defaults.

    Raises ValueError where the text does not hold one.
    """
    try:
        value: T = _read(_adapter(kind), text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error
    return value


def _read(adapter: TypeAdapter[Any], text: str | bytes) -> Any:
    try:
        return adapter.validate_json(text, by_alias=False, by_name=True)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] != "json_invalid":
            raise
    # Half a character, which a server or a command line can say, only Python reads.
    return adapter.validate_python(json.loads(text))


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
