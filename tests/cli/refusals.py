"""Inputs that are refused, as rows of tests/golden/refusals.yaml: each with what is said of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cli.test_import_tables import DAMAGES

GIVEN = "given"
"""How the file is called, whatever its ending, that holds a row's `text`."""

_REPEATED = re.compile(r"<<(.+?) \* (\d+)>>", re.DOTALL)
_COUNTED = re.compile(r"<<(\d+)\.\.(\d+)>>")
_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_BAD_INPUT = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One input and its refusal.

    run: the words after `tgi-bench`, as a shell takes them. change: of the file that they name:
    what stands in it once, and what stands there instead. damage: of the file that they name, one
    of DAMAGES. text: of the file GIVEN, which they name. In all of these <<x * 9>> is x nine
    times, and <<1..9>> the numbers with commas between. env: environment variables.
    without: packages that are taken for not installed. said: what is printed; "" where nobody has
    looked yet. code: the exit code.
    """

    run: str
    change: dict[str, str] = field(default_factory=dict)
    damage: str = ""
    text: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    said: str = ""
    code: int = _BAD_INPUT

    @property
    def name(self) -> str:
        """The input on one line; no two rows have the same."""
        parts = [f"{old!r} -> {new!r}" for old, new in self.change.items()]
        parts += [self.damage] if self.damage else []
        parts += [] if self.text is None else [repr(self.text)]
        parts += [f"{name}={value!r}" for name, value in self.env.items()]
        parts += [f"without {name}" for name in self.without]
        return " | ".join((self.run, *parts))

    @property
    def needs_torch(self) -> bool:
        """Whether something else is said where torch is not installed."""
        return "--engine transformers" in self.run and not self.without

    @property
    def words(self) -> list[str]:
        """The words after `tgi-bench`."""
        return [_spelt_out(word) for word in shlex.split(self.run)]

    def file(self, folder: Path) -> tuple[Path, str] | None:
        """The file of the folder that holds the input, and its text; None: it is all in `run`."""
        names = [word for word in self.words if Path(word).stem == GIVEN]
        if self.text is not None:
            (name,) = names
            return folder / name, _spelt_out(self.text)
        if not self.change and not self.damage:
            return None
        (path,) = (folder / word for word in self.words if (folder / word).is_file())
        text = path.read_text(encoding="utf-8")
        if self.damage:
            return path, DAMAGES[self.damage](text)
        for old, new in self.change.items():
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
            text = text.replace(old, _spelt_out(new))
        return path, text


@dataclass(frozen=True, slots=True)
class Table:
    """files: what lies in the folder that every row runs in, by name. rows: by their names."""

    files: dict[str, str]
    rows: dict[str, Row]

    @classmethod
    def of(cls, text: str) -> Table:
        """From what `text` gives."""
        found: dict[str, Any] = yaml.load(text, Loader=_LOADER)
        rows = [Row(**row) for row in found["rows"]]
        by_name = {row.name: row for row in rows}
        assert len(by_name) == len(rows), "an input stands twice"
        return cls(found["files"], by_name)

    def with_rows(self, rows: Iterable[Row]) -> Table:
        """The same with these in the place of those of their names."""
        return Table(self.files, self.rows | {row.name: row for row in rows})

    def text(self) -> str:
        """YAML in one form: rows sorted by their input, what is not given left out."""
        rows = [_plain(row) for _, row in sorted(self.rows.items())]
        return yaml.dump(
            {"files": self.files, "rows": rows},
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            width=2**20,
        )


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are, and no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """Always: each row is whole."""
        return True


def _as_it_is(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _as_it_is)


def _plain(row: Row) -> dict[str, object]:
    given: dict[str, object] = {"run": row.run}
    for name in ("change", "damage", "text", "env", "without", "said"):
        if (value := getattr(row, name)) or (name == "text" and row.text is not None):
            given[name] = value
    return given if row.code == _BAD_INPUT else {**given, "code": row.code}


def _spelt_out(text: str) -> str:
    text = _REPEATED.sub(lambda found: found[1] * int(found[2]), text)
    return _COUNTED.sub(
        lambda found: ", ".join(map(str, range(int(found[1]), int(found[2]) + 1))), text
    )
