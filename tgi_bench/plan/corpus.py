"""What a workload's file holds, read from its text; bad lines are said with file and line."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from typing import TypeGuard

from tgi_bench.errors import InputError
from tgi_bench.inert import one_line
from tgi_bench.sections.quantities import NS
from tgi_bench.trials.lengths import MOST_TOKENS
from tgi_bench.trials.load import FileKind
from tgi_bench.words import shown, suggestion

MOONCAKE_BLOCK_TOKENS = 512
"""Tokens of the prompt that one of hash_ids stands for."""

CSV_TIME = "time_s"
"""The column of a generic CSV that holds times."""

_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]00:00)?", re.ASCII
)
_DECIMAL = re.compile(r"\d{1,12}(?:\.(\d{1,12}))?", re.ASCII)
_WHOLE = re.compile(r"\d{1,9}(?:\.0+)?", re.ASCII)
_MOST_TIME = 10**13
_MOST_HASH_ID = 2**63
_ASKING = ("human", "user")
_ANSWERING = ("gpt", "chatgpt", "assistant", "model")


@dataclass(frozen=True, slots=True)
class Entry:
    """One request of a file.

    text: its prompt; "" where the file has only lengths, or messages. messages: (role, text).
    later: the user's further messages of a conversation, in order.
    prompt_tokens, output_tokens: None where the file does not say.
    at_ns: from the file's first request; None where it has no times.
    hash_ids: which blocks of the prompt are alike among requests.
    answers: what the file holds as the answer to text and to each of later; "" where none.
    """

    text: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    later: tuple[str, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    at_ns: int | None = None
    hash_ids: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Corpus:
    """A file's requests, at least one: by their times where it has them, else in its order.

    left_out: how many hold nothing to send: no tokens, or no message of a user.
    count_tokens: of a text, by a tokenizer; None: none was named. Answers are counted as they are
    asked for: those of a whole file would take minutes.
    """

    entries: tuple[Entry, ...]
    left_out: int
    path: str
    count_tokens: Callable[[str], int] | None = None

    @property
    def timed(self) -> bool:
        """Whether every request has its time."""
        return all(entry.at_ns is not None for entry in self.entries)


class _LineError(Exception):
    """What is wrong with a line; says neither file nor line."""


def parse_corpus(kind: FileKind, text: str, path: str) -> Corpus:
    """The requests of a file's text. Raises InputError, which names path and line."""
    text = text.removeprefix("\ufeff")
    match kind:
        case FileKind.JSONL:
            found = _json_lines(text, path, _prompt_line)
        case FileKind.MOONCAKE:
            found = _json_lines(text, path, _mooncake_line)
        case FileKind.SHAREGPT:
            found = _conversations(text, path)
        case FileKind.AZURE:
            found = _table(text, path, _AZURE)
        case FileKind.CSV:
            found = _table(text, path, _CSV)
    lines = list(found)
    entries = [entry for entry in lines if entry is not None]
    if not entries:
        raise InputError(f"{one_line(path)}: holds no request that can be sent")
    return Corpus(tuple(_from_first(entries)), len(lines) - len(entries), path)


def _from_first(entries: list[Entry]) -> list[Entry]:
    """By time, counted from the earliest; as they are where they have none."""
    times = [entry.at_ns for entry in entries if entry.at_ns is not None]
    if len(times) < len(entries):
        return entries
    first = min(times)
    ordered = sorted(zip(times, entries, strict=True), key=lambda pair: pair[0])
    return [replace(entry, at_ns=at_ns - first) for at_ns, entry in ordered]


def _json_lines(
    text: str, path: str, read: Callable[[Mapping[str, object]], Entry | None]
) -> Iterator[Entry | None]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield read(_mapping(_json(line), "a JSON object"))
        except _LineError as error:
            raise InputError(one_line(f"{path}:{number}: {error}")) from None


def _json(text: str) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise _LineError(f"is no valid JSON: {error.msg} at line {error.lineno}") from None
    except ValueError:
        raise _LineError("is no valid JSON: holds a number of too many digits") from None
    except RecursionError:
        raise _LineError("is nested too deeply") from None
    return value


