"""A page of Markdown as it leaves the house: whatever a server said in it is text.

Our own pages hold no HTML but `<br>` in the head of a published table, and no links but those to
pages beside them; so what looks like either is somebody else's. That no text of somebody else's
begins a line is up to the pages: it is on one line, behind words of ours.
"""

from __future__ import annotations

import re

from tgi_bench.inert import one_line

_FENCE = "```"
_TAG = re.compile(r"(?<!\\)<(?!br>)(?=[A-Za-z/!?])")
_LINK = re.compile(r"(?<!\\)\](?=[(\[](?![\w./-]+\.md\)))")
_BLOCK = re.compile(r"(?:[#>|=*+~_`\[-]|\d{1,9}[.)])", re.ASCII)
_BARS = re.compile(r"(\\*)\|")


def page(text: str) -> str:
    """The whole page; what is within a fence of ours stays as it is."""
    lines, fenced = [], False
    for line in map(one_line, text.split("\n")):
        if line.startswith(_FENCE):
            fenced = not fenced
        # Cells of a table were made inert before they were laid out.
        plain = fenced or line.startswith(("|", _FENCE))
        lines.append(line if plain else inline(line))
    return "\n".join(lines)


def cell(text: str) -> str:
    """A cell of a table: it cannot hold a line break, and a bare | would end it."""
    plain = inline(one_line(" ".join(text.split())))
    return _BARS.sub(lambda bar: f"{bar[1] * 2}\\|", plain)


def inline(text: str) -> str:
    """A line in which no tag, no link and no code begins that does not end in it."""
    inert = _LINK.sub(r"\\]", _TAG.sub(r"\\<", text))
    if inert.replace("\\`", "").count("`") % 2:
        head, _, tail = inert.rpartition("`")
        inert = f"{head}\\`{tail}"
    return inert


def begins_line(text: str) -> str:
    """The text where a line begins with it: no heading, list, quotation or fence."""
    found = _BLOCK.match(text)
    return f"{text[: found.end() - 1]}\\{text[found.end() - 1 :]}" if found else text
