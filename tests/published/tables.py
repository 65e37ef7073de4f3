"""The published tables of tests/golden as imported runs."""

from __future__ import annotations

from pathlib import Path

from tgi_bench.analysis.run import Origin, Run
from tgi_bench.published.command import read_table, table_plan
from tgi_bench.published.reading import ImportedTable
from tgi_bench.published.verdict import judge_entries

GOLDEN = Path(__file__).parents[1] / "golden"
APRIL_10 = "torchcap_2025-04-10.rst"
APRIL_13 = "torchcap_2025-04-13.rst"
NAMES = ("h2ogpt.md", "bigcode.md", APRIL_10, APRIL_13)


def text_of(name: str) -> str:
    return (GOLDEN / f"published_{name}").read_text(encoding="utf-8")


def table_of(text: str) -> ImportedTable:
    table = read_table(text)
    assert table is not None
    return table


def run_of(text: str, name: str) -> Run:
    table = table_of(text)
    return Run(
        run_id="imported",
        plan=table_plan(table, name),
        origin=Origin.IMPORTED,
        environment=(("imported from", name), *table.facts),
        deployments=(),
        verdict=judge_entries(table.entries),
        finished=True,
        found=table.entries,
    )
