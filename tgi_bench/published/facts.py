"""What is known of published tables beyond their figures: facts.yaml beside this file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tgi_bench.analysis.run import CORRECTED, DOUBTFUL

Facts = tuple[tuple[str, str], ...]
"""Name and value, for the environment of an imported run."""

_BEGIN = {"name": "", "corrected": CORRECTED, "doubtful": DOUBTFUL}


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one table. source: where it was found. rows, reasons: as facts.yaml has
    them; KeyError where a text names what the caller did not find."""

    source: str
    rows: tuple[dict[str, str], ...]
    reasons: dict[str, str]

    def facts(self, **found: object) -> Facts:
        """Every row that is of each file, and those of what was found in this one."""
        words = {**self.reasons, **found}
        return tuple(
            (f"{begin}{row[key]}", row["text"].format_map(words))
            for row in self.rows
            for key, begin in _BEGIN.items()
            if key in row and ("when" not in row or row["when"] in found)
        )

    def reason(self, name: str, **found: object) -> str:
        """Why a figure is not what is printed, or an entry is in doubt."""
        return self.reasons[name].format_map(found)


@cache
def known(table: str) -> Known:
    """Of the table of that name; KeyError for an unknown one."""
    # Imported here: `tgi-bench --help` never reads a table.
    import yaml

    text = files(__package__).joinpath("facts.yaml").read_text(encoding="utf-8")
    rows = yaml.safe_load(text)[table]
    return Known(rows["source"], tuple(rows["facts"]), rows.get("reasons", {}))
