"""A document as JSON text, which may be read on a screen too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from tgi_bench.observation import TrialEnd

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]

_NOT_ASCII = re.compile(r"[^\n -~]")


def json_text(document: object) -> str:
    """Indented, ending in \\n; what is not printable in a text is escaped as JSON does it.

    Raises ValueError for a number that is none.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return _NOT_ASCII.sub(lambda found: _shown(found[0]), text)


def ended(end: TrialEnd | None) -> dict[str, Json]:
    """How a trial ended; outcome null where it did not."""
    if end is None:
        return {"outcome": None, "reason": ""}
    return {"outcome": end.outcome.value, "reason": end.reason}


def _shown(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]