def _mapping(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _LineError(f"must be {what}, not `{shown(value)}`")
    return value


def _prompt_line(line: Mapping[str, object]) -> Entry:
    """{"prompt": ...} or {"messages": [{"role", "content"}]}; other keys are not read."""
    output = line.get("output_tokens")
    tokens = None if output is None else _tokens("output_tokens", output, least=1)
    if ("prompt" in line) == ("messages" in line):
        raise _LineError('must hold either "prompt" or "messages"')
    if "prompt" in line:
        return Entry(text=_text("prompt", line["prompt"]), output_tokens=tokens)
    messages = line["messages"]
    if not isinstance(messages, list) or not messages:
        raise _LineError('"messages" must be a list with at least one message')
    pairs = []
    for message in messages:
        said = _mapping(message, "a message with role and content")
        pairs.append((_text("role", said.get("role")), _text("content", said.get("content"))))
    return Entry(messages=tuple(pairs), output_tokens=tokens)


def _mooncake_line(line: Mapping[str, object]) -> Entry | None:
    milliseconds = line.get("timestamp")
    good = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    if not good or not 0 <= float(str(milliseconds)) <= _MOST_TIME:
        raise _LineError(f'"timestamp" must be milliseconds, not `{shown(milliseconds)}`')
    ids = line.get("hash_ids", [])
    if not isinstance(ids, list) or not all(_is_whole(i) and 0 <= i < _MOST_HASH_ID for i in ids):
        raise _LineError('"hash_ids" must be a list of whole numbers')
    prompt = _tokens("input_length", line.get("input_length"))
    output = _tokens("output_length", line.get("output_length"))
    if prompt == 0 or output == 0:
        return None
    return Entry(
        prompt_tokens=prompt,
        output_tokens=output,
        at_ns=round(float(str(milliseconds)) * 1_000_000),
        hash_ids=tuple(ids),
    )


def _conversations(text: str, path: str) -> Iterator[Entry | None]:
    place = path
    try:
        listed = _json(text)
        if not isinstance(listed, list):
            raise _LineError(f"must be a JSON list of conversations, not `{shown(listed)}`")
        for number, conversation in enumerate(listed, start=1):
            place = f"{path}: conversation {number}"
            yield _conversation(_mapping(conversation, "a JSON object"))
    except _LineError as error:
        raise InputError(one_line(f"{place}: {error}")) from None


def _conversation(conversation: Mapping[str, object]) -> Entry | None:
    """The user's messages and the answers to them; None where no message holds text."""
    turns = conversation.get("conversations")
    if not isinstance(turns, list):
        raise _LineError('must hold "conversations", a list')
    asked: list[str] = []
    answers: list[str] = []
    for turn in turns:
        said = _mapping(turn, "a message with from and value")
        value = said.get("value")
        if not isinstance(value, str) or not value:
            continue
        if said.get("from") in _ASKING:
            asked.append(_text("value", value))
            answers.append("")
        elif said.get("from") in _ANSWERING and answers and not answers[-1]:
            # It is counted and never sent: half of a surrogate pair counts as something else.
            answers[-1] = value.encode(errors="replace").decode()
    if not asked:
        return None
    return Entry(text=asked[0], later=tuple(asked[1:]), answers=tuple(answers))


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _LineError(f'"{name}" must be a string that is not empty, not `{shown(value)}`')
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _LineError(f'"{name}" holds half of a surrogate pair, which is no text') from None
    return value


def _tokens(name: str, value: object, least: int = 0) -> int:
    if not _is_whole(value) or not least <= value <= MOST_TOKENS:
        raise _LineError(
            f'"{name}" must be a whole number from {least} to {MOST_TOKENS}, not `{shown(value)}`'
        )
    return value


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which columns a table has; time may be missing where read_time says so."""

    time: str
    prompt: str
    output: str
    time_needed: bool
    read_time: Callable[[str], int]


def _table(text: str, path: str, columns: _Columns) -> Iterator[Entry | None]:
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        places = _places(header, columns)
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise _LineError(f"holds {len(row)} cells, but the header {len(header)}")
            yield _row(row, places, columns)
    except (_LineError, csv.Error) as error:
        raise InputError(one_line(f"{path}:{max(1, reader.line_num)}: {error}")) from None


def _places(header: Sequence[str], columns: _Columns) -> tuple[int | None, int, int]:
    """Where time, prompt and output stand; time None where the table has none and need not."""
    needed = [columns.prompt, columns.output]
    if columns.time_needed:
        needed.append(columns.time)
    for name in needed:
        if name not in header:
            held = ", ".join(header) or "none"
            message = f"has no column `{name}`; its columns: {held}{suggestion(name, header)}"
            raise _LineError(message)
    time = header.index(columns.time) if columns.time in header else None
    return time, header.index(columns.prompt), header.index(columns.output)


def _row(
    row: Sequence[str], places: tuple[int | None, int, int], columns: _Columns
) -> Entry | None:
    time, prompt, output = places
    at_ns = None if time is None else columns.read_time(row[time].strip())
    prompt_tokens = _cell(columns.prompt, row[prompt])
    output_tokens = _cell(columns.output, row[output])
    if prompt_tokens == 0 or output_tokens == 0:
        return None
    return Entry(prompt_tokens=prompt_tokens, output_tokens=output_tokens, at_ns=at_ns)


def _cell(name: str, cell: str) -> int:
    if not _WHOLE.fullmatch(cell.strip()):
        raise _LineError(f"{name} must be a whole number of tokens, not `{shown(cell)}`")
    return _tokens(name, int(cell.strip().partition(".")[0]))


def _timestamp_ns(cell: str) -> int:
    """2023-11-16 18:17:03.9799600, in UTC."""
    match = _TIMESTAMP.fullmatch(cell)
    try:
        if match is None:
            raise ValueError
        moment = datetime.fromisoformat(f"{match[1]} {match[2]}").replace(tzinfo=UTC)
    except ValueError:
        raise _LineError(
            f"TIMESTAMP must be as in 2023-11-16 18:17:03.9799600, not `{shown(cell)}`"
        ) from None
    return round(moment.timestamp()) * NS + int((match[3] or "").ljust(9, "0"))


def _seconds_ns(cell: str) -> int:
    match = _DECIMAL.fullmatch(cell)
    if match is None:
        raise _LineError(f"time_s must be seconds such as 12.5, not `{shown(cell)}`")
    return int(cell.partition(".")[0]) * NS + int((match[1] or "").ljust(9, "0")[:9])


_AZURE = _Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens", True, _timestamp_ns)
_CSV = _Columns(CSV_TIME, "prompt_tokens", "output_tokens", False, _seconds_ns)
