"""What is asked of every text that tgi-bench writes, whatever a server said."""

from __future__ import annotations

import csv
import io
import json
import re

from markdown_it import MarkdownIt

SNIPPETS = (
    "\x1b[2J\x1b[31mred",
    "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "\x00\x07\x08\x7f\x9b31m",
    "\u202eevil\u2066\u200f\u2028\ufeff",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)> <!-- x --> </td> &lt;b&gt;",
    "<https://evil.example>",
    "a|b\\|c\\\\|d",
    "`=cmd()` ``x` ```",
    "[a](http://evil.example) ![i](http://evil.example/i.png) [b][evil]",
    "x\n# heading\n\n- list\n> quoted\n```\n<b>\n[evil]: http://evil.example\n",
    "x\n\n| a | b |\n|---|---|\n",
    "x\r\n.. raw:: html\r\n\r\n   <b>",
    "=cmd|'/C calc'!A0",
    "@SUM(1)",
    "+1+cmd()",
    "-2+cmd()",
    "\t=1+1",
    "  =1+1",
    "\uff1d1+1",
    "# heading",
    "- item",
    ".. raw:: html",
    "1. one",
    "x::",
    "\ud800",
    "\\",
)
"""What a hostile server says: each does something somewhere unless it is kept from it."""

HOSTILE = " ".join(SNIPPETS)
_SAID_BY_RICH = re.compile(r"\x1b\[(?:[0-9;]*[mKABCDGHJ]|\?25[lh])|\r")
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")


def assert_inert(name: str, text: str) -> None:
    """By the ending of a file's name."""
    assert_printable(text)
    match name.rpartition(".")[2]:
        case "md":
            assert_inert_markdown(text)
        case "csv":
            assert_inert_csv(text)
        case "json":
            assert isinstance(json.loads(text), dict)
        case "rst":
            assert_inert_rst(text)
        case other:
            raise AssertionError(f"what is {other}?")


def assert_printable(text: str) -> None:
    """Nothing but characters and line ends."""
    strange = {c for c in text if not c.isprintable()} - {"\n"}
    assert not strange, strange


def assert_screen(text: str) -> None:
    """Of a terminal: rich's own colours and moves, and else nothing that is not printable."""
    assert "\x1b[2J" not in text
    assert_printable(_SAID_BY_RICH.sub("", text))


def assert_inert_markdown(text: str) -> None:
    """As CommonMark with tables reads it: no HTML, no links but to our pages, no strange heading,
    every row with the cells of its header."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    cells: list[int] = []
    for token in tokens:
        assert token.type != "html_block", token.content
        for part in token.children or ():
            assert part.type not in ("html_inline", "image"), part.content
            if part.type == "link_open":
                assert re.fullmatch(r"[\w.-]+\.md", str(part.attrGet("href")))
        if token.type == "table_open":
            cells = []
        elif token.type == "tr_open":
            cells.append(0)
        elif token.type in ("td_open", "th_open"):
            cells[-1] += 1
        elif token.type == "table_close":
            assert len(set(cells)) == 1, cells
        elif token.type == "inline" and token.content == "heading":
            raise AssertionError("a heading of somebody else's")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == sum(t.type == "tr_open" for t in tokens) + sum(
        t.type == "table_open" for t in tokens
    )
    for row in rows:
        assert re.search(r"(?<!\\)(?:\\\\)*\|$", row), row


def assert_inert_csv(text: str) -> None:
    """Rows as long as their header, and no cell that a spreadsheet would compute."""
    for table in text.split("\n\n"):
        header, *rows = csv.reader(io.StringIO(table))
        for row in rows:
            assert len(row) == len(header), row
            for cell in row:
                assert _NUMBER.fullmatch(cell) or not _FORMULA.match(cell), cell


def assert_inert_rst(text: str) -> None:
    """No line begins a directive, and grids are whole."""
    for line in text.splitlines():
        assert not re.match(r"\s*(?:\|\s+)?\.\. ", line), line
    grids = [line for line in text.splitlines() if line.startswith(("+", "|"))]
    assert all(line.endswith(("+", "|")) for line in grids)
