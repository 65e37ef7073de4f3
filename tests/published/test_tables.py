"""All published tables: found by their content, reported without their slips."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.published.tables import APRIL_10, APRIL_13, GOLDEN, NAMES, run_of, table_of, text_of
from tests.report.example import PUBLISHED, published_run
from tests.report.made import as_json, documents
from tgi_bench.analysis.accelerator_of import published_row
from tgi_bench.analysis.run import Run, TableLayout
from tgi_bench.errors import InputError, RunFileError, TableError
from tgi_bench.estimate.tables import accelerator_names, model_names
from tgi_bench.kinds.documents import rst_page
from tgi_bench.observation import Outcome, PublishedEntry
from tgi_bench.published.command import read, read_table, table_plan
from tgi_bench.published.page import entries_csv
from tgi_bench.published.tgi import parse
from tgi_bench.published.tgi_notes import tgi_notes
from tgi_bench.published.tgi_run import to_run_parts
from tgi_bench.published.torchcap import rst_tables

Golden = Callable[[str, str], None]


@pytest.mark.parametrize(
    ("name", "layout", "entries", "values"),
    [
        ("h2ogpt.md", TableLayout.H2OGPT, 30, 60),
        ("bigcode.md", TableLayout.BIGCODE, 66, 105),
        (APRIL_10, TableLayout.TORCHCAP, 12, 32),
        (APRIL_13, TableLayout.TORCHCAP, 24, 192),
    ],
)
def test_tables_are_found_by_their_content(
    name: str, layout: TableLayout, entries: int, values: int
) -> None:
    table = table_of(text_of(name))
    assert table.layout is layout
    assert len(table.entries) == entries
    assert sum(len(entry.values) for entry in table.entries) == values
    assert len({entry.entry_id for entry in table.entries}) == entries


@pytest.mark.parametrize("name", NAMES)
def test_golden_reports_of_the_tables(name: str, golden: Golden) -> None:
    pages = documents(run_of(text_of(name), name))
    assert list(pages) == ["report.md"]
    golden(f"imported_{name.partition('.')[0]}_report.md", pages["report.md"])


def test_golden_report_of_the_tgi_table_with_its_notes(golden: Golden) -> None:
    report = parse(PUBLISHED.read_text(encoding="utf-8"))
    notes = tgi_notes(report, *to_run_parts(report, "tgi_bloomz-7b1-mt.md"))
    noted = replace(published_run(), environment=notes)
    golden("imported_tgi_report.md", documents(noted)["report.md"])


OUR_PAGES = sorted(
    [
        *GOLDEN.glob("imported_*.*"),
        *GOLDEN.glob("loads_*.md"),
        *GOLDEN.glob("mixed_*.md"),
        *GOLDEN.glob("simulated_*.md"),
        *GOLDEN.glob("tasks_*.md"),
        *(GOLDEN.parents[1] / "results").glob("*/*/*.md"),
        *(GOLDEN.parents[1] / "results" / "local-cpu").glob("*.md"),
    ]
)


@pytest.mark.parametrize("page", OUR_PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_a_page_of_tgi_bench_is_not_read_back(page: Path) -> None:
    """Its figures are rounded there and whole in run.db."""
    text = page.read_text(encoding="utf-8")
    with pytest.raises(TableError, match="tgi-bench wrote this page of a run: its figures are in"):
        read(text, page.name)


@pytest.mark.parametrize("name", [*NAMES, "tgi_bloomz-7b1-mt.md"])
def test_what_others_wrote_is_read_though_it_speaks_of_verdicts(name: str) -> None:
    text = f"{text_of(name)}\n\nVerdict: as others found, it is **Measured** well.\n"
    assert read(text, name) == read(text_of(name), name)


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_figure_changes_the_digest(name: str) -> None:
    table = table_of(text_of(name))
    first = table.entries[0]
    value = replace(first.values[0], value=first.values[0].value * 2)
    changed = replace(first, values=(value, *first.values[1:]))
    other = replace(table, entries=(changed, *table.entries[1:]))
    assert table_plan(table, "a.md").digest != table_plan(other, "a.md").digest
    assert table_plan(table, "a.md") == table_plan(table, "elsewhere/a.md")


def test_what_is_not_a_known_table_is_left_to_the_reader_of_steps() -> None:
    assert read_table(PUBLISHED.read_text(encoding="utf-8")) is None
    assert read_table("") is None
    assert read_table("| a | b |\n|---|---|\n| 1 | 2 |\n") is None
    # A page of steps may hold a table of estimates beside them.
    mixed = f"# Tensor Parallel (TP) - 2 GPUs\n\n{text_of('h2ogpt.md')}"
    assert read_table(mixed) is None
    with pytest.raises(TableError, match="or a table of h2oGPT, bigcode-inference-benchmark"):
        parse("")


def test_two_kinds_of_tables_in_one_file_are_refused() -> None:
    with pytest.raises(TableError, match="of h2oGPT and TorchCAP in one file: import one at a"):
        read_table(text_of("h2ogpt.md") + "\n\n" + text_of(APRIL_10))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("|   bits | gpus ", "|   bitz | gpus ", "line 4: a table with `gpus` but without"),
        ("[tokens/sec]", "[tokens/h]", "line 4: expected the columns bits"),
        ("### Number of GPUs: 4", "### GPUs: 4", "expected `2 x` and a GPU's name, found `4 x"),
        ("Backend: transformers", "Backend: vllm", "expected backend transformers, found `vllm`"),
        ("|     16 | 1 x", "|     12 | 1 x", "line 6: expected 16, 8 or 4 bits, found `12`"),
    ],
)
def test_a_table_of_h2ogpt_that_does_not_parse(old: str, new: str, message: str) -> None:
    with pytest.raises(TableError) as error:
        read_table(text_of("h2ogpt.md").replace(old, new, 1))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\nsec\n", "\n\n", "expected `tokens/sec | msec/token` or `sec` above one table each"),
        ("|  fp32 |", "|  fp31 |", "line 34: expected the columns fp32, bf16"),
        ("| 2          |", "| 1          |", "the same in both tables"),
        ("| 2.21  |", "| oom   |", "found `45.31 | 22.07` and `oom`"),
        ("45.31 \\| 22.07", "45.31 22.07", "found `45.31 22.07` and `2.21`"),
        ("A100 80GB", "", "expected the accelerator's name"),
    ],
)
def test_a_table_of_bigcode_that_does_not_parse(old: str, new: str, message: str) -> None:
    text = text_of("bigcode.md")
    assert old in text
    with pytest.raises(TableError) as error:
        read_table(text.replace(old, new, 1))
    assert message in str(error.value)


def test_a_missing_figure_of_h2ogpt_is_out_of_memory() -> None:
    text = text_of("h2ogpt.md").replace("31.8619", "    OOM").replace("41.9433", "   OOM ")
    table = table_of(text)
    first = table.entries[0]
    assert first.values == ()
    assert first.end is not None
    assert first.end.outcome is Outcome.OUT_OF_MEMORY
    assert dict(table.facts)["Doubtful: OOM"].endswith(": 1 of 30 rows")
    assert "Doubtful: OOM" not in dict(table_of(text_of("h2ogpt.md")).facts)


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_is_known_to_the_estimate(name: str) -> None:
    for entry in table_of(text_of(name)).entries:
        assert entry.model in model_names()
        assert published_row(entry.accelerator) in accelerator_names()


def test_golden_estimates_beside_measurements_in_restructured_text(golden: Golden) -> None:
    for name in (APRIL_10, APRIL_13):
        run = run_of(text_of(name), name)
        golden(f"imported_{name.partition('.')[0]}_report.rst", rst_page(run, rst_tables(run)))
    run = run_of(text_of("h2ogpt.md"), "h2ogpt.md")
    unknown = tuple(replace(entry, accelerator="abacus") for entry in run.of(PublishedEntry))
    with pytest.raises(InputError, match="nothing of it can be estimated"):
        rst_page(run.having(PublishedEntry, unknown), rst_tables(run))


@pytest.mark.parametrize("name", NAMES)
def test_other_documents(name: str) -> None:
    run = run_of(text_of(name), name)
    rows = list(csv.DictReader(io.StringIO(entries_csv(run))))
    assert {row["entry_id"] for row in rows} == {e.entry_id for e in run.of(PublishedEntry)}
    with_figures = [row for row in rows if row["value"]]
    assert len(with_figures) == sum(len(e.values) for e in run.of(PublishedEntry))
    assert {row["kind"] for row in with_figures} <= {"measured", "estimated"}
    entries = json.loads(as_json(run))["entries"]
    assert [e["entry_id"] for e in entries] == [e.entry_id for e in run.of(PublishedEntry)]
    assert sum(len(e["values"]) for e in entries) == len(with_figures)
    assert {e["accelerator_row"] for e in entries} <= {
        *("RTX-A5000", "RTX-A6000", "RTX-3090", "RTX-4090", "RTX-6000-Ada", "A100-80GB-SXM"),
    }


def _with_environment(run: Run, rows: tuple[tuple[str, str], ...]) -> Run:
    return replace(run, environment=rows)


def test_a_run_that_names_no_layout_is_refused() -> None:
    run = run_of(text_of("h2ogpt.md"), "h2ogpt.md")
    for rows in ((), (("Table layout", "another"),)):
        with pytest.raises(RunFileError, match="names no layout"):
            documents(_with_environment(run, rows))


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_name_what_is_wrong(name: str) -> None:
    checks = {c.name: c for c in run_of(text_of(name), name).verdict.checks}
    assert not checks["figures are what the table says"].passed
    assert checks["the table has figures"].passed
    assert checks["prompt and new tokens are known"].passed is (name != "h2ogpt.md")
    assert checks["at least 3 runs"].passed is ("torchcap" not in name)


@given(
    st.sampled_from(NAMES),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 60),
    st.text(alphabet="|+-= 0.%xoOMna\n", max_size=8),
)
def test_a_damaged_file_is_read_or_refused(
    name: str, place: float, length: int, instead: str
) -> None:
    text = text_of(name)
    start = int(place * len(text))
    # Any other exception fails this test.
    with suppress(TableError):
        table = read_table(text[:start] + instead + text[start + length :])
        if table is not None:
            assert all(v.value > 0 for e in table.entries for v in e.values)
