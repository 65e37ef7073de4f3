from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.report.example import published_run, several_settings, simulated_run
from tests.report.made import as_json, documents
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.kinds.batch.columns import as_csv
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.report.table import Table, csv_text, markdown
from tgi_bench.report.words import short_reason

Golden = Callable[[str, str], None]


def test_golden_reports_of_a_simulated_run(golden: Golden) -> None:
    run = simulated_run()
    pages = documents(run)
    assert list(pages) == ["report.md", "num_shard-1.md", "num_shard-2.md"]
    for name, text in pages.items():
        golden(f"simulated_{name}", text)
    golden("simulated_run.json", as_json(run))
    golden("simulated_run.csv", as_csv(run))


def test_golden_reports_of_the_published_table(golden: Golden) -> None:
    pages = documents(published_run())
    assert len(pages) == 5
    golden("imported_report.md", pages["report.md"])
    golden("imported_num_shard-8.md", pages["num_shard-8.md"])


@pytest.mark.parametrize("run", [simulated_run(), published_run(), several_settings()])
def test_every_page_starts_with_where_its_figures_come_from(run: Run) -> None:
    word = {"simulated": "Simulated", "imported": "Imported", "measured": "Measured"}[run.origin]
    for text in documents(run).values():
        title, blank, origin = text.splitlines()[:3]
        assert title.startswith("# ")
        assert blank == ""
        assert origin.startswith(f"**{word}")
        assert text.endswith("\n")
        assert "\n\n\n" not in text


def test_no_cell_is_blank_and_rows_are_aligned() -> None:
    for text in documents(simulated_run()).values():
        lines = text.splitlines()
        for above, line in pairwise(lines):
            if line.startswith("|"):
                assert all(c.strip() for c in line.replace("\\|", "").strip("|").split("|"))
                if above.startswith("|"):
                    assert len(above) == len(line)


def test_a_third_variable_stands_in_the_headings() -> None:
    pages = documents(several_settings())
    assert "### No Quantization; max_batch_total_tokens: 16000\n" in pages["num_shard-1.md"]
    assert "### No Quantization; max_batch_total_tokens: None\n" in pages["num_shard-1.md"]
    assert "- max_batch_total_tokens: Some(16000), None\n" in pages["num_shard-1.md"]


def test_what_was_not_checked_stands_apart() -> None:
    text = documents(several_settings())["report.md"]
    before, found, after = text.partition("\nNot checked:\n")
    assert found
    assert "- the server's version is the planned one: no server said its version\n" in after
    assert "the server's version" not in before


def test_a_run_that_is_not_finished() -> None:
    run = simulated_run()
    cut = replace(run, finished=False).having(
        TrialSummary, (replace(t, end=None) for t in run.of(TrialSummary))
    )
    pages = documents(cut)
    assert "the sweep is not finished." in pages["report.md"]
    assert "| not finished |" in pages["num_shard-1.md"]
    assert (
        "- not finished, batch sizes 1, 2: the sweep ended before this trial did; 3 runs of it "
        "were recorded\n" in pages["num_shard-1.md"]
    )
    assert "40.40 ms" not in pages["num_shard-1.md"]
    assert "| not finished | 3 of 3 runs recorded |" in pages["report.md"]
    assert {r["outcome"] for r in csv.DictReader(io.StringIO(as_csv(cut)))} == {"not_finished"}
    empty = documents(cut.having(TrialSummary, ()))
    assert "Speed-up" not in empty["report.md"]
    assert json.loads(as_json(cut))["trials"][0]["outcome"] is None


def test_json_is_stable_and_has_units() -> None:
    run = simulated_run()
    document = json.loads(as_json(run))
    assert (document["schema"], document["schema_version"]) == ("tgi-bench-run", 2)
    assert as_json(run) == as_json(simulated_run())
    assert (document["loads"], document["floors"]) == ([], [])
    first = document["trials"][0]
    assert first["prefill"]["mean_ns"] == 40_400_000
    # 3 runs of 100 prompt tokens in 40, 40.4 and 40.8 ms
    assert first["prefill"]["throughput"]["mean_tokens_per_s"] == pytest.approx(300 / 0.1212)
    assert document["deployments"][0]["server"]["simulated"] is True


