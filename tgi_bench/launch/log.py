"""Reading a launcher's log: tracing's compact lines, coloured or not, or JSON lines; its `Args`.

Whatever stands in a log, nothing here raises. Lines: the public repository
huggingface/text-generation-inference, launcher/src/main.rs and router/src, and the logs in
tests/transcripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

_START = re.compile(r"\bArgs \{")
_NAME = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*):\s*")
_OPENING, _CLOSING = "([{", ")]}"
_MOST_CHARACTERS = 100_000


def parse_args(text: str) -> tuple[tuple[str, str], ...] | None:
    """Name and printed value of each argument of the first `Args {...}` in a log.

    A value that was printed on many lines is given as the one-line form prints it:
    "Some(2)", "[1, 2]". None where there is no such line, or it does not end.
    """
    start = _START.search(text)
    if start is None:
        return None
    body = text[start.end() : start.end() + _MOST_CHARACTERS]
    fields = _fields(body)
    if fields is None:
        return None
    arguments = []
    for field in fields:
        name = _NAME.match(field)
        if name is None:
            return None
        arguments.append((name[1], _one_line(field[name.end() :])))
    return tuple(arguments)


def _fields(body: str) -> list[str] | None:
    """What stands between the commas of the outermost level, up to the closing brace."""
    fields: list[str] = []
    depth, begin, position = 0, 0, 0
    while position < len(body):
        character = body[position]
        if character == '"':
            position = _end_of_string(body, position)
            continue
        if character == "}" and depth == 0:
            last = body[begin:position]
            return [*fields, last] if last.strip() else fields
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            fields.append(body[begin:position])
            begin = position + 1
        position += 1
    return None


def _end_of_string(text: str, quote: int) -> int:
    """The position after the string that opens at `quote`; the text's end where it is open."""
    position = quote + 1
    while position < len(text) and text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position + 1


def _one_line(value: str) -> str:
    """Joins the lines of a value: "Some(\\n        2,\\n    )" is "Some(2)"."""
    pieces: list[str] = []
    position = 0
    while position < len(value):
        if value[position] == '"':
            end = _end_of_string(value, position)
            pieces.append(value[position:end])
        else:
            quote = value.find('"', position)
            end = len(value) if quote < 0 else quote
            pieces.append(_without_line_ends(value[position:end]))
        position = end
    return "".join(pieces).strip()


def _without_line_ends(code: str) -> str:
    code = re.sub(r",\s*\n\s*(?=[)\]}])", "", code)
    code = re.sub(r"(?<=[(\[])\s*\n\s*", "", code)
    return re.sub(r"\s*\n\s*", " ", code)


_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NO_CAPACITY = "Model does not support automatic max batch total tokens"
_CAPACITY = re.compile(r"Setting max batch total tokens to (\d{1,18})\b")
_MODEL = re.compile(r"\bModel (\w+: \d+ parameters, .*?)(?: rank=\d+)?$")
_LISTENING = re.compile(r"\bListening on (?:http://)?([A-Za-z0-9.\[\]:-]+:\d{1,5})\b")
_CONNECTED = re.compile(r"(?:^|: )Connected$")
_STAMP = r"\d{4}-\d\d-\d\dT[\d:.]+Z\s"
_ARGS = re.compile(r"(?:^|: )Args \{")
_LINE_ENDS = re.compile(r"[\r\n]")
_BOX_END = re.compile(r"\s*╰")
_QUOTED = re.compile(r"\s*[│╭╰]|\s*>?\s*File \"|\s{4}")
"""Lines of a traceback that quote source code, boxed by Rich or not, and those of pretty Args."""
_BETWEEN = re.compile(rf"$|{_STAMP}|Traceback |During handling|The above exception|Error: ")


def messages(lines: Sequence[str]) -> tuple[str, ...]:
    """What each line says: without colours; of a JSON line its message, with its rank."""
    return tuple(_message(line) for line in lines)


def said(lines: Sequence[str]) -> tuple[str, ...]:
    """What the lines state: messages line by line, less source code that a traceback quotes.

    An exception that Rich folded over several lines is one.
    """
    stated: list[str] = []
    below_box = goes_on = False
    for line in (part for text in messages(lines) for part in _LINE_ENDS.split(text)):
        if _QUOTED.match(line):
            below_box, goes_on = _BOX_END.match(line) is not None, False
        elif _BETWEEN.match(line):
            below_box = goes_on = False
            stated += [line] if line else []
        elif goes_on:
            stated[-1] = f"{stated[-1].rstrip()} {line.strip()}"
        else:
            stated.append(line)
            below_box, goes_on = False, below_box
    return tuple(stated)


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


def connected(lines: Sequence[str]) -> bool:
    """Whether a router says that it listens, or is about to: its port is bound after that."""
    return any(_CONNECTED.search(line) for line in said(lines))


def is_launcher(lines: Sequence[str]) -> bool:
    """Whether text-generation-launcher began its log, at a level that shows what follows."""
    return any(_ARGS.search(message) for message in messages(lines))


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

    def length(self) -> int:
        """How many whole lines there are so far."""
        self.read_on()
        return len(self._lines)

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
        case {"fields": {"message": str(message)}} | {"message": str(message)}:
            return f"{message}{_rank(entry)}"
        case _:
            return plain


def _rank(entry: object) -> str:
    """As a plain line ends in it: " rank=0"."""
    match entry:
        case {"span": {"rank": int(rank)}} | {"fields": {"rank": int(rank)}}:
            return f" rank={rank}"
        case _:
            return ""
