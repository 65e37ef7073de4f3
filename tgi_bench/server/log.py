"""Log lines as text-generation-launcher writes them.

Text: tracing's compact format, "2024-03-06T18:04:02.019265Z  INFO target: message rank=0".
JSON (--json-output): one object a line, {timestamp, level, fields: {message, ...}, target}.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

LAUNCHER = "text_generation_launcher"
ROUTER = "text_generation_router"

_DIM, _RESET = "\x1b[2m", "\x1b[0m"
_COLOURS = {"INFO": "\x1b[32m", "WARN": "\x1b[33m", "ERROR": "\x1b[31m"}


@dataclass(frozen=True, slots=True)
class Log:
    """Writes one line per call, in one write, and flushes it.

    The launcher and its ranks write to one stream: one write a line keeps lines whole.
    Colours are written to a terminal only.
    """

    json_output: bool
    stream: TextIO

    def info(self, target: str, message: str, **fields: str | int) -> None:
        """A line of level INFO."""
        self._write("INFO", target, message, fields)

    def warn(self, target: str, message: str, **fields: str | int) -> None:
        """A line of level WARN."""
        self._write("WARN", target, message, fields)

    def error(self, target: str, message: str, **fields: str | int) -> None:
        """A line of level ERROR."""
        self._write("ERROR", target, message, fields)

    def _write(self, level: str, target: str, message: str, fields: dict[str, str | int]) -> None:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self.json_output:
            line = json.dumps(
                {
                    "timestamp": stamp,
                    "level": level,
                    "fields": {"message": message, **fields},
                    "target": target,
                },
                ensure_ascii=False,
            )
        else:
            told = message + "".join(f" {name}={_text(value)}" for name, value in fields.items())
            line = self._compact(stamp, level, target, told)
        self.stream.write(line + "\n")
        self.stream.flush()

    def _compact(self, stamp: str, level: str, target: str, told: str) -> str:
        if not self.stream.isatty():
            return f"{stamp} {level:>5} {target}: {told}"
        return (
            f"{_DIM}{stamp}{_RESET} {_COLOURS[level]}{level:>5}{_RESET} "
            f"{_DIM}{target}{_RESET}{_DIM}:{_RESET} {told}"
        )


def _text(value: str | int) -> str:
    """A field's value as tracing prints it: text in quotes, numbers bare."""
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)
