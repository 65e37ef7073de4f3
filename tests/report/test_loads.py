"""The reports of loads: pages as golden files, JSON and CSV by their keys and columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.analysis.samples import MS, OK, deployment, facts
from tests.launch.deployments import attach
from tests.report.example import simulated_run
from tests.report.load_example import (
    SLOS,
    ended,
    figure,
    load_run,
    mixed_run,
    run_of,
    search,
    stage,
    trial,
)
from tests.report.made import as_json, documents
from tgi_bench.analysis.rules import Verdict, failed
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.kinds.batch.columns import as_csv
from tgi_bench.kinds.load import tables, words
from tgi_bench.kinds.load.columns import loads_csv
from tgi_bench.kinds.load.figures import LoadSummary, SearchAnswer, Steadiness
from tgi_bench.kinds.load.group import groups
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import ANY_MODEL, MODEL_SERVED
from tgi_bench.report.source import COMMAND
from tgi_bench.trials.load import (
    METRICS,
    Arrivals,
    ClosedLoop,
    Empirical,
    Extent,
    FileKind,
    Find,
    Fixed,
    Length,
    LogNormal,
    Normal,
    OpenLoop,
    Process,
    RatePart,
    SharedPrefix,
    Slo,
    Sought,
    TraceTimes,
    Turns,
    Uniform,
    Until,
    Workload,
    WorkloadFile,
)

S = 1_000 * MS
SERVER = deployment(1).deployment_id


def test_golden_reports_of_loads(golden: Callable[[str, str], None]) -> None:
    run = load_run()
    pages = documents(run)
    assert list(pages) == ["report.md", "num_shard-1.md", "num_shard-2.md"]
    for name, text in pages.items():
        golden(f"loads_{name}", text)
    golden("loads_run.json", as_json(run))
    golden("loads_run.csv", loads_csv(run))


def test_golden_page_of_batches_and_a_load(golden: Callable[[str, str], None]) -> None:
    golden("mixed_num_shard-1.md", documents(mixed_run())["num_shard-1.md"])


@pytest.mark.parametrize("run", [load_run(), mixed_run()])
def test_no_cell_is_blank_and_rows_are_aligned(run: Run) -> None:
    for text in documents(run).values():
        assert "\n\n\n" not in text
        assert text.endswith("\n")
        for above, line in pairwise(text.splitlines()):
            if line.startswith("|"):
                assert all(c.strip() for c in line.replace("\\|", "").strip("|").split("|"))
                if above.startswith("|"):
                    assert len(above) == len(line)


def test_a_page_of_loads_only_has_no_batches() -> None:
    page = documents(load_run())["num_shard-1.md"]
    for absent in ("Tensor Parallel", "# Runs", "Sequence Length", "Decode (token)", "OOM"):
        assert absent not in page
    assert page.count("- **-**: undefined, or not given.") == 1


def test_a_page_of_both_has_batches_first() -> None:
    page = documents(mixed_run())["num_shard-1.md"]
    assert page.index("# Tensor Parallel") < page.index("# Load over HTTP")
    assert "- **Decode (token)**" in page
    assert "- **TTFT**" in page
    assert page.count("- **-**") == 1
    other = documents(mixed_run())["num_shard-2.md"]
    assert "# Load over HTTP" not in other


def test_a_closed_and_an_open_loop_say_what_they_are() -> None:
    page = documents(load_run())["num_shard-1.md"]
    assert "closed loop: the next send waits, so a slow server is asked less often" in page
    assert page.count("open loop: sends follow a schedule whatever happens") == 2


def test_loads_that_differ_in_their_value_share_tables() -> None:
    found = groups(load_run().of(LoadSummary))
    assert [len(g.loads) for g in found] == [3, 1, 1, 1]
    rates = [trial(SERVER, f"r{n}", OpenLoop(n, (), Process.POISSON, 1.0, 0)) for n in (1.0, 2.0)]
    other = replace(rates[0], workload=Workload(Fixed(1), Fixed(1), None, None, None, 0))
    kinds = [ended(t) for t in (*rates, other)]
    assert [len(g.loads) for g in groups(kinds)] == [2, 1]
    traces = [ended(trial(SERVER, f"t{n}", TraceTimes(n))) for n in (1, 2)]
    assert [len(g.loads) for g in groups(traces)] == [1, 1]


def _of_one(load: LoadSummary) -> Run:
    return run_of([load], [DeploymentRecord(deployment(1), None, "")], Origin.MEASURED)


def test_loads_without_figures() -> None:
    asked = [trial(SERVER, f"load-c{n}", ClosedLoop(n)) for n in (1, 2, 3)]
    failed = TrialEnd(Outcome.LAUNCH_FAILED, "too few GPUs")
    unanswered = replace(stage(asked[0], 1, 100, 50), e2e=None)
    loads = [
        LoadSummary(asked[0], None, (unanswered,), None),
        LoadSummary(asked[1], failed, (), None),
        LoadSummary(asked[2], failed, (), None),
    ]
    run = run_of(loads, [DeploymentRecord(deployment(1), None, "")], Origin.MEASURED)
    page, index = documents(run)["num_shard-1.md"], documents(run)["report.md"]
    assert "#### Latency" not in page
    assert "- not started, concurrency 2, concurrency 3: too few GPUs\n" in page
    kept = "the sweep ended before this load did; 1 stage recorded"
    assert f"- not finished, concurrency 1: {kept}\n" in page
    assert f"| not finished  | {kept} " in index
    assert "| launch failed | too few GPUs " in index
    assert "Latency against throughput" not in index
    rows = list(csv.DictReader(io.StringIO(loads_csv(run))))
    assert [r["outcome"] for r in rows] == ["not_finished"] * 7 + ["launch_failed"] * 2
    assert [r["metric"] for r in rows[-2:]] == ["", ""]
    assert rows[-1]["concurrency"] == ""
    document = json.loads(as_json(run))
    assert [load["outcome"] for load in document["loads"]] == [None, *["launch_failed"] * 2]
    assert documents(_of_one(ended(asked[0])))["num_shard-1.md"].count("| - ") == 0
    assert (
        "- -, concurrency 1: no stage was recorded\n"
        in (documents(_of_one(ended(asked[0])))["num_shard-1.md"])
    )


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (
            SearchAnswer(8.0, 8.0, 9.0, True),
            "**8 requests/s** is the highest rate tried that met every SLO; 8 and 8 requests/s "
            "were delivered; 9 requests/s, the next tried, did not. 95% confidence interval: not "
            "known, for at no rate tried were the SLO metrics' intervals clear of their limits.\n",
        ),
        (
            SearchAnswer(8.0, 8.0, 9.0, True, 4.0, 16.0, (2, 2), (1, 2)),
            "met every SLO (in 2 of 2 repeats); 8 and 8 requests/s were delivered; 9 requests/s, "
            "the next tried, did not (in 1 of 2 repeats). 95% confidence interval: 4 to 16 "
            "requests/s (at 4 every SLO metric's whole interval met its SLO, at 16 the whole "
            "interval of one missed it).\n",
        ),
        (
            SearchAnswer(8.0, 8.0, 9.0, False, None, 9.0),
            "95% confidence interval: up to 9 requests/s, at which the whole interval of one "
            "missed it; its lower end is not known, for at no rate tried did every SLO metric's "
            "whole interval meet its SLO. The search was cut off: this is what it knew then.\n",
        ),
        (
            SearchAnswer(8.0, 8.0, 9.0, True, 8.0),
            "95% confidence interval: from 8 requests/s on, at which every SLO metric's whole "
            "interval met its SLO; its upper end is not known, for at no rate tried did the whole "
            "interval of one miss it.\n",
        ),
        (
            SearchAnswer(16.0, 16.0, None, True),
            "none higher was tried, so the true one may be higher. 95",
        ),
        (
            SearchAnswer(64.0, 64.0, None, True),
            "the highest allowed, so the true one may be higher. 95",
        ),
        (
            SearchAnswer(None, None, 4.0, True, missed_in=(1, 2)),
            "**None**: the lowest rate tried, 4 requests/s, did not meet every SLO (in 1 of 2 "
            "repeats). 95",
        ),
        (None, "**No answer**: no rate was tried to its end.\n"),
        (SearchAnswer(None, None, None, False), "**No answer**: no rate was tried to its end.\n"),
    ],
)
def test_what_a_search_found(found: SearchAnswer | None, says: str) -> None:
    run = _of_one(replace(search(SERVER), found=found))
    pages = documents(run)
    assert all(says in page for page in pages.values())
    answer = json.loads(as_json(run))["loads"][0]["search"]
    assert answer == (
        None
        if found is None
        else {
            "value": found.value,
            "low": found.low,
            "high": found.high,
            "done": found.done,
            "confidence_interval": {"low": found.sure_low, "high": found.sure_high},
            "met_in": {"repeats": found.met_in[0], "tried": found.met_in[1]},
            "missed_in": {"repeats": found.missed_in[0], "tried": found.missed_in[1]},
            "contradiction": None,
        }
    )
    lowest = found is None or found.value is None
    assert ("#### Latency of the lowest" in pages["num_shard-1.md"]) is lowest


def test_steps_that_contradict_each_other_are_said_with_the_answer() -> None:
    found = SearchAnswer(8.0, 8.0, 9.0, True, contradiction=(8.0, 9.0))
    run = _of_one(replace(search(SERVER), found=found))
    says = "one at 8 requests/s missed an SLO by more than chance, one at 9 requests/s met every"
    assert f"The steps contradict each other: {says}" in documents(run)["report.md"]
    said = json.loads(as_json(run))["loads"][0]["search"]["contradiction"]
    assert said == {"missed": 8.0, "met": 9.0}


def test_a_concurrency_is_exact() -> None:
    find = Find(Sought.MAX_CONCURRENCY, 4.0, 1.0, 64.0, 0.05, 1)
    asked = trial(SERVER, "load-find-max_concurrency", ClosedLoop(4), slos=SLOS, find=find)
    steps = [stage(asked, n, 240, ttft, index=i) for i, (n, ttft) in enumerate([(7, 60), (8, 900)])]
    load = ended(asked, *steps, found=SearchAnswer(7.0, 7.0, 8.0, True, 7.0, 8.0, (1, 1), (1, 1)))
    page = documents(_of_one(load))["num_shard-1.md"]
    assert (
        "**7** is the highest concurrency tried that met every SLO; 8, the next whole number, did "
        "not. 95% confidence interval: 7 to 8 (" in page
    )


def test_a_cut_off_load_shows_what_was_measured_and_says_so() -> None:
    asked = [trial(SERVER, f"load-c{n}", ClosedLoop(n)) for n in (1, 2)]
    part = stage(asked[1], 2, 15, 50)
    part = replace(part, stage=replace(part.stage, cut_off="the server no longer answers"))
    died = TrialEnd(Outcome.SERVER_DIED, "killed by signal 9")
    whole = ended(asked[0], stage(asked[0], 1, 100, 50))
    loads = [whole, LoadSummary(asked[1], died, (part,), None)]
    run = run_of(loads, [DeploymentRecord(deployment(1), None, "")], Origin.MEASURED)
    page, index = documents(run)["num_shard-1.md"], documents(run)["report.md"]
    assert " 2, partial |" in page
    why = "killed by signal 9; the server no longer answers"
    assert f"- server died, partial figures, concurrency 2: {why}\n" in page
    assert "# Trials without figures, or with partial ones" in index
    assert f"| server died, partial figures | {why} " in index
    assert "concurrency 2, partial" in index
    rows = list(csv.DictReader(io.StringIO(loads_csv(run))))
    assert {(r["outcome"], r["cut_off"]) for r in rows} == {
        ("ok", ""), ("server_died", "the server no longer answers"),
    }  # fmt: skip
    first, second = json.loads(as_json(run))["loads"]
    assert (first["partial"], first["stages"][0]["cut_off"]) == (False, None)
    assert (second["partial"], second["outcome"]) == (True, "server_died")
    assert second["stages"][0]["cut_off"] == "the server no longer answers"


def test_every_step_of_a_search_is_shown_and_the_tables_are_of_the_answer() -> None:
    page = documents(load_run())["num_shard-2.md"]
    steps = page.partition("#### Search\n")[2].partition("####")[0]
    lines = [line for line in steps.splitlines() if line.startswith("|")][2:]
    met = [line.strip("| ").rpartition(" ")[2] for line in lines]
    assert met == ["yes", "yes", "no", "no", "yes"]
    assert all("| 1 min" in line or " 60 s " in line for line in lines)
    latency = page.partition("#### Latency of the answer\n")[2].partition("####")[0]
    assert latency.count("| TTFT ") == 2
    assert "| 9 " not in latency


def test_a_search_that_was_cut_off_shows_its_steps() -> None:
    whole = search(SERVER)
    page = documents(_of_one(replace(whole, end=None, found=None)))["num_shard-1.md"]
    assert "| 1350.00 ms [1215.00, 1485.00], not met |" in page
    assert "- not finished, partial figures, search for the highest rate: " in page


def test_undefined_figures_are_dashes() -> None:
    asked = trial(SERVER, "load-c1", ClosedLoop(1), stream=False, slos=SLOS)
    bare = replace(
        stage(asked, 1, 50, 30),
        ttft=None,
        service_ttft=None,
        itl=None,
        event_gap=None,
        tpot=None,
        e2e=None,
        send_lag=None,
        requests_per_s=None,
        output_tokens_per_s=figure(3, None),
        total_tokens_per_s=None,
        goodput_per_s=None,
        concurrency=None,
        outcomes=(),
        events=0,
        steadiness=Steadiness(),
        counted_by=(),
        slos_met=((None, None), (3.0, False), (None, None)),
    )
    pages = documents(_of_one(ended(asked, bare)))
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in pages["num_shard-1.md"].splitlines()
        if line.startswith("|")
    ]
    assert ["ITL", "1", "0", *["-"] * 7] in rows
    assert ["1", "-", "-", "3.00", "-", "-", "-", "0", "0", "INVALID"] in rows
    assert ["1", "-", "0.000 ms, not met", "-"] in rows
    assert "/generate, not streamed, found by asking" in pages["num_shard-1.md"]
    assert "0.00 " not in pages["report.md"]
    (found,) = json.loads(as_json(_of_one(ended(asked, bare))))["loads"][0]["stages"]
    assert found["latency"]["ttft"] is None
    assert found["throughput"]["output_tokens_per_s"] == {"value": 3, "low": None, "high": None}
    assert found["slos"][0] == {
        "metric": "ttft_p99", "limit": 500e6, "found": None, "met": None,
    }  # fmt: skip
    first = next(csv.DictReader(io.StringIO(loads_csv(_of_one(ended(asked, bare))))))
    assert (first["samples"], first["mean_ns"], first["success_share"]) == ("0", "", "")


def test_an_itl_that_cannot_be_measured_says_why() -> None:
    slos = (Slo("itl_p99", 50 * MS), Slo("ttft_p99", 500 * MS))
    asked = trial(SERVER, "load-c1", ClosedLoop(1), slos=slos)
    spread = replace(
        stage(asked, 1, 50, 30),
        itl=None,
        unmeasurable={"itl": 3.35},
        goodput_per_s=None,
        slos_met=((None, None), (45.0 * MS, True)),
    )
    run = _of_one(ended(asked, spread))
    pages = documents(run)
    why = "not measurable: 3.35 tokens an event"
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for page in pages.values()
        for line in page.splitlines()
        if line.startswith("|")
    ]
    assert ["ITL", "1", "0", why, *["-"] * 6] in rows
    assert ["1", why, "45.00 ms, met"] in rows
    assert any(why in row for row in rows if row[0] == "1" and "concurrency 1" in row)
    (found,) = json.loads(as_json(run))["loads"][0]["stages"]
    assert found["unmeasurable_tokens_per_event"] == {"itl": 3.35}
    assert found["latency"]["itl"] is None
    cells = {row["metric"]: row for row in csv.DictReader(io.StringIO(loads_csv(run)))}
    assert cells["itl"]["unmeasurable_tokens_per_event"] == "3.35"
    assert cells["tpot"]["unmeasurable_tokens_per_event"] == ""


def test_errors_by_kind_with_the_most_frequent_reasons() -> None:
    page = documents(load_run())["num_shard-1.md"]
    assert (
        "#### Errors\n\n- 4/s Poisson: 6 overloaded, 1 timeout. Reasons: 429: Model is overloaded "
        "(6); no whole answer within 60 s (1)\n" in page
    )
    asked = trial(SERVER, "load-c1", ClosedLoop(1))
    many = replace(
        stage(asked, 1, 50, 30),
        outcomes=((RequestOutcome.OK, 1), (RequestOutcome.CONNECTION_RESET, 1_200)),
        reasons=tuple((f"reason {n}\nof it", n) for n in (1, 5, 3, 2)),
    )
    page = documents(_of_one(ended(asked, many)))["num_shard-1.md"]
    assert (
        "- concurrency 1: 1,200 connection reset. Reasons: reason 5 of it (5); reason 3 of it (3); "
        "reason 2 of it (2); and 1 more\n" in page
    )


def test_stamps_of_user_space_say_why() -> None:
    page = documents(load_run())["num_shard-1.md"]
    assert "- stamped in user space: not Linux\n" in page
    assert "| user space |" in page


def test_details_that_differ_name_their_loads() -> None:
    asked = [trial(SERVER, f"load-c{n}", ClosedLoop(n)) for n in (1, 2)]
    first, second = stage(asked[0], 1, 20, 30), stage(asked[1], 2, 20, 30)
    told = (("Prompt lengths", "not exact: nobody counts"),)
    second = replace(second, stage=replace(second.stage, details=told))
    loads = [ended(asked[0], first), ended(asked[1], second)]
    run = run_of(loads, [DeploymentRecord(deployment(1), None, "")], Origin.MEASURED)
    page = documents(run)["num_shard-1.md"]
    assert "| Prompt lengths (concurrency 2) | not exact: nobody counts " in page


def test_json_has_every_figure_with_its_interval() -> None:
    document = json.loads(as_json(load_run()))
    assert document["schema_version"] == 2
    second = document["loads"][1]
    (told,) = second["stages"]
    assert set(told["latency"]) == set(METRICS)
    assert told["latency"]["ttft"]["p99_ns"] == {
        "value": 270 * MS, "low": pytest.approx(243 * MS), "high": pytest.approx(297 * MS),
    }  # fmt: skip
    assert told["window"] == {"from_ns": 11 * S, "until_ns": 70 * S, "steady": True}
    assert told["client"]["worker_cpu_ns"] == [3 * S, 4 * S]
    assert told["outcomes"] == {"ok": 1400}
    assert second["asked"]["arrivals"] == {"kind": "closed_loop", "concurrency": 64}
    assert second["asked"]["workload"]["prompt"] == {"kind": "fixed", "tokens": 512}
    assert second["search"] is None
    floors = document["floors"]
    assert floors[0]["itl_error_ns"] is None
    assert floors[1]["ttft_error_ns"] == {"p50": 21e3, "p90": 80e3, "p99": 230e3}
    assert as_json(load_run()) == as_json(load_run())


def test_csv_has_a_row_for_each_stage_and_metric() -> None:
    run = load_run()
    rows = list(csv.DictReader(io.StringIO(loads_csv(run))))
    assert len(rows[0]) == len(set(loads_csv(run).partition("\n")[0].split(",")))
    stages = sum(len(load.stages) for load in run.of(LoadSummary))
    assert len(rows) == stages * len(METRICS) + 1  # one load has no stage
    few = rows[0]
    assert (few["metric"], few["p99_ns"], few["p90_ns"]) == (
        "ttft", "", repr(54.0 * MS),
    )  # fmt: skip
    assert few["concurrency_asked"] == "1"
    assert few["requests_per_s"] == "0.4"
    assert as_csv(run).count("\n") == 1


def test_the_command_that_made_a_run_is_shown_where_no_file_did() -> None:
    run = replace(load_run(), environment=((COMMAND, "tgi-bench load http://h:1 --rate 4"),))
    page = documents(run)["report.md"]
    assert "```bash\ntgi-bench load http://h:1 --rate 4\ntgi-bench report " in page


def test_reports_without_loads_say_nothing_of_them() -> None:
    for page in documents(simulated_run()).values():
        assert "HTTP" not in page
        assert "TTFT" not in page


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (Fixed(512), "512 tokens"),
        (Uniform(100, 1000), "100 to 1000, uniform, tokens"),
        (
            Normal(500, 100.5, 1, 2000),
            "normal with mean 500 and deviation 100.5, within 1 to 2000, tokens",
        ),
        (
            LogNormal(300, 0.8, 1, 2000),
            "log-normal with median 300 and sigma 0.8, within 1 to 2000, tokens",
        ),
        (Empirical((128, 256)), "one of 128, 256 tokens"),
        (Empirical((128, 256), (1, 2.5)), "one of 128, 256, weighted 1:2.5 tokens"),
        (Empirical(tuple(range(9, 0, -1))), "one of 9 values within 1 to 9 tokens"),
    ],
)
def test_lengths_in_words(length: Length, text: str) -> None:
    assert words.length(length) == text


@pytest.mark.parametrize(
    ("arrivals", "text", "heading"),
    [
        (
            OpenLoop(4, (), Process.CONSTANT, 1, 0),
            "open loop: sends follow a schedule whatever happens; constant gaps",
            "Open loop, constant",
        ),
        (
            OpenLoop(4, (), Process.GAMMA, 0.5, 3),
            "open loop: sends follow a schedule whatever happens; gamma gaps of burstiness 0.5, "
            "seed 3",
            "Open loop, gamma",
        ),
        (
            OpenLoop(
                None, (RatePart(60 * S, 1, 20), RatePart(S // 2, 20, 20)), Process.POISSON, 1, 0
            ),
            "open loop: sends follow a schedule whatever happens; Poisson gaps, seed 0; 1/s to "
            "20/s for 60 s; 20/s for 500 ms",
            "Open loop, Poisson, rate that changes",
        ),
        (
            TraceTimes(2),
            "open loop: sends follow a schedule whatever happens; the file's own times, 2 times "
            "as fast",
            "Open loop, times of a trace",
        ),
        (
            TraceTimes(1),
            "open loop: sends follow a schedule whatever happens; the file's own times",
            "Open loop, times of a trace",
        ),
    ],
)
def test_arrivals_in_words(arrivals: Arrivals, text: str, heading: str) -> None:
    assert words.arrivals(arrivals) == text
    assert words.heading(trial(SERVER, "x", arrivals)) == heading


@pytest.mark.parametrize(
    ("extent", "text"),
    [
        (Extent(60 * S, None, 0, 0, 0, 0, None), "60 s"),
        (Extent(None, 1, 0, 10, 0, 1, None), "1 request; warm-up 10 requests; cool-down 1 request"),
        (
            Extent(S, 1000, S, 0, 0, 0, Until("itl_p999", 0.005)),
            "1 s or 1,000 requests, whichever comes first, or once the interval of ITL p99.9 is "
            "within ±0.5%; warm-up 1 s",
        ),
        (Extent(None, None, 0, 0, 0, 0, None), "to the end of its schedule"),
    ],
)
def test_extents_in_words(extent: Extent, text: str) -> None:
    assert words.extent(trial(SERVER, "x", ClosedLoop(1), extent=extent)) == text


def test_workloads_in_words() -> None:
    asked = Workload(
        prompt=None,
        output=None,
        file=WorkloadFile("/home/me/chats.json", FileKind.SHAREGPT, True),
        shared_prefix=SharedPrefix(256, 1),
        turns=Turns(Uniform(2, 4), 2 * S),
        seed=5,
    )
    assert words.prompts(asked) == (
        "file chats.json (sharegpt); shuffled; the first 256 tokens shared within each of 1 group; "
        "conversations of 2 to 4, uniform turns, 2 s after each answer; seed 5"
    )


@pytest.mark.parametrize(
    ("slo", "text", "found"),
    [
        (Slo("ttft_p99", 5e8), "TTFT p99 at most 500 ms", "1.50 ms"),
        (Slo("e2e_max", 2e9), "E2E max at most 2 s", "1.50 ms"),
        (Slo("send_lag_p999", 1.5e6), "Send lag p99.9 at most 1.5 ms", "1.50 ms"),
    ],
)
def test_slos_in_words(slo: Slo, text: str, found: str) -> None:
    assert words.slo(slo) == text
    assert words.slo_value(slo, 1.5 * MS) == found
    assert words.slo_value(slo, None) == "-"


def test_api_in_words() -> None:
    asked = trial(SERVER, "x", ClosedLoop(1), spoken="chat")
    assert words.api(asked, ()) == "/v1/chat/completions, streamed"
    auto = replace(asked, spoken="auto", stream=False)
    assert words.api(auto, ()) == "to be found by asking the server, not streamed"
    assert words.api(auto, ("completions",)) == "/v1/completions, not streamed, found by asking"


def test_all_that_ended_ok_are_shown() -> None:
    assert all(load.end == OK for load in load_run().of(LoadSummary) if load.stages)


@pytest.mark.parametrize(
    ("name", "arrivals", "found"),
    [
        ("load-c8", ClosedLoop(8), ""),
        ("load-chat-c8", ClosedLoop(8), "chat"),
        ("load-poisson-r4", OpenLoop(4.0, (), Process.POISSON, 1.0, 0), ""),
        ("load-r-r0.5", OpenLoop(0.5, (), Process.CONSTANT, 1.0, 0), "r"),
        ("load-two-words-gamma-r1e-05", OpenLoop(1e-5, (), Process.GAMMA, 0.5, 0), "two-words"),
        ("load-poisson-poisson-r4", OpenLoop(4.0, (), Process.POISSON, 1.0, 0), "poisson"),
        ("load-ramp", OpenLoop(None, (RatePart(S, 1.0, 2.0),), Process.POISSON, 1.0, 0), ""),
        ("load-a-trace", TraceTimes(1.0), "a"),
    ],
)
def test_the_name_of_a_load(name: str, arrivals: Arrivals, found: str) -> None:
    assert words.load_name(trial(SERVER, name, arrivals)) == found


def test_loads_that_differ_in_name_only_are_told_apart() -> None:
    """In headings, in the summary's rows and in what has no figures."""
    short, long = (trial(SERVER, f"load-{name}-c2", ClosedLoop(2)) for name in ("short", "long"))
    assert len(groups([ended(short), ended(long)])) == 2
    told = stage(short, 2, 30, 45)
    assert words.heading(short) == "short: Closed loop"
    assert words.load_asked(short, told.stage) == "short: concurrency 2"
    assert words.load_planned(long) == "long: concurrency 2"
    server = DeploymentRecord(deployment(1), None, "")
    run = run_of([ended(short, told), ended(long, told)], [server], Origin.MEASURED)
    pages = documents(run)
    assert "### short: Closed loop" in pages["num_shard-1.md"]
    assert "| long: concurrency 2" in pages["report.md"]


