"""Log lines as text-generation-launcher writes them.

Text: tracing's compact format, "2024-03-06T18:04:02.019265Z  INFO target: message", with a span
"... INFO shard-manager: target: message rank=0".
JSON (--json-output): one object a line, {timestamp, level, fields: {message, ...}, target}, a span
beside them; of the router {timestamp, level, message, ..., target}. See tests/transcripts.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TextIO

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import ServerConfig

LAUNCHER = "text_generation_launcher"
ROUTER = "text_generation_router"

_DIM, _BOLD, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_RANK, _MANAGER = "rank", "shard-manager"
_COLOURS = {"INFO": "\x1b[32m", "WARN": "\x1b[33m", "ERROR": "\x1b[31m"}


@dataclass(frozen=True, slots=True)
class Log:
    """Writes one line per call, in one write, and flushes it.

    The launcher and its ranks write to one stream: one write a line keeps lines whole.
    Colours are written to a terminal only.
    """

    json_output: bool
    stream: TextIO
    span: str = ""
    """What the lines are part of: "download". Those of a rank are of "shard-manager"."""

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
            line = _json((stamp, level, target), {"message": message, **fields}, self._span(fields))
        else:
            told = message + "".join(f" {name}={_text(value)}" for name, value in fields.items())
            span = self._span(fields)
            line = self._compact((stamp, level, target), told, span.get("name"))
        self.stream.write(line + "\n")
        self.stream.flush()

    def _span(self, fields: dict[str, str | int]) -> dict[str, str | int]:
        if _RANK in fields:
            return {_RANK: fields[_RANK], "name": _MANAGER}
        return {"name": self.span} if self.span else {}

    def _compact(self, head: tuple[str, str, str], told: str, name: str | int | None) -> str:
        stamp, level, target = head
        if not self.stream.isatty():
            span = f"{name}: " if name else ""
            return f"{stamp} {level:>5} {span}{target}: {told}"
        span = f"{_BOLD}{name}{_RESET}: " if name else ""
        return (
            f"{_DIM}{stamp}{_RESET} {_COLOURS[level]}{level:>5}{_RESET} {span}"
            f"{_DIM}{target}{_RESET}{_DIM}:{_RESET} {told}"
        )


def _json(
    head: tuple[str, str, str], fields: dict[str, str | int], span: dict[str, str | int]
) -> str:
    stamp, level, target = head
    told = {name: value for name, value in fields.items() if name not in span}
    said: dict[str, object] = {"timestamp": stamp, "level": level}
    said |= told if target == ROUTER else {"fields": told}
    said |= {"target": target} | ({"span": span, "spans": [span]} if span else {})
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def _text(value: str | int) -> str:
    """A field's value as tracing prints it: text in quotes, numbers bare."""
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)


_SOME = re.compile(r"Some\((.*)\)", re.DOTALL)


def arguments_line(arguments: tuple[tuple[str, str], ...], pretty: bool) -> str:
    """The `Args {...}` log line, how the launcher prints what it was told (Rust's Debug form):
    `Args { name: value, ... }`, or on many lines where `pretty`.

    arguments: names, and values as Debug prints them on one line: `Some(2)`, `"text"`.
    """
    if not pretty:
        return f"Args {{ {', '.join(f'{name}: {text}' for name, text in arguments)} }}"
    rows = "".join(f"    {name}: {_pretty(text)},\n" for name, text in arguments)
    return f"Args {{\n{rows}}}"


def quoted(text: str) -> str:
    """Text as Debug prints it, in quotes."""
    return json.dumps(text, ensure_ascii=False)


def _pretty(text: str) -> str:
    """A value of the pretty form: what `Some` holds stands on a line of its own."""
    held = _SOME.fullmatch(text)
    return text if held is None else f"Some(\n        {held[1]},\n    )"


def log_engine(config: ServerConfig, log: Log) -> None:
    """What computes, and that times and tokens are made up where they are."""
    engine = config.engine
    if engine.torch_model is None:
        log.warn(
            LAUNCHER,
            f"This server is simulated: engine {engine.engine}, accelerator "
            f"{engine.accelerator}. Times and memory are estimates, tokens are made up.",
        )
        return
    random = engine.torch_model.weights.random
    weights = "random weights, tokens mean nothing" if random else "the model's weights"
    log.info(LAUNCHER, f"This server is tgi-bench's own: engine {engine.engine}, {weights}.")


def log_download(config: ServerConfig, behaviour: Behaviour, log: Log) -> None:
    """The lines of a model that is there already; the simulated engine reads no weights, and
    the transformers engine fetches what is missing when a rank loads its model."""
    model = config.engine.model_id
    download = replace(log, span="download")
    if behaviour.names_model_in_download_lines:
        download.info(LAUNCHER, f"Starting check and download process for {model}")
    else:
        download.info(LAUNCHER, "Starting download process.")
    if config.engine.simulated:
        log.info(LAUNCHER, "The simulated engine needs no weights. Skipping download.")
    else:
        log.info(LAUNCHER, "The transformers engine reads its model when a shard starts.")
    named = f" for {model}" if behaviour.names_model_in_download_lines else "."
    download.info(LAUNCHER, f"Successfully downloaded weights{named}")
