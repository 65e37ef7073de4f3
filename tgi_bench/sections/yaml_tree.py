"""YAML text to plain values that know their lines; hostile text costs no memory and no stack.

Read from the parser's events, so nothing is built that is not counted first. Scalars follow
YAML 1.2's core schema, as editors do: `on` and `no` are strings, only true and false booleans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.words import shown

Tree = str | int | float | bool | None | list["Tree"] | dict[str, "Tree"]
"""What a document holds. An alias is the same object as its anchor: do not change in place."""

MAX_BYTES = 1 << 20
MAX_NODES = 100_000
"""Counted after aliases are expanded."""
MAX_DEPTH = 50

_NULL = re.compile(r"~|null|Null|NULL|", re.ASCII)
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE", re.ASCII)
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}", re.ASCII)
_LONG_INTEGER = re.compile(r"[-+]?[0-9]{41,}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)

_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class YamlError(ExperimentError):
    """The text is no YAML that can be used; knows the line (1-based) where that shows."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(Problem("", message))
        self.line = line


@dataclass(frozen=True, slots=True)
class Document:
    """A document's value, and for each key path ("batches.batch_size.2") its line, 1-based."""

    tree: Tree
    lines: dict[str, int]


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    value: list[Tree] | dict[str, Tree]
    path: str
    line: int
    anchor: str | None
    nodes: int = 1
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    lines: dict[str, int] = field(default_factory=dict)
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Tree, int]] = field(default_factory=dict)
    result: Tree = None
    seen: bool = False
    nodes: int = 0

    def take(self, event: yaml.Event, line: int) -> None:
        match event:
            case yaml.DocumentStartEvent():
                if self.seen:
                    raise YamlError(line, "a second document starts here; give one")
                self.seen = True
            case yaml.ScalarEvent():
                self._scalar(event, line)
            case yaml.AliasEvent():
                self._alias(event, line)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._start(event, line)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                ended = self.stack.pop()
                self._remember(ended.anchor, ended.value, ended.nodes)
                self._put(ended.value, ended.nodes, ended.line)
            case _:
                pass  # Stream and document ends carry nothing.

    def _start(self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent, line: int) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise YamlError(line, f"is nested deeper than {MAX_DEPTH} levels")
        is_list = isinstance(event, yaml.SequenceStartEvent)
        if event.tag not in (None, "!", f"tag:yaml.org,2002:{'seq' if is_list else 'map'}"):
            raise YamlError(line, f"the tag `{event.tag}` is not allowed")
        if self._wants_key():
            raise YamlError(line, "a key must be a string, not a list or a mapping")
        self._count(1, line)
        path = self._path()
        self.lines.setdefault(path, line)
        self.stack.append(_Open([] if is_list else {}, path, line, event.anchor))

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        value = _scalar(event, line)
        self._count(1, line)
        if not self._wants_key():
            self._remember(event.anchor, value, 1)
        self._put(value, 1, line)

    def _alias(self, event: yaml.AliasEvent, line: int) -> None:
        if event.anchor not in self.anchors:
            inside = any(opened.anchor == event.anchor for opened in self.stack)
            what = "holds itself" if inside else "has no anchor before it"
            raise YamlError(line, f"the alias `*{event.anchor}` {what}")
        value, nodes = self.anchors[event.anchor]
        self._count(nodes, line)
        self._put(value, nodes, line)

    def _count(self, nodes: int, line: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise YamlError(line, f"holds more than {MAX_NODES} values, aliases expanded")

    def _remember(self, anchor: str | None, value: Tree, nodes: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, nodes)

    def _wants_key(self) -> bool:
        return (
            bool(self.stack) and isinstance(self.stack[-1].value, dict) and not self.stack[-1].key
        )

    def _path(self) -> str:
        if not self.stack:
            return ""
        top = self.stack[-1]
        step = top.key if isinstance(top.value, dict) else str(len(top.value))
        return f"{top.path}.{step}" if top.path else str(step)

    def _put(self, value: Tree, nodes: int, line: int) -> None:
        if not self.stack:
            self.result = value
            return
        top = self.stack[-1]
        if self._wants_key():
            top.key = self._new_key(top, value, line)
            self.lines[self._path()] = line
            return
        self.lines.setdefault(self._path(), line)
        top.nodes += nodes
        if isinstance(top.value, dict):
            top.value[top.key or ""] = value
            top.key = None
        else:
            top.value.append(value)

    def _new_key(self, top: _Open, value: Tree, line: int) -> str:
        if not isinstance(value, str) or not value:
            raise YamlError(line, f"a key must be a string, not `{shown(value)}`")
        if value == "<<":
            raise YamlError(line, "merge keys (`<<`) are not supported: write the keys out")
        if value in top.value:
            first = self.lines[f"{top.path}.{value}" if top.path else value]
            raise YamlError(line, f"the key `{value}` stands twice, first on line {first}")
        return value


def parse_yaml(text: str) -> Document:
    """The one document of a text.

    Raises YamlError: no YAML, no or several documents, a key twice, keys that are no
    strings, recursive aliases, more than MAX_BYTES, MAX_NODES or MAX_DEPTH.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise YamlError(1, "is not UTF-8 text") from None
    if size > MAX_BYTES:
        raise YamlError(1, f"is {size} bytes long; at most {MAX_BYTES} are read")
    builder = _Builder()
    for event, line in _events(text):
        builder.take(event, line)
    if not builder.seen:
        raise YamlError(1, "is empty")
    return Document(builder.result, builder.lines)


def _events(text: str) -> Iterator[tuple[yaml.Event, int]]:
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            mark = event.start_mark
            yield event, mark.line + 1 if mark else 1
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        where = f", column {at.column + 1}" if at else ""
        line = at.line + 1 if at else 1
        raise YamlError(line, f"is no valid YAML{where}: {error.problem}") from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise YamlError(1, f"is no valid YAML: {reason}") from None


def _scalar(event: yaml.ScalarEvent, line: int) -> Tree:
    text = event.value
    plain, _ = event.implicit
    match event.tag:
        case None if not plain or event.style in ("'", '"', "|", ">"):
            return text
        case "!" | "tag:yaml.org,2002:str":
            return text
        case None:
            return _resolved(text, line)
        case _:
            raise YamlError(line, f"the tag `{event.tag}` is not allowed")


def _resolved(text: str, line: int) -> Tree:
    if _NULL.fullmatch(text):
        return None
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    if _LONG_INTEGER.fullmatch(text):
        digits = len(text.lstrip("+-"))
        raise YamlError(line, f"holds an integer of {digits} digits; at most 40 are read")
    if _INTEGER.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text, base)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text
