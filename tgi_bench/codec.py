"""Values of the plan and observations as JSON, and back to equal values."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""Made when they are first needed: each takes a millisecond or so."""


def to_json(value: object) -> str:
    """The dataclass's fields by name."""
    return _adapter(type(value)).dump_json(value).decode()


def from_json(kind: type[T], text: str | bytes) -> T:
    """An equal value of that dataclass; fields that are missing have their defaults.

    Raises ValueError where the text does not hold one.
    """
    value: T = _adapter(kind).validate_json(text)
    return value


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
