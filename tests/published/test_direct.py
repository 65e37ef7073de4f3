"""Runs of direct mode in two published layouts: which figures stand where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis import task_samples as s
from tests.published.tables import run_of, text_of
from tests.report.made import documents
from tgi_bench.analysis.run import LAYOUT, Run, TableLayout
from tgi_bench.errors import InputError, TableError
from tgi_bench.kinds.direct.figures import DirectRecord, TaskSummary
from tgi_bench.observation import PublishedEntry, PublishedMetric
from tgi_bench.published.bigcode import bigcode_layout
from tgi_bench.published.command import read_table
from tgi_bench.published.direct import generate_entries, printed, summary_entries
from tgi_bench.published.h2ogpt import h2ogpt_layout
from tgi_bench.published.reading import PrintedGrid, items
from tgi_bench.trials.direct import Dtype, GenerateTask, TaskDevice

Golden = Callable[[str, str], None]
Runs = Sequence[Run]


def _on_cpu() -> Run:
    trials = [s.model(dtype, device=TaskDevice.CPU) for dtype in (Dtype.FP32, Dtype.BF16)]
    found = [(s.generate(1, m), s.task_runs(1, 9), s.OK) for m in trials]
    return s.run_of(found, "cpu", "cpu")


def _shared(**how: int) -> Run:
    made = s.model(Dtype.INT8, **how)
    return s.run_of(
        [(s.generate(1, made), s.task_runs(), s.OK), (s.summarize(made), s.summary_runs(), s.OK)]
    )


def _too_large() -> Run:
    made = s.model(Dtype.FP32)
    return s.run_of(
        [(s.generate(1, made), [], s.MEMORY), (s.summarize(made), [], s.MEMORY)], loaded=False
    )


def _quantized() -> Run:
    models = [s.model(dtype) for dtype in (Dtype.FP16, Dtype.INT8, Dtype.INT4)]
    return s.run_of([(s.generate(1, m), s.task_runs(), s.OK) for m in models])


SETS: list[list[Run]] = [
    [s.whole_run()],
    [s.whole_run(), s.whole_run("NVIDIA H100 80GB HBM3", 3)],
    [s.whole_run(), s.whole_run(slower=2), s.whole_run(slower=3)],
    [_on_cpu()],
    [_on_cpu(), s.whole_run()],
    [_shared(num_shard=2), _shared(layer_split=2), s.whole_run()],
    [_quantized()],
    [s.whole_run(), _too_large()],
]


def _grids(text: str) -> list[PrintedGrid]:
    return [item for item in items(text) if isinstance(item, PrintedGrid)]


def _figures(grids: Sequence[PrintedGrid], first: int, last: int | None = None) -> list[str]:
    """What stands in those columns, but for words and blanks."""
    cells = (cell for grid in grids for row in grid.rows for cell in row.cells[first:last])
    parts = (part for cell in cells for part in cell.split(" | "))
    return sorted(part for part in parts if part[:1].isdigit())


def _printed(entries: Sequence[PublishedEntry]) -> list[str]:
    return sorted(value.printed for entry in entries for value in entry.values)


@pytest.mark.parametrize("runs", SETS)
def test_every_figure_stands_in_a_cell_of_its_own(runs: Runs) -> None:
    rates, seconds = _grids(bigcode_layout(runs))
    assert rates.headers[0].cells == seconds.headers[0].cells
    entries = [entry for run in runs for entry in generate_entries(run)]
    assert _figures([rates, seconds], 1) == _printed(entries)
    columns = rates.headers[0].cells[1:]
    assert len(set(columns)) == len(columns) == sum(len(run.of(DirectRecord)) for run in runs)
    rows = [entry for run in runs for entry in summary_entries(run)]
    grids = _grids(h2ogpt_layout(runs))
    assert sum(len(grid.rows) for grid in grids) == len(rows)
    assert _figures(grids, 2, 5) == _printed(rows)


@pytest.mark.parametrize("runs", SETS)
def test_a_layout_is_not_read_back(runs: Runs) -> None:
    for text in (bigcode_layout(runs), h2ogpt_layout(runs)):
        with pytest.raises(TableError, match="tgi-bench wrote this page of a run"):
            read_table(text)


@pytest.mark.parametrize(
    ("layout", "made", "written"),
    [
        (TableLayout.BIGCODE, generate_entries, bigcode_layout),
        (TableLayout.H2OGPT, summary_entries, h2ogpt_layout),
    ],
)
def test_a_layout_that_was_imported_once_is_reported_as_it_was(
    layout: TableLayout,
    made: Callable[[Run], tuple[PublishedEntry, ...]],
    written: Callable[[Runs], str],
) -> None:
    run = s.whole_run()
    entries = tuple(replace(e, entry_id=str(n)) for n, e in enumerate(made(run)))
    imported = replace(
        run_of(text_of("bigcode.md"), "bigcode.md"),
        environment=((LAYOUT, layout.value),),
    ).having(PublishedEntry, entries)
    page = documents(imported)["report.md"]
    tables = written([run]).partition("\n- ")[0].partition("\n**Verdict")[0].rstrip()
    assert tables in page


@pytest.mark.parametrize("name", ["bigcode", "h2ogpt"])
def test_golden_layouts(name: str, golden: Golden) -> None:
    layouts = {"bigcode": bigcode_layout, "h2ogpt": h2ogpt_layout}
    golden(f"tasks_{name}.md", layouts[name]([s.whole_run()]))
    several = [s.whole_run(), s.whole_run("NVIDIA H100 80GB HBM3", 3), _on_cpu()]
    golden(f"tasks_{name}_merged.md", layouts[name](several))


def test_figures_of_the_layouts() -> None:
    """Of bf16 at batch size 4: 3 x 12 tokens in 31 ms."""
    run = s.whole_run()
    (entry,) = (e for e in generate_entries(run) if (e.dtype, e.batch_size) == ("bfloat16", 4))
    assert entry.value(PublishedMetric.NEW_TOKENS_PER_S) == pytest.approx(36 / 0.031, rel=1e-5)
    assert entry.value(PublishedMetric.MS_PER_NEW_TOKEN) == pytest.approx(31 / 36, rel=1e-5)
    assert entry.value(PublishedMetric.MS_PER_DECODE_STEP) == 2.0
    assert entry.value(PublishedMetric.GENERATE_S) == pytest.approx(0.031 / 3, rel=1e-3)
    (first, second) = summary_entries(run)
    assert (first.accelerator, first.dtype) == ("NVIDIA L4 (23033 MiB)", "float32")
    assert first.value(PublishedMetric.SUMMARIZE_S) == 0.033
    assert second.value(PublishedMetric.SUMMARIZE_S) == 0.017
    assert second.value(PublishedMetric.SUMMARIZE_NEW_TOKENS) == 16
    assert second.value(PublishedMetric.NEW_TOKENS_PER_S) == pytest.approx(9 / 0.031, rel=1e-5)


def test_a_cell_is_oom_where_memory_ran_out_and_blank_where_nothing_was_tried() -> None:
    text = bigcode_layout([s.whole_run()])
    rows = [line.replace(" ", "") for line in text.splitlines() if line.startswith("|")]
    assert any(row.startswith("|8|oom|") for row in rows)
    assert any(row.startswith("|16||") for row in rows)
    assert rows[-1] == "|32||oom|"
    assert "| OOM |" in " ".join(h2ogpt_layout([_too_large(), s.whole_run()]).split())


def test_runs_that_do_not_compare_are_refused() -> None:
    run = s.whole_run()
    with pytest.raises(InputError, match="not of direct mode"):
        bigcode_layout([run.having(TaskSummary, ())])
    other = s.model(Dtype.BF16, model="org/other")
    elsewhere = s.run_of([(s.generate(1, other), s.task_runs(), s.OK)])
    with pytest.raises(InputError, match="one model, and these differ"):
        bigcode_layout([run, elsewhere])
    longer = replace(s.generate(1), task=GenerateTask(4, 4, 1, None))
    with pytest.raises(InputError, match="4 prompt tokens, 4 new tokens"):
        bigcode_layout([run, s.run_of([(longer, s.task_runs(), s.OK)])])
    with pytest.raises(InputError, match="batch size 1"):
        h2ogpt_layout([run, s.run_of([(longer, s.task_runs(), s.OK)])])
    with pytest.raises(InputError, match="no run has any"):
        bigcode_layout([s.run_of([(s.summarize(), s.summary_runs(), s.OK)])])


@given(st.floats(1e-4, 1e8))
def test_a_printed_figure_is_close_and_reads_back(value: float) -> None:
    text = printed(value)
    assert float(text) == pytest.approx(
        value, rel=6e-3 if value < 1e-3 else 5e-4 if value < 0.1 else 5e-6
    )
    assert printed(float(text)) == text