def test_what_decides_has_its_interval() -> None:
    """p95 by an SLO and p90 by `until`, beside mean, p50 and p99."""
    asked = trial(
        SERVER,
        "load-c8",
        ClosedLoop(8),
        slos=(Slo("ttft_p95", 500.0 * MS),),
        extent=Extent(60 * S, None, 0, 0, 0, 0, Until("e2e_p90", 0.02)),
    )
    (group,) = groups([ended(asked, stage(replace(asked, slos=()), 8, 300, 100))])
    table = tables.latency(asked, group.rows())
    shown = {
        row[0]: {head for head, cell in zip(table.headers, row, strict=True) if "[" in cell}
        for row in table.rows
    }
    assert shown["TTFT"] == {"Mean", "p50", "p95", "p99"}
    assert shown["E2E"] == {"Mean", "p50", "p90", "p99"}
    assert shown["TPOT"] == {"Mean", "p50", "p99"}


@pytest.mark.parametrize(
    ("kind", "tokenizer", "said"),
    [
        (FileKind.JSONL, None, "as the file says, 128 where it does not"),
        (FileKind.SHAREGPT, None, "128 tokens, for no tokenizer was named to count the file's"),
        (FileKind.SHAREGPT, "t.json", "as many tokens as the file's answers have, 128 where"),
    ],
)
def test_how_long_a_files_outputs_are(kind: FileKind, tokenizer: str | None, said: str) -> None:
    workload = Workload(None, None, WorkloadFile("f", kind, False), None, None, 0)
    asked = trial(SERVER, "load-c1", ClosedLoop(1), workload=workload, tokenizer=tokenizer)
    assert words.outputs(asked).startswith(said)


