"""Reports of direct mode, and its two layouts: what they show, and that they read back equal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis import task_samples as s
from tests.published.tables import run_of as imported
from tests.published.tables import table_of
from tgi_bench.analysis.run import Run, TableLayout
from tgi_bench.errors import InputError, TableError
from tgi_bench.observation import PublishedEntry, PublishedMetric
from tgi_bench.plan.task_trial import Device, Dtype, GenerateTask
from tgi_bench.published.bigcode_layout import bigcode_entries, bigcode_layout
from tgi_bench.published.direct import printed
from tgi_bench.published.h2ogpt_layout import h2ogpt_entries, h2ogpt_layout
from tgi_bench.published.page import imported_documents
from tgi_bench.report.documents import documents
from tgi_bench.report.json_document import as_json
from tgi_bench.report.task_documents import tasks_csv

Golden = Callable[[str, str], None]
Runs = Sequence[Run]


def _same(entries: Sequence[PublishedEntry]) -> list[PublishedEntry]:
    """All but an end's reason, which the tables do not print."""
    return [replace(e, end=e.end and replace(e.end, reason="")) for e in entries]


def _on_cpu() -> Run:
    trials = [s.model(dtype, device=Device.CPU) for dtype in (Dtype.FP32, Dtype.BF16)]
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


@pytest.mark.parametrize("runs", SETS)
def test_both_layouts_read_back_equal(runs: Runs) -> None:
    for layout, entries, text in (
        (TableLayout.BIGCODE, bigcode_entries(runs), bigcode_layout(runs)),
        (TableLayout.H2OGPT, h2ogpt_entries(runs), h2ogpt_layout(runs)),
    ):
        table = table_of(text)
        assert table.layout is layout
        assert dict(table.facts)["Tables written by"] == "tgi-bench"
        assert _same(table.entries) == _same(entries)
        assert len({entry.entry_id for entry in entries}) == len(entries)
        # The report of what was imported holds the same tables, and reads back once more.
        page = imported_documents(imported(text, "ours.md"))["report.md"]
        again = table_of(page)
        assert [e.values for e in again.entries] == [e.values for e in entries]


@pytest.mark.parametrize("name", ["bigcode", "h2ogpt"])
def test_golden_layouts(name: str, golden: Golden) -> None:
    layouts = {"bigcode": bigcode_layout, "h2ogpt": h2ogpt_layout}
    golden(f"tasks_{name}.md", layouts[name]([s.whole_run()]))
    several = [s.whole_run(), s.whole_run("NVIDIA H100 80GB HBM3", 3), _on_cpu()]
    golden(f"tasks_{name}_merged.md", layouts[name](several))


def test_golden_report(golden: Golden) -> None:
    pages = documents(s.whole_run())
    assert list(pages) == ["report.md"]
    golden("tasks_report.md", pages["report.md"])


def test_figures_of_the_layouts() -> None:
    """Of bf16 at batch size 4: 3 x 12 tokens in 31 ms."""
    run = s.whole_run()
    (entry,) = (e for e in bigcode_entries([run]) if e.entry_id == "bf16-b4")
    assert entry.value(PublishedMetric.NEW_TOKENS_PER_S) == pytest.approx(36 / 0.031, rel=1e-5)
    assert entry.value(PublishedMetric.MS_PER_NEW_TOKEN) == pytest.approx(31 / 36, rel=1e-5)
    assert entry.value(PublishedMetric.MS_PER_DECODE_STEP) == 2.0
    assert entry.value(PublishedMetric.GENERATE_S) == pytest.approx(0.031 / 3, rel=1e-3)
    (first, second) = h2ogpt_entries([run])
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
        bigcode_layout([replace(run, tasks=())])
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


@pytest.mark.parametrize(
    ("layout", "old", "new", "message"),
    [
        (bigcode_layout, "fp32", "fp33", "expected columns of"),
        (bigcode_layout, "oom |", "ran |", "or `oom` in both"),
        (h2ogpt_layout, "bfloat16", "bfloat17", "expected weights of"),
        (h2ogpt_layout, "1 x NVIDIA", "2 x NVIDIA", "expected `1 x` and a GPU's name"),
        (h2ogpt_layout, "0.0330000", "none", "expected a figure above 0 or OOM"),
        (h2ogpt_layout, "### Model: ", "### Modell: ", "expected `### Model: NAME`"),
    ],
)
def test_a_spoilt_layout_is_refused(
    layout: Callable[[Runs], str], old: str, new: str, message: str
) -> None:
    text = layout([s.whole_run()])
    old = old if old in text else old.rstrip("0")
    assert old in text
    with pytest.raises(TableError, match=message):
        table_of(text.replace(old, new))


@given(st.floats(1e-4, 1e8))
def test_a_printed_figure_is_close_and_reads_back(value: float) -> None:
    text = printed(value)
    assert float(text) == pytest.approx(
        value, rel=6e-3 if value < 1e-3 else 5e-4 if value < 0.1 else 5e-6
    )
    assert printed(float(text)) == text


def test_json_and_csv() -> None:
    run = s.whole_run()
    said = json.loads(as_json(run))
    assert [m["model_id"] for m in said["models"]] == ["fp32", "bf16"]
    assert len(said["tasks"]) == len(run.tasks)
    assert said["tasks"][0]["figures"][0]["new_tokens_per_s"] == pytest.approx(9 / 0.062)
    rows = list(csv.DictReader(io.StringIO(tasks_csv(run))))
    assert len(rows) == sum(len(task.figures) for task in run.tasks)
    assert {row["outcome"] for row in rows} == {"ok", "out_of_memory", "skipped"}
    assert rows[1]["run_mean_ns"] == ""