def test_json_says_what_came_of_each_check() -> None:
    run = several_settings()
    checks = {c["name"]: c for c in json.loads(as_json(run))["verdict"]["checks"]}
    unmade = checks["the server's version is the planned one"]
    assert (unmade["status"], unmade["passed"]) == ("not_checked", None)
    assert unmade["finding"] == "no server said its version"
    made = checks["at least 3 runs"]
    assert (made["status"], made["passed"]) == ("passed", True)
    checks = {c["name"]: c for c in json.loads(as_json(simulated_run()))["verdict"]["checks"]}
    failing = checks["no trial failed"]
    assert (failing["status"], failing["passed"]) == ("failed", False)


def test_an_out_of_memory_is_short_in_pages_and_whole_in_json() -> None:
    run = simulated_run()
    short = "CUDA out of memory. Tried to allocate 7.66 GiB (simulated)"
    pages = documents(run)
    assert f"- OOM, batch size 4: {short}\n" in pages["num_shard-1.md"]
    assert f"| {short} " in pages["report.md"]
    assert all("39.39 GiB" not in page for page in pages.values())
    assert "39.39 GiB total capacity" in as_json(run)


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        ("no answer\nwithin 600 s", "no answer within 600 s"),
        (
            "shard_rank 1: CUDA out of memory. Tried to allocate 15.31 GiB. GPU 0 has a total",
            "shard_rank 1: CUDA out of memory. Tried to allocate 15.31 GiB",
        ),
        ("Out of available cache blocks: asked 9", "Out of available cache blocks: asked 9"),
        ("", ""),
    ],
)
def test_short_reason(reason: str, short: str) -> None:
    assert short_reason(reason) == short


def test_verdict_stands_before_definitions_and_says_what_it_is_of() -> None:
    for name, text in documents(simulated_run()).items():
        headings = [line for line in text.splitlines() if line.startswith("# ")]
        assert headings[-1] == "# Definitions"
        assert "# Verdict: INVALID" in headings
        assert ("The checks are of the whole run" in text) is (name != "report.md")


def test_larger_batch_sizes_than_the_best() -> None:
    lines = documents(simulated_run())["report.md"].splitlines()
    start = next(i for i, line in enumerate(lines) if "Larger batch sizes" in line)
    rows = [line.strip("| ").rpartition("| ")[2] for line in lines[start + 2 : start + 5]]
    assert rows == ["next one OOM", "next one timeout", "next one refused"]


def test_csv_has_a_row_for_each_trial_and_step() -> None:
    run = simulated_run()
    rows = list(csv.DictReader(io.StringIO(as_csv(run))))
    assert len(rows) == len(run.of(TrialSummary)) * 3
    assert {r["origin"] for r in rows} == {"simulated"}
    memory = [r for r in rows if r["outcome"] == "out_of_memory"]
    assert [r["mean_ns"] for r in memory] == ["", "", ""]


def test_measured_where_no_server_said_simulated() -> None:
    run = replace(simulated_run(), origin=Origin.MEASURED)
    for page in documents(run).values():
        # the servers' own words stay
        for own in ("`simulated`", "GiB (simulated)", "generate.v3, simulated,"):
            page = page.replace(own, "")
        assert "imulated" not in page


def test_table_by_hand() -> None:
    table = Table(("Step", "b"), (("a|b", "1"), ("two\nlines", "22")), frozenset({1}))
    assert markdown(table) == (
        "| Step      |   b |\n|-----------|----:|\n| a\\|b      |   1 |\n| two lines |  22 |\n"
    )
    assert csv_text(table) == "Step,b\na|b,1\ntwo lines,22\n"
    with pytest.raises(ValueError, match="1 cells under 2"):
        Table(("a", "b"), (("1",),))
