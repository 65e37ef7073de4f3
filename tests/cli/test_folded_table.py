"""Tables on narrow terminals: every cell is there, whole, and no line is wider."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.cli.command_line import CommandLine
from tests.report.example import simulated_run
from tests.report.load_example import load_run
from tests.report.made import print_summary
from tgi_bench.analysis.run import Run
from tgi_bench.cli.tables import print_folded
from tgi_bench.report.table import Table

TABLE = Table(
    ("Name", "Kind", "First", "Second", "Third"),
    (
        ("one", "a", "1.000 ms", "20.00 ms", "300.0 ms"),
        ("one", "b", "1.001 ms", "20.01 ms", "300.1 ms"),
        ("two", "a", "1.002 ms", "20.02 ms", "300.2 ms"),
    ),
    frozenset({2, 3, 4}),
)


def folded(table: Table, width: int, keys: int = 2, named: bool = False) -> list[str]:
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=True, color_system=None)
    print_folded(console, table, keys, named)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_what_has_room_is_one_table() -> None:
    assert folded(TABLE, 41) == [
        "Name  Kind     First    Second     Third",
        "one   a     1.000 ms  20.00 ms  300.0 ms",
        "one   b     1.001 ms  20.01 ms  300.1 ms",
        "two   a     1.002 ms  20.02 ms  300.2 ms",
    ]


def test_columns_without_room_stand_below_with_the_keys() -> None:
    assert folded(TABLE, 30) == [
        "Name  Kind     First    Second",
        "one   a     1.000 ms  20.00 ms",
        "one   b     1.001 ms  20.01 ms",
        "two   a     1.002 ms  20.02 ms",
        "Name  Kind     Third",
        "one   a     300.0 ms",
        "one   b     300.1 ms",
        "two   a     300.2 ms",
    ]


def test_keys_without_room_stand_above() -> None:
    assert folded(TABLE, 16) == [
        "Name one",
        "Kind     First",
        "a     1.000 ms",
        "b     1.001 ms",
        "Kind    Second",
        "a     20.00 ms",
        "b     20.01 ms",
        "Kind     Third",
        "a     300.0 ms",
        "b     300.1 ms",
        "Name two",
        "Kind     First",
        "a     1.002 ms",
        "Kind    Second",
        "a     20.02 ms",
        "Kind     Third",
        "a     300.2 ms",
    ]


def test_a_name_stands_by_itself_where_anything_has_no_room() -> None:
    assert folded(TABLE, 36, named=True)[:2] == ["one", "Kind     First    Second     Third"]


def test_a_cell_that_is_wider_than_all_goes_on_in_the_next_line() -> None:
    table = Table(("Name", "Figure"), (("x" * 25, "1"),), frozenset({1}))
    assert "".join(folded(table, 10, keys=1)).count("x") == 25


@pytest.mark.parametrize("run", [simulated_run(), load_run()], ids=["batches", "loads"])
@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_table_that_a_sweep_ends_with(run: Run, width: int) -> None:
    shown = []
    for wide in (width, 400):
        output = io.StringIO()
        terminal = {"force_terminal": True, "color_system": None}
        print_summary(Console(file=output, width=wide, **terminal), run)  # type: ignore[arg-type]
        shown.append(output.getvalue())
    narrow, whole = shown
    assert "\u2026" not in narrow
    assert max(map(len, narrow.splitlines())) <= width
    table = whole.strip().partition("\n\n")[0]
    assert set(table.split()) - {"Deployment"} <= set(narrow.split())


def test_estimates_of_a_wide_matrix(
    tgi_bench: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tgi_bench.cli.tables._WIDTH_OF_A_FILE", 80)
    ended = tgi_bench(
        *("estimate", "--model", "bigscience/bloomz-7b1-mt", "--model", "bigscience/bloomz-1b1"),
        *("--accelerator", "A100-40GB-SXM,H100-SXM", "--quantize", "none,bitsandbytes"),
        *("--num-shard", "1,2", "--batch-size", "1,16"),
    )
    assert "\u2026" not in ended.stdout
    tables = ended.stdout.partition("Time and energy")[2].partition("Prefill: the")[0]
    rows = [line for line in tables.splitlines() if "uncalibrated" in line]
    assert rows
    assert max(map(len, rows)) <= 80
    assert all(line.split()[:1] in (["none"], ["bitsandbytes"], ["1"], ["16"]) for line in rows)
