"""What is known of published tables beyond their figures is data: whole, sourced, and all used."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from string import Formatter

import pytest
import yaml

import tgi_bench
from tgi_bench.published.facts import known

FILE = Path(tgi_bench.__file__).parent / "published" / "facts.yaml"
TABLES = ("tgi", "h2ogpt", "bigcode", "torchcap")


def _words(text: str) -> set[str]:
    return {word for _, word, _, _ in Formatter().parse(text) if word is not None}


def test_the_file_holds_these_tables_and_is_packaged() -> None:
    assert tuple(yaml.safe_load(FILE.read_text(encoding="utf-8"))) == TABLES
    setup = tomllib.loads((FILE.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = setup["tool"]["setuptools"]["package-data"]["tgi_bench"]
    assert any(FILE in FILE.parents[1].glob(pattern) for pattern in patterns)


@pytest.mark.parametrize("table", TABLES)
def test_every_fact_has_a_source_a_name_and_a_text(table: str) -> None:
    said = known(table)
    assert re.search(r"repositor(y|ies) [\w-]+/[\w.-]+", said.source)
    for row in said.rows:
        assert len(row.keys() & {"name", "corrected", "doubtful"}) == 1
        assert row.keys() <= {"name", "corrected", "doubtful", "when", "text"}
        assert row["text"] == " ".join(row["text"].split())
        assert not row["text"].endswith(".")


@pytest.mark.parametrize("table", TABLES)
def test_a_row_of_some_files_only_is_left_out_of_others(table: str) -> None:
    said = known(table)
    conditions = {row["when"] for row in said.rows if "when" in row}
    words = {word for row in said.rows for word in _words(row["text"])} - said.reasons.keys()
    whole = said.facts(**dict.fromkeys(conditions | words, "XYZ"))
    assert len(whole) == len(said.rows)
    assert len({name for name, _ in whole}) == len(whole)
    least = said.facts(**dict.fromkeys(words - conditions, "XYZ"))
    assert len(least) == sum("when" not in row for row in said.rows)
    assert {"Tables written by"} <= {name for name, _ in least}


def test_a_word_that_was_not_found_is_no_silent_gap() -> None:
    with pytest.raises(KeyError, match="watts"):
        known("torchcap").reason("rated_power")
    with pytest.raises(KeyError, match="size"):
        known("torchcap").facts()
