"""Reading a launcher's log: tracing's compact lines, coloured or not, or JSON lines.

Whatever stands in a log, nothing here raises. Lines and causes: the public repository
huggingface/text-generation-inference, launcher/src/main.rs and router/src.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from tgi_bench.launch.args_line import parse_args

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NO_CAPACITY = "Model does not support automatic max batch total tokens"
_CAPACITY = re.compile(r"Setting max batch total tokens to (\d{1,18})\b")
_MODEL = re.compile(r"\bModel (\w+: \d+ parameters, .*?)(?: rank=\d+)?$")
_LISTENING = re.compile(r"\bListening on (?:http://)?([A-Za-z0-9.\[\]:-]+:\d{1,5})\b")
_SENTENCE_CHARACTERS = 300
_LINES_SEARCHED = 400
_SIMULATED = " (simulated)"
"""What a simulated server writes after its reasons."""

_CAUSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), sentence)
    for pattern, sentence in (
        (r"((?:CUDA|HIP|XPU|CPU) out of memory\. Tried to allocate [\d.]+ \w+)", "{0}"),
        (r"(?:CUDA error: out of memory|cudaMalloc failed: out of memory)", "CUDA out of memory"),
        (
            r"Not enough memory to handle (\d+) (?:total|prefill) tokens",
            "the device has not enough memory to handle {0} prefill tokens: "
            "lower max_batch_prefill_tokens",
        ),
        (
            r"[Ss]hard process was signaled to shutdown with signal 9\b",
            "a shard was killed with signal 9, as the host does when it runs out of memory",
        ),
        (r"MemoryError|Cannot allocate memory", "the host ran out of memory"),
        (
            r"((?:[Aa]ddress already in use|AddrInUse|EADDRINUSE).*)",
            "its port or socket is in use already: {0}",
        ),
        (r'NotEnoughCUDADevices\("?(.*?)"?\)', "too few GPUs: {0}"),
        (r'ArgumentValidation\("?(.*?)"?\)', "the launcher refused its arguments: {0}"),
        (
            r"^error: ((?:unexpected argument|invalid value|Found argument|Invalid value"
            r"|the following required|the argument|a value is required|unrecognized).*)",
            "the launcher refused its arguments: {0}",
        ),
        (
            r"error: ((?:unrecognized arguments|argument --?[\w-]+:|invalid argument).*)",
            "the server refused its arguments: {0}",
        ),
        (
            r"GatedRepoError|gated repo|(?:401|403) Client Error",
            "the model is gated, or private: access needs a token that may read it "
            "(server.env: [HF_TOKEN])",
        ),
        (
            r"(RepositoryNotFoundError|RevisionNotFoundError|EntryNotFoundError)",
            "the model was not found ({0})",
        ),
        (
            r"(\S+) is not a local folder and is not a valid model identifier",
            "the model was not found: {0} is neither a folder nor an id of the hub",
        ),
        (r"is not a valid model identifier", "the model was not found: its id is not valid"),
        (r"404 Client Error", "the model was not found (HTTP 404 of the hub)"),
        (r"Download encountered an error:\s*(.*)", "the model could not be downloaded: {0}"),
        (r"Error when initializing model: (.+?)(?: rank=\d+)?$", "{0}"),
        (r"the warm-up failed: (.+)", "its warm-up failed: {0}"),
        (r"\b[Ss]hard (\d+) failed to start", "shard {0} failed to start"),
        (r"\b[Ss]hard (\d+) crashed", "shard {0} crashed"),
        (r"\b(Webserver Crashed|WebserverFailed|WebserverCannotStart)\b", "its webserver crashed"),
        (r"^(?:Error|tgi-bench): (.+)", "it ended with: {0}"),
    )
)
"""The most telling first: a shard that ran out of memory also makes a crashed shard."""

_TAKEN = re.compile(r"[Aa]ddress already in use|AddrInUse|EADDRINUSE")
_DECISIVE = re.compile(
    r"\b[Ss]hard \d+ (?:failed to start|crashed)|[Ss]hard process was signaled to shutdown"
    r"|Webserver Crashed|Download encountered an error"
)
"""After these the launcher ends, in its own time."""


def messages(lines: Sequence[str]) -> tuple[str, ...]:
    """What each line says: without colours; of a JSON line its message."""
    return tuple(_message(line) for line in lines)


def arguments_in_effect(lines: Sequence[str]) -> tuple[tuple[str, str], ...] | None:
    """Name and text of each argument of the `Args {...}` line; None where there is none."""
    return parse_args("\n".join(messages(lines)))


def capacity_tokens(lines: Sequence[str]) -> int | None:
    """N of the last "Setting max batch total tokens to N"; None where no line says so.

    None too for a padded model, whose N is a budget of the router and no room of the shards.
    """
    capacity, padded = None, False
    for message in messages(lines):
        if _NO_CAPACITY in message:
            padded = True
        elif match := _CAPACITY.search(message):
            capacity, padded = (None if padded else int(match[1])), False
    return capacity


def model_loaded(lines: Sequence[str]) -> str | None:
    """What the embedded server's engine `transformers` says of its model; None: no such line."""
    found = (match for text in messages(lines) if (match := _MODEL.search(text)) is not None)
    return next((match[1] for match in found), None)


