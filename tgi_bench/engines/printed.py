"""The `Args {...}` line that the launcher logs first: Rust's Debug form of its arguments."""

from __future__ import annotations

import struct
from decimal import Decimal

from tgi_bench.engines.argument_values import LauncherSettings
from tgi_bench.engines.arguments import ArgumentSpec, SettingValue, arguments_of
from tgi_bench.engines.versions import parse_version

_INDENT = "    "
_ESCAPES = str.maketrans(
    {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
)


def debug_form(version: str, settings: LauncherSettings) -> tuple[tuple[str, str], ...]:
    """(name, text) of every argument as `{:?}` prints it, in the launcher's order.

    An argument without a default is an Option there: `None`, `Some(4)`.
    """
    return tuple(
        (spec.name, _debug(spec, settings.value(spec.name), None)) for spec in arguments_of(version)
    )


def args_message(version: str, settings: LauncherSettings) -> str:
    """The whole message: one line up to 2.0.1 (`{:?}`), indented lines from 2.0.2 on (`{:#?}`)."""
    if parse_version(version) < (2, 0, 2):
        fields = ", ".join(f"{name}: {text}" for name, text in debug_form(version, settings))
        return f"Args {{ {fields} }}"
    lines = (
        f"{_INDENT}{spec.name}: {_debug(spec, settings.value(spec.name), 1)},\n"
        for spec in arguments_of(version)
    )
    return f"Args {{\n{''.join(lines)}}}"


def _debug(spec: ArgumentSpec, value: SettingValue, depth: int | None) -> str:
    """One value; depth is that of the pretty form, None for the form on one line."""
    if spec.default is not None:
        return _plain(spec, value, depth)
    if value is None:
        return "None"
    inner = _plain(spec, value, None if depth is None else depth + 1)
    return _wrapped("Some(", [inner], ")", depth)


def _plain(spec: ArgumentSpec, value: SettingValue, depth: int | None) -> str:
    match value:
        case tuple():
            return _wrapped("[", [_scalar(item) for item in value], "]", depth)
        case str() if spec.choices:
            return next(c.variant for c in spec.choices if c.value == value)
        case _:
            return _scalar(value)


def _scalar(value: str | int | float | bool | None) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case float():
            return _float32(value)
        case _:
            return str(value)


def _wrapped(left: str, items: list[str], right: str, depth: int | None) -> str:
    if depth is None or not items:
        return f"{left}{', '.join(items)}{right}"
    inner, outer = _INDENT * (depth + 1), _INDENT * depth
    return f"{left}\n{''.join(f'{inner}{item},{chr(10)}' for item in items)}{outer}{right}"


def _float32(value: float) -> str:
    """The shortest digits that give the same 32-bit float, as Rust prints an f32."""
    (single,) = struct.unpack("f", struct.pack("f", value))
    digits = next(
        text
        for precision in range(1, 10)
        if struct.pack("f", float(text := f"{value:.{precision}g}")) == struct.pack("f", single)
    )
    magnitude = abs(single)
    if magnitude != 0 and not 1e-5 <= magnitude < 1e16:
        mantissa, _, exponent = f"{Decimal(digits):e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    positional = f"{Decimal(digits):f}"
    return positional if "." in positional else f"{positional}.0"
