"""What a sweep's exit code says of its run, and what the screen and documents say beside it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from tests.cli.test_summary_table import shown
from tests.report.example import simulated_run
from tests.report.load_example import load_run, search
from tests.report.made import as_json, documents
from tgi_bench.analysis.rules import Failing, Verdict, failed, passed
from tgi_bench.analysis.run import Run
from tgi_bench.cli.sweep_command import _exit_code
from tgi_bench.kinds.batch.columns import as_csv
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.load.columns import loads_csv
from tgi_bench.kinds.load.figures import LoadSummary, SearchAnswer
from tgi_bench.kinds.load.goals import slos_csv
from tgi_bench.observation import Outcome, TrialEnd

VALID = Verdict((passed("every trial ended", "all"),))


def with_loads(*loads: LoadSummary) -> Run:
    return replace(load_run(), verdict=VALID).having(LoadSummary, loads)


def fine() -> LoadSummary:
    """Concurrency 64, which met all three SLOs."""
    return load_run().of(LoadSummary)[1]


def slow() -> LoadSummary:
    """The same with a TTFT p99 above its limit."""
    (stage,) = fine().stages
    missed = ((612.0e6, False), *stage.slos_met[1:])
    return replace(fine(), stages=(replace(stage, slos_met=missed),))


def empty_search() -> LoadSummary:
    return replace(search("num_shard-2+quantize-none"), found=SearchAnswer(None, None, 4.0, True))


def invalid(run: Run) -> Run:
    bad = failed("no request was dropped", "1 of 240", "raise load.max_in_flight")
    return replace(run, verdict=Verdict((bad,)))


def with_a_timeout(run: Run) -> Run:
    end = TrialEnd(Outcome.TIMEOUT, "60 s")
    return run.having(LoadSummary, (replace(load, end=end) for load in run.of(LoadSummary)))


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (with_loads(fine()), 0),
        (with_loads(slow()), 4),
        (with_loads(fine(), slow()), 4),
        (with_loads(search("num_shard-2+quantize-none")), 0),
        (with_loads(empty_search()), 4),
        (invalid(with_loads(slow())), 3),
        (with_a_timeout(invalid(with_loads(slow()))), 1),
        (replace(simulated_run(), verdict=VALID).having(TrialSummary, ()), 0),
    ],
)
def test_the_worst_of_it_is_said_first(run: Run, code: int) -> None:
    assert _exit_code(run) == code


def test_what_was_missed_stands_everywhere() -> None:
    run = with_loads(fine(), slow(), empty_search())
    text = shown(120, run)
    assert "verdict: VALID; of 7 SLOs and searches 2 missed\n" in text
    asked = "TTFT p99 at most 500 ms; found: 612.00 ms"
    assert f"  missed: num_shard-1+quantize-none/load-c64: {asked}\n" in text
    assert (
        "  missed: num_shard-2+quantize-none/load-find-max_rate: a rate that meets every SLO; "
        "found: none\n"
    ) in text
    page = documents(run)["report.md"]
    assert "Verdict: **VALID**. Of 7 SLOs and searches 2 missed." in page
    assert "| TTFT p99 at most 500 ms     | 612.00 ms | missed | VALID   |" in page
    rows = list(csv.DictReader(io.StringIO(slos_csv(run))))
    assert [(r["metric"], r["limit"], r["found"], r["met"]) for r in rows[3:4] + rows[6:]] == [
        ("ttft_p99", "500000000.0", "612000000.0", "false"),
        ("", "", "", "false"),
    ]
    met = {row["slos_met"] for row in csv.DictReader(io.StringIO(loads_csv(run)))}
    assert met == {"true", "false"}
    document = json.loads(as_json(run))
    assert [(m["metric"], m["limit"], m["found"]) for m in document["missed"]] == [
        ("ttft_p99", 500000000.0, 612000000.0),
        (None, None, None),
    ]
    assert [load["slos_met"] for load in document["loads"]] == [True, False, False]
    assert slos_csv(simulated_run()) == ""


def test_each_trial_has_a_verdict_of_its_own() -> None:
    """Five of eight trials of a server fail a check: all of them are named, and no other."""
    run = simulated_run()
    bad = [t for t in run.of(TrialSummary) if t.trial.batch_size > 1][:5]
    failing = tuple(Failing(t.trial_id, t.trial_id, t.deployment_id, "31.0%") for t in bad)
    check = failed(
        "ranks agree within 10%", "5 of 16 trials: ...", "look for a slower GPU", failing
    )
    run = replace(run, verdict=Verdict((check,)))
    document = json.loads(as_json(run))
    assert [f["trial_id"] for f in document["verdict"]["checks"][0]["failing"]] == [
        t.trial_id for t in bad
    ]
    words = {t["trial_id"]: t["verdict"] for t in document["trials"]}
    assert {name for name, word in words.items() if word == "INVALID"} == {t.trial_id for t in bad}
    rows = csv.DictReader(io.StringIO(as_csv(run)))
    assert {(row["trial_id"], row["verdict"]) for row in rows} == set(words.items())
    pages = documents(run)
    first = "    - num_shard-1+quantize-none: s100-d3-b2 (31.0%), s100-d3-b4 (31.0%)"
    assert first in pages["report.md"]
    assert "    - num_shard-1+quantize-bitsandbytes: s100-d3-b2 (31.0%)" in pages["report.md"]
    page = pages["num_shard-1.md"]
    assert "|          1 | VALID   | -                              |" in page
    assert "|          2 | INVALID | ranks agree within 10% (31.0%) |" in page
    lines = shown(120, run).splitlines()
    assert sum(line.endswith("INVALID") for line in lines if line.startswith("num_shard")) == 5
