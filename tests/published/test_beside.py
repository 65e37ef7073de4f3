"""Two runs of the same batches side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.published.tables import run_of, text_of
from tests.report.example import simulated_run
from tests.report.test_estimated_section import tgi_run
from tgi_bench.errors import InputError
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.published.beside import side_by_side, word_of

Golden = Callable[[str, str], None]


def test_a_run_beside_itself_is_nothing_apart() -> None:
    run = tgi_run()
    page = side_by_side(run, run)
    assert "36 of 36 cells agree." in page
    assert "Batches of both: 36; published imported only: 0; published imported only: 0." in page
    assert "|          +0.0% |" in page
    assert "-0.1%" not in page
    assert "OOM" in page


def test_words_and_errors() -> None:
    run = simulated_run()
    slower = replace(run, run_id="other").having(
        TrialSummary,
        (
            replace(
                t,
                prefill=t.prefill
                and replace(
                    t.prefill, latency=replace(t.prefill.latency, mean=2 * t.prefill.latency.mean)
                ),
            )
            for t in run.of(TrialSummary)
        ),
    )
    page = side_by_side(slower, run)
    assert word_of(run) == "Simulated"
    assert "+100.0%" in page
    assert "| Latency: Simulated 20260101T000000Z-dddddd |" in page


def test_what_cannot_be_laid_side_by_side() -> None:
    with pytest.raises(InputError, match="have no batch in common"):
        side_by_side(simulated_run(), tgi_run())
    with pytest.raises(InputError, match="a table of other figures"):
        side_by_side(simulated_run(), run_of(text_of("h2ogpt.md"), "h2ogpt.md"))


def test_golden_page(golden: Golden) -> None:
    run = simulated_run()
    golden("side_by_side.md", side_by_side(run, replace(run, run_id="other")))