def test_a_running_server_of_which_nobody_said_anything() -> None:
    """Not known in words, null in JSON, empty in CSV; what it said stands in their place."""
    server = replace(
        deployment(1),
        launcher=attach("http://h:1"),
        arguments=(),
        version_assumed=True,
    )
    asked = trial(server.deployment_id, "load-c1", ClosedLoop(1))
    silent = run_of(
        [ended(asked, stage(asked, 1, 30, 45))],
        [DeploymentRecord(server, None, "")],
        Origin.MEASURED,
    )
    silent = replace(silent, plan=replace(silent.plan, model=ANY_MODEL))
    page = documents(silent)["num_shard-1.md"]
    assert page.startswith("# bloomz: model not known on a running server\n")
    assert "- num_shard: not known" in page
    assert "## Quantization not known" in page
    document = json.loads(as_json(silent))
    (told,) = document["deployments"]
    assert document["model"] is None
    assert [told[key] for key in ("engine", "tgi_version", "num_shard")] == [None] * 3
    (row, *_) = csv.DictReader(io.StringIO(loads_csv(silent)))
    assert row["num_shard"] == row["quantize"] == ""
    said = replace(facts(server), version="3.0.0", details=((MODEL_SERVED, "org/model"),))
    speaking = replace(silent, deployments=(DeploymentRecord(server, said, ""),))
    assert documents(speaking)["report.md"].startswith("# bloomz: org/model\n")
    document = json.loads(as_json(speaking))
    assert (document["model"], document["deployments"][0]["engine"]) == ("org/model", "tgi")


def test_an_unfit_client_is_said_above_the_figures() -> None:
    busy = failed("the client's processes take at most 80% of a core each", "95%", "load.workers")
    slow = failed("closed loops held 95% of the asked concurrency", "3 of 8", "load.workers")
    run = replace(load_run(), verdict=Verdict.of((slow, replace(busy, of_client=True))))
    for name, page in documents(run).items():
        sentence = page.index("**The client was not fit to measure this** (failed: the client's")
        assert sentence < page.index("\n# "), name
        verdict = page.index("# Verdict: INVALID")
        assert page.index("- **the client's processes", verdict) < page.index("- **closed", verdict)
    assert all("not fit" not in page for page in documents(load_run()).values())
