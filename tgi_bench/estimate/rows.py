"""The door between this package's YAML tables and its dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from tgi_bench.errors import InputError

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, read by key and type.

    A value of another type is a defect of the package's own table: TypeError that names it.
    """

    name: str
    values: dict[str, Scalar]

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer; `default` where the row has no such key."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{self.name}: {key} is {value!r}, not an integer")
        return value

    def number(self, key: str) -> float | None:
        """A number; None where it is null or the row has no such key."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{self.name}: {key} is {value!r}, not a number")
        return float(value)

    def required_number(self, key: str) -> float:
        """A number that every row has."""
        value = self.number(key)
        if value is None:
            raise TypeError(f"{self.name}: {key} is missing")
        return value

    def flag(self, key: str) -> bool:
        """A boolean; False where the row has no such key."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise TypeError(f"{self.name}: {key} is {value!r}, not a boolean")
        return value

    def text(self, key: str) -> str:
        """A string that every row has."""
        value = self.values.get(key)
        if not isinstance(value, str):
            raise TypeError(f"{self.name}: {key} is {value!r}, not a string")
        return value


@cache
def table(file: str) -> dict[str, Row]:
    """Rows of a YAML table that lies beside this file, by name, in the file's order."""
    # Imported here: `tgi-bench --help` never reads a table.
    import yaml

    # The C loader reads the tables in a tenth of the time; PyYAML may be built without it.
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    rows: dict[str, dict[str, Scalar]] = yaml.load(text, Loader=loader)
    return {name: Row(name, values) for name, values in rows.items()}


def find(file: str, kind: str, name: str) -> Row:
    """The row of that name; InputError with the nearest names and all of them."""
    rows = table(file)
    if name in rows:
        return rows[name]
    by_lower = {known.lower(): known for known in rows}
    close = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    # "A100" is part of two rows, though A10 is more alike by its letters.
    parts = [key for key in by_lower if name and name.lower() in key]
    near = [by_lower[key] for key in dict.fromkeys((*parts, *close))][:3]
    hint = f"nearest: {', '.join(near)}; " if near else ""
    raise InputError(f"unknown {kind} {name!r}; {hint}known: {', '.join(rows)}")