def is_padded(lines: Sequence[str]) -> bool:
    """Whether the log says that the model's shards name no room of their own."""
    return any(_NO_CAPACITY in message for message in messages(lines))


def listening_on(lines: Sequence[str]) -> str | None:
    """host:port of the last "Listening on host:port"; None where no line says so."""
    for message in reversed(messages(lines)):
        match = _LISTENING.search(message)
        if match:
            return match[1]
    return None


def fatal_cause(lines: Sequence[str]) -> str | None:
    """Why the server ended, in one sentence; None where the log does not say."""
    last = messages(lines[-_LINES_SEARCHED:])
    for pattern, sentence in _CAUSES:
        for message in reversed(last):
            for line in message.splitlines():
                match = pattern.search(line)
                if match:
                    cause = sentence.format(*(group.strip() for group in match.groups()))
                    mark = "" if _SIMULATED in cause or _SIMULATED not in line else _SIMULATED
                    return f"{cause[:_SENTENCE_CHARACTERS].rstrip(': ')}{mark}"
    return None


def port_taken(lines: Sequence[str]) -> bool:
    """Whether the log says that an address was in use."""
    return any(_TAKEN.search(message) for message in messages(lines))


def decisive_cause(lines: Sequence[str]) -> str | None:
    """Why the server is about to end, although it runs; None where no line says so."""
    said = messages(lines)
    if not any(_DECISIVE.search(message) for message in said):
        return None
    return fatal_cause(lines) or "a part of it ended"


class LogFile:
    """The lines that one server wrote to its log file, read on as they are written.

    begin: the offset in bytes of this server's first line; earlier lines are of earlier starts.
    """

    def __init__(self, path: Path, begin: int) -> None:
        self.path = path
        self._offset = begin
        self._lines: list[str] = []
        self._unended = b""

    def lines(self) -> tuple[str, ...]:
        """All lines so far, oldest first, with a last one that has no line end yet."""
        self.read_on()
        unended = (_decoded(self._unended),) if self._unended else ()
        return (*self._lines, *unended)

    def read_on(self) -> tuple[str, ...]:
        """The whole lines that were written since the last call; () where the file is gone."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except OSError:
            return ()
        self._offset += len(data)
        *whole, self._unended = (self._unended + data).split(b"\n")
        new = [_decoded(line) for line in whole]
        self._lines.extend(new)
        return tuple(new)

    def tail(self, count: int) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return self.lines()[-count:] if count > 0 else ()


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


def _message(line: str) -> str:
    plain = _COLOUR.sub("", line)
    if not plain.lstrip().startswith("{"):
        return plain
    try:
        entry: object = json.loads(plain)
    except (ValueError, RecursionError):
        return plain
    match entry:
        case {"fields": {"message": str(message)}}:
            return message
        case {"message": str(message)}:
            return message
        case _:
            return plain
