"""Units, columns and grids, against cells written by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tgi_bench.analysis.samples import Figure
from tgi_bench.report.column import Column, Grid, fields, of
from tgi_bench.report.table import markdown
from tgi_bench.report.units import (
    ASKED,
    COUNT,
    FINE_MS,
    GIB,
    MS,
    NAME,
    PLAIN,
    RATE,
    SHARE,
    TOKENS_PER_S,
    Unit,
    Value,
)


@pytest.mark.parametrize(
    ("unit", "value", "page", "screen"),
    [
        (PLAIN, None, "-", "-"),
        (PLAIN, 3, "3", "3"),
        (PLAIN, 0.25, "0.25", "0.25"),
        (NAME, "num_shard-1", "num_shard-1", "num_shard-1"),
        (COUNT, 12345, "12,345", "12,345"),
        (COUNT, 0, "0", "0"),
        (COUNT, None, "0", "0"),
        (SHARE, 0.99953, "99.95%", "99.95%"),
        (MS, 40_400_000, "40.40 ms", "40.4 ms"),
        (MS, 42_600, "0.04 ms", "0.0 ms"),
        (MS, 1_400_000_000, "1400.00 ms", "1.4 s"),
        (MS, None, "-", "-"),
        (FINE_MS, 42_600, "0.043 ms", "0.0 ms"),
        (FINE_MS, 1_000_000, "1.00 ms", "1.0 ms"),
        (FINE_MS, Figure(12.3e6, 11.9e6, 12.8e6), "12.30 ms [11.90, 12.80]", "12.3 ms"),
        (FINE_MS, Figure(0.9e6, 0.8e6, 1.1e6), "0.900 ms [0.800, 1.100]", "0.9 ms"),
        (FINE_MS, Figure(12.3e6, None, None), "12.30 ms", "12.3 ms"),
        (RATE, Figure(12.3, 11.9, 12.75), "12.30 [11.90, 12.75]", "12.3"),
        (RATE, Figure(0, 0, 0), "0.00 [0.00, 0.00]", "0.0"),
        (TOKENS_PER_S, 7324.0, "7324.00 tokens/s", "7324.0"),
        (GIB, 3 * 2**29, "1.50 GiB", "1.50 GiB"),
    ],
)
def test_a_value_in_its_unit(unit: Unit, value: Value, page: str, screen: str) -> None:
    assert unit.text(value) == page
    assert unit.short(value) == screen


@dataclass(frozen=True, slots=True)
class Part:
    count: int
    middle: Figure | None


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    part: Part | None
    met: bool | None = None

    def of_it(self) -> Part | None:
        return self.part


PART: tuple[Column[Part], ...] = (
    Column("samples", lambda p: p.count, "Count", COUNT),
    Column("p50", lambda p: p.middle, "p50", FINE_MS, "Median", interval=True),
)
COLUMNS: tuple[Column[Row], ...] = (
    Column("name", lambda r: r.name, "Name", NAME, "Who"),
    *of(Row.of_it, PART, "ttft_"),
    Column("met", lambda r: r.met),
    Column("hidden", lambda r: 0.5, csv=False),
    Column("", lambda r: len(r.name), "Letters", ASKED),
)
ROWS = (
    Row("a", Part(2, Figure(12.3e6, 11.9e6, 12.8e6)), True),
    Row("bb", Part(1, Figure(1e6, None, None)), False),
    Row("=c", Part(0, None)),
    Row("d", None),
)


def _word(row: Row) -> str | None:
    return "OOM" if row.name == "d" else None


def test_a_page_has_the_columns_with_a_title() -> None:
    assert markdown(Grid(COLUMNS, ROWS, _word).page()) == (
        "| Name | Count |                     p50 | Letters |\n"
        "|------|------:|------------------------:|--------:|\n"
        "| a    |     2 | 12.30 ms [11.90, 12.80] |       1 |\n"
        "| bb   |     1 |                 1.00 ms |       2 |\n"
        "| =c   |     0 |                       - |       2 |\n"
        "| d    |   OOM |                     OOM |       1 |\n"
    )


def test_the_screen_has_those_with_a_title_there() -> None:
    table = Grid(COLUMNS, ROWS, _word).screen()
    assert table.headers == ("Who", "Median")
    assert table.rows == (("a", "12.3 ms"), ("bb", "1.0 ms"), ("=c", "-"), ("d", "OOM"))
    assert table.right == {1}


def test_csv_has_those_with_a_key_and_of_a_figure_three_cells() -> None:
    assert Grid(COLUMNS, ROWS).csv() == (
        "name,ttft_samples,ttft_p50_ns,ttft_p50_low_ns,ttft_p50_high_ns,met\n"
        "a,2,12300000.0,11900000.0,12800000.0,true\n"
        "bb,1,1000000.0,,,false\n"
        "'=c,0,,,,\n"
        "d,0,,,,\n"
    )
    assert (
        Grid(COLUMNS, ROWS, lambda row: "" if row.part is None else None).csv().endswith("d,,,,,\n")
    )


def test_json_has_a_figure_with_its_ends() -> None:
    assert json.loads(json.dumps(fields(COLUMNS[:5], ROWS[0]))) == {
        "name": "a",
        "ttft_samples": 2,
        "ttft_p50_ns": {"value": 12.3e6, "low": 11.9e6, "high": 12.8e6},
        "met": True,
        "hidden": 0.5,
    }
    assert fields(COLUMNS[1:3], ROWS[3]) == {"ttft_samples": None, "ttft_p50_ns": None}


def test_a_word_in_the_place_of_a_value() -> None:
    column: Column[Row] = Column("", lambda r: r.met or "of " + r.name, "Met", screen="Met")
    assert Grid([column], ROWS[1:2]).page().rows == (("of bb",),)
    assert Grid([column], ROWS[1:2]).screen().rows == (("of bb",),)


def test_a_lifted_column_is_the_same_but_for_its_key() -> None:
    (column,) = of(Row.of_it, PART[1:], "itl_")
    assert (column.name, column.title, column.screen) == ("itl_p50_ns", "p50", "Median")
    assert (column.unit, column.interval) == (FINE_MS, True)
    assert column.value(ROWS[0]) == Figure(12.3e6, 11.9e6, 12.8e6)
    assert column.value(ROWS[3]) is None
