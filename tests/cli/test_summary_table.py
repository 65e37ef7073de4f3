"""The table that a sweep ends with, byte by byte."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console

from tests.report.example import simulated_run
from tests.report.load_example import load_run, mixed_run
from tests.report.made import print_summary
from tgi_bench.analysis.run import Run
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.load.figures import LoadSummary


def shown(width: int, run: Run | None = None) -> str:
    output = io.StringIO()
    print_summary(Console(file=output, width=width, highlight=False), run or simulated_run())
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


def test_summary(golden: Callable[[str, str], None]) -> None:
    golden("summary_table.txt", shown(120))


def test_it_says_simulated_and_the_verdict() -> None:
    text = shown(120)
    assert "simulated" in text
    assert "verdict: INVALID" in text
    assert "failed: " in text
    assert "Remedy: " in text


def test_a_trial_that_was_cut_off_has_no_figures() -> None:
    run = simulated_run()
    first = replace(run.of(TrialSummary)[0], end=None)
    output = io.StringIO()
    print_summary(Console(file=output, width=120), run.having(TrialSummary, (first,)))
    (row,) = [line for line in output.getvalue().splitlines() if " not finished " in line]
    assert row.split()[-4:] == ["-", "-", "-", "VALID"]


def test_a_deployment_s_name_is_no_markup() -> None:
    run = simulated_run()
    trial = replace(run.of(TrialSummary)[0].trial, deployment_id="rope_scaling-[red]")
    output = io.StringIO()
    changed = run.having(TrialSummary, (replace(run.of(TrialSummary)[0], trial=trial),))
    print_summary(Console(file=output, width=120), changed)
    assert "rope_scaling-[red]" in output.getvalue()


def test_a_narrow_terminal_gets_each_name_on_a_line_of_its_own() -> None:
    wide, narrow = shown(120), shown(74).splitlines()
    names = {t.trial.deployment_id for t in simulated_run().of(TrialSummary)}
    for name in names:
        assert name in narrow
        assert not any(line.startswith(name) and line != name for line in narrow)
    figures = [
        line.split(maxsplit=1)[1].split() for line in wide.splitlines() if "num_shard-" in line
    ]
    rows = [line.split() for line in narrow]
    assert all(row in rows for row in figures if row[0].isdigit())


def test_summary_of_loads(golden: Callable[[str, str], None]) -> None:
    golden("summary_table_loads.txt", shown(120, load_run()))


def test_batches_and_loads_have_a_table_each() -> None:
    batches, loads = shown(120, mixed_run()), shown(120, load_run())
    assert batches.index("Prefill") < batches.index("TTFT p50")
    assert " concurrency 8 " in batches
    assert "Prefill" not in loads
    assert "Requests/s" not in shown(120)


def test_a_load_without_figures_has_a_row() -> None:
    (row,) = [line for line in shown(120, load_run()).splitlines() if "concurrency 256" in line]
    assert row.split()[-8:] == ["failed", *["-"] * 6, "INVALID"]


def test_an_itl_that_cannot_be_measured_says_why() -> None:
    run = load_run()
    load = run.of(LoadSummary)[0]
    stage = replace(load.stages[0], itl=None, unmeasurable={"itl": 3.35})
    shown_run = run.having(LoadSummary, (replace(load, stages=(stage,)),))
    (row,) = [line for line in shown(200, shown_run).splitlines() if "concurrency 1 " in line]
    assert "not measurable: 3.35 tokens an event" in row


def test_loads_on_a_narrow_terminal() -> None:
    lines = shown(74, load_run()).splitlines()
    assert {load.trial.deployment_id for load in load_run().of(LoadSummary)} <= set(lines)
    sentences = ("load-find-max_rate: ", "  failed: ")  # a file keeps them on one line each
    assert max(len(line) for line in lines if not any(s in line for s in sentences)) <= 74


def test_a_whole_step_of_a_search_that_was_cut_off_is_finished() -> None:
    run = load_run()
    (whole,) = [load for load in run.of(LoadSummary) if load.trial.find is not None]
    *_, last = whole.stages
    torn = replace(last, stage=replace(last.stage, cut_off="the sweep was interrupted"))
    cut = replace(whole, end=None, found=None, stages=(*whole.stages[:-1], torn))
    output = io.StringIO()
    print_summary(Console(file=output, width=120), run.having(LoadSummary, (cut,)))
    rows = [line for line in output.getvalue().splitlines() if " rate " in line or "/s " in line]
    assert sum(" ok " in row for row in rows) == len(whole.stages) - 1, rows
    assert sum(" not finished " in row for row in rows) == 1
