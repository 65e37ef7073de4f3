"""Durations and shares as people write them: "500ms", "1.5m", "2%"; bad ones in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import isfinite
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, SerializationInfo

from tgi_bench.errors import InputError
from tgi_bench.sections.section import FromYaml, refused
from tgi_bench.words import shown

NS = 10**9
LONGEST_S = 7 * 24 * 3600
_SHORTEST = Fraction(1, NS)
_UNITS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
}
_NUMBER = r"[-+]?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})"
_DURATION = re.compile(rf"\s*({_NUMBER})\s*(ns|us|µs|ms|s|min|m|h)?\s*")
_SHARE = re.compile(rf"\s*({_NUMBER})\s*(%)?\s*")
_DURATION_FORM = "a duration such as 500ms, 2s, 1.5m or 1h, or a number of seconds"
_SHARE_FORM = "a share such as 2% or 0.02"


def duration_ns(value: object, zero: bool = False) -> int:
    """The nanoseconds of "500ms", "2s", "1.5m", "1h", or of a plain number of seconds.

    zero: whether 0 is allowed. Raises InputError: no duration, negative, 0, less than 1 ns, more
    than a week; its sentence names no key.
    """
    seconds = _read(value, _DURATION, _DURATION_FORM)
    if seconds < 0 or (seconds == 0 and not zero):
        least = "at least 0" if zero else "more than 0"
        raise InputError(f"must be {least}, not `{shown(value)}`")
    if 0 < seconds < _SHORTEST:
        raise InputError(f"must be at least 1ns, not `{shown(value)}`")
    if seconds > LONGEST_S:
        raise InputError(f"must be at most a week (168h), not `{shown(value)}`")
    return round(seconds * NS)


def share(value: object) -> float:
    """The fraction of "2%" or 0.02: more than 0, at most 1. Raises InputError as `duration_s`."""
    part = _read(value, _SHARE, _SHARE_FORM)
    if part <= 0:
        raise InputError(f"must be more than 0, not `{shown(value)}`")
    if part > 1:
        hint = "" if "%" in str(value) else f"; write {shown(value)}% for so many hundredths"
        raise InputError(f"must be at most 100%, which is 1, not `{shown(value)}`{hint}")
    return float(part)


def span(value: object) -> int | str:
    """A warm-up or cool-down: a number of requests, or the text of a duration.

    Raises InputError for anything else: a number with a point does not say which it is.
    """
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None or match[2] is None:
            raise InputError(
                f"must be a duration with its unit, as in 10s, or a whole number of requests, "
                f"not `{shown(value)}`"
            )
        duration_ns(value, zero=True)
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(
            "must be a whole number of requests, or a duration with its unit, as in 10s, "
            f"not `{shown(value)}`"
        )
    if not 0 <= value < 2**31:
        raise InputError(f"must be from 0 to {2**31 - 1} requests, not `{shown(value)}`")
    return value


def _read(value: object, form: re.Pattern[str], words: str) -> Fraction:
    """The exact number; a text's unit multiplied in."""
    match value:
        case bool():
            pass
        case int() | float() if isfinite(value):
            return Fraction(str(value))
        case str() if (found := form.fullmatch(value)) is not None:
            number, unit = Fraction(found[1]), found[2]
            if unit == "%":
                return number / 100
            return number * _UNITS[unit] if unit else number
        case _:
            pass
    raise InputError(f"must be {words}, not `{shown(value)}`")


def _said(read: Callable[[object], object]) -> Callable[[object], object]:
    """A reader whose refusals pydantic takes with their key path."""

    def read_or_refuse(value: object) -> object:
        try:
            return read(value)
        except InputError as error:
            raise refused(str(error)) from None

    return read_or_refuse


def _written(ns: int, info: SerializationInfo) -> int | str:
    """As a file writes it where the file's own keys are written."""
    return f"{ns}ns" if info.by_alias else ns


_IN_FILE = PlainSerializer(_written, when_used="json")
Ns = Annotated[
    int,
    FromYaml(
        Annotated[int, BeforeValidator(_said(duration_ns), json_schema_input_type=float | str)]
    ),
    _IN_FILE,
]
NsOrZero = Annotated[
    int,
    FromYaml(
        Annotated[
            int,
            BeforeValidator(
                _said(lambda value: duration_ns(value, zero=True)),
                json_schema_input_type=float | str,
            ),
        ]
    ),
    _IN_FILE,
]
Part = Annotated[float, BeforeValidator(_said(share), json_schema_input_type=float | str)]
Span = Annotated[int | str, BeforeValidator(_said(span), json_schema_input_type=int | str)]
