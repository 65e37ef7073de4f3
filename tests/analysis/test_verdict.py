from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.analysis.samples import (
    MS,
    OK,
    deployment,
    ended,
    facts,
    plan,
    record,
    run,
    summary,
    trial,
)
from tests.report.made import judge
from tgi_bench.analysis.rules import CheckStatus, Failing, Verdict, failed, passed, unmade
from tgi_bench.analysis.run import DeploymentRecord, Origin
from tgi_bench.kinds.argument_rules import check_arguments, differences, same
from tgi_bench.kinds.batch.metrics import TrialSummary, summarise, summarise_published
from tgi_bench.kinds.identity_rules import QUESTIONS
from tgi_bench.observation import Identity, Outcome, Phase, PublishedFigures, RankTiming
from tgi_bench.plan.plan import ArgumentValue, LauncherArgument

SERVER = deployment(2)
TRIAL = trial(SERVER, 4)
FINE = summary(TRIAL)
PLAN = plan((SERVER,), (TRIAL,))


def not_made(verdict: Verdict) -> list[str]:
    """But for what nobody asked of the server, and what it does not say of itself."""
    identity = {question.name for question in QUESTIONS}
    return [c.name for c in verdict.checks if not c.made and c.name not in identity]


def judged(
    summaries: tuple[TrialSummary, ...] = (FINE,),
    records: tuple[DeploymentRecord, ...] = (record(SERVER),),
    finished: bool = True,
) -> Verdict:
    return judge(PLAN, Origin.SIMULATED, records, summaries, finished)


def names_failed(verdict: Verdict) -> list[str]:
    return [c.name for c in verdict.checks if not c.passed]


def test_a_good_run_is_valid() -> None:
    verdict = judged()
    assert verdict.word == "VALID"
    assert names_failed(verdict) == []
    assert all(c.finding and not c.remedy for c in verdict.checks)
    assert not_made(verdict) == []


@pytest.mark.parametrize(
    ("change", "name", "remedy"),
    [
        (lambda s: replace(s, end=None), "every trial ended", "--resume"),
        (
            lambda s: ended(s.trial, Outcome.SHARD_DIED, "signal 9"),
            "no trial failed",
            "launch/",
        ),
        (
            lambda s: ended(s.trial, Outcome.OUT_OF_MEMORY, "no room"),
            "no trial failed",
            "batches.batch_size",
        ),
        (lambda s: replace(s, runs=2), "at least 3 runs", "batches.runs"),
        (lambda s: replace(s, runs=2), "every run has the asked output length", "run.db"),
        (lambda s: replace(s, prompt_tokens=398), "prompts have the asked length", "max_input"),
        (
            lambda s: replace(s, client_share=0.201),
            "client and transport take at most 20% of a step",
            "batches.batch_size",
        ),
        (lambda s: replace(s, rank_spread=0.101), "ranks agree within 10%", "GPU"),
        (
            lambda s: replace(s, first_run_excess=0.101),
            "the first run is no slower than the others",
            "batches.warmups",
        ),
    ],
)
def test_each_check_can_fail(
    change: Callable[[TrialSummary], TrialSummary], name: str, remedy: str
) -> None:
    verdict = judged((change(FINE),))
    assert verdict.word == "INVALID"
    (check,) = [c for c in verdict.checks if c.name == name]
    assert not check.passed
    assert remedy in check.remedy
    assert TRIAL.trial_id in check.finding or check.finding == "no trial has figures"


@pytest.mark.parametrize(
    ("health_ms", "beside_ms", "valid"),
    [
        (None, 1.1, False),  # nobody knows whose it is
        (1.0, 1.1, True),  # the server's own gRPC
        (1.0, 1.9, False),  # a client that is starved
    ],
)
def test_a_server_s_own_grpc_fails_no_run_and_a_starved_client_does(
    health_ms: float | None, beside_ms: float, valid: bool
) -> None:
    """Steps of which 1.9 ms are the server's own, as on real shards of a small model."""
    health_ns = None if health_ms is None else int(health_ms * MS)
    seen = [
        replace(
            o,
            ranks=(RankTiming(0, 0, 0, 1_900_000),),
            health_ns=health_ns if o.phase is Phase.PREFILL else None,
        )
        for index in range(TRIAL.runs)
        for o in run(index, [1.9 + beside_ms] * TRIAL.decode_length, TRIAL.batch_size)
    ]
    verdict = judged((summarise(TRIAL, seen, OK),))
    (check,) = (c for c in verdict.checks if c.name.startswith("client and transport"))
    assert check.passed is valid


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (
            lambda s: replace(s, client_share=None, rank_spread=None),
            ["client and transport take at most 20% of a step", "ranks agree within 10%"],
        ),
        (lambda s: replace(s, prompt_tokens=None), ["prompts have the asked length"]),
        (
            lambda s: replace(s, first_run_excess=None),
            ["the first run is no slower than the others"],
        ),
    ],
)
def test_what_cannot_be_checked_says_so(
    change: Callable[[TrialSummary], TrialSummary], names: list[str]
) -> None:
    verdict = judged((change(FINE),))
    assert verdict.valid
    assert not_made(verdict) == names


def test_a_spread_of_runs_over_a_quarter_fails() -> None:
    figures = FINE.decode_total
    assert figures is not None
    wide = replace(figures, latency=replace(figures.latency, highest=figures.latency.mean * 1.3))
    assert names_failed(judged((replace(FINE, decode_total=wide),))) == [
        "runs of a trial agree within 25%"
    ]


def test_running_out_of_memory_is_a_result() -> None:
    larger = trial(SERVER, 8)
    skipped = trial(SERVER, 16)
    both = plan((SERVER,), (TRIAL, larger, skipped))
    summaries = (
        FINE,
        ended(larger, Outcome.OUT_OF_MEMORY, "no room"),
        ended(skipped, Outcome.SKIPPED, "out of memory at batch size 8 already"),
    )
    verdict = judge(both, Origin.SIMULATED, (record(SERVER),), summaries, True)
    assert verdict.valid
    assert "1 ok, 1 out of memory, 1 skipped" in [c.finding for c in verdict.checks]


def test_an_unfinished_run_is_invalid() -> None:
    assert names_failed(judged(finished=False)) == ["every trial ended"]
    assert names_failed(judged(summaries=())) == ["every trial ended", "no trial failed"]


def test_a_run_in_which_nothing_was_run() -> None:
    untouched = replace(ended(TRIAL, Outcome.OK, ""), end=None)
    for summaries, finding in (
        ((untouched,), "no trial was run"),
        ((), "no trial was run"),
        ((replace(FINE, end=None),), "no trial was finished"),
    ):
        (check,) = [c for c in judged(summaries, (), False).checks if c.name == "no trial failed"]
        assert not check.passed
        assert check.finding == finding
        assert "--resume" in check.remedy
        assert "batch_size" not in check.remedy


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("no socket of the shards is known: name the master's in", "server.sockets"),
        ("vLLM has no gRPC shards: prefill and decode batches cannot be sent to it", "engine"),
        ("needs 9 tokens of KV cache; the server has room for 8 (log)", "batches.batch_size"),
    ],
)
def test_a_run_whose_trials_are_all_refused(reason: str, remedy: str) -> None:
    verdict = judged((ended(TRIAL, Outcome.REFUSED, reason),))
    (check,) = [c for c in verdict.checks if not c.passed]
    assert check.name == "no trial failed"
    assert remedy in check.remedy
    assert (reason in check.finding) is ("shards" in reason)


def test_what_the_launcher_chose_is_named() -> None:
    asked = replace(
        SERVER,
        arguments=(
            *SERVER.arguments,
            LauncherArgument("port", 80, False),
            LauncherArgument("hostname", "127.0.0.1", False),
        ),
    )
    printed = (*(facts(SERVER).arguments or ()), ("hostname", '"127.0.0.1"'))
    (check,) = [
        c
        for c in judged(records=(record(asked, arguments=printed),)).checks
        if c.name == "arguments in effect are those requested"
    ]
    assert check.passed
    assert check.finding == "as printed by 1 server; port: 80 requested, chosen by the launcher"


def test_the_status_of_a_check() -> None:
    assert passed("a", "3 of 3").status is CheckStatus.PASSED
    assert failed("a", "2 of 3", "more").status is CheckStatus.FAILED
    assert unmade("a", "none said").status is CheckStatus.NOT_CHECKED


def test_what_speaks_against_a_trial() -> None:
    of_trial = failed("a", "b", "c", (Failing("t1", "t1", "d1", "x"),))
    of_server = failed("b", "b", "c", (Failing("d1", None, "d1", "x"),))
    of_run = failed("c", "b", "c")
    verdict = Verdict((of_trial, of_server, of_run, passed("d", "fine")))
    assert verdict.against("t1", "d1") == (of_trial, of_server, of_run)
    assert verdict.against("t2", "d1") == (of_server, of_run)
    assert verdict.against("t2", "d2") == (of_run,)


def test_another_version_or_argument_is_found() -> None:
    other = record(SERVER, version="2.4.1-dev0")
    (check,) = [c for c in judged(records=(other,)).checks if not c.passed]
    named = "num_shard-2+quantize-none (2.4.1-dev0, planned was 2.4.0)"
    assert check.finding == f"1 of 1 deployments: {named}"
    assert check.remedy == "say the right one in server.version"
    printed = dict(facts(SERVER).arguments or ())
    printed["quantize"] = "Some(Gptq)"
    (check,) = [
        c
        for c in judged(records=(record(SERVER, arguments=tuple(printed.items())),)).checks
        if not c.passed
    ]
    assert "quantize is Some(Gptq), requested was None" in check.finding


def test_a_server_that_says_nothing_is_not_checked() -> None:
    silent = DeploymentRecord(SERVER, None, "it did not start")
    verdict = judged(records=(silent,))
    assert [c.finding for c in verdict.checks[-2:]] == [
        "no server printed its arguments",
        "no server said its version",
    ]


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (None, "None", True),
        (None, "[]", True),
        (None, "Some(4)", False),
        (4, "4", True),
        (4, "Some(4)", True),
        (4, "Some(\n    4,\n)", True),
        (4, "Some(8)", False),
        (4, "None", False),
        (1.2, "1.2", True),
        (1.2, "1.3", False),
        (0.3, "0.30000001", True),
        (True, "true", True),
        (True, "Some(true)", True),
        (True, "1", False),
        (False, "true", False),
        ("bitsandbytes-nf4", "Some(BitsandbytesNF4)", True),
        ("bitsandbytes-nf4", "Some(Bitsandbytes)", False),
        ("gptq", "None", False),
        ("/data/a b", '"/data/a b"', True),
        ('a"b', '"a\\"b"', True),
        ("1,2,4", "Some(\n    [\n        1,\n        2,\n        4,\n    ],\n)", True),
    ],
)
def test_same_reads_rusts_debug_form(value: ArgumentValue, text: str, expected: bool) -> None:
    assert same(value, text) is expected


def test_differences_follow_renames_and_ignore_how_a_server_is_reached() -> None:
    printed = dict(facts(SERVER).arguments or ())
    assert differences(SERVER, tuple(printed.items())) == ()
    renamed = printed | {"max_input_length": "None", "max_input_tokens": "Some(1000)"}
    assert differences(SERVER, tuple(renamed.items())) == ()
    del printed["max_input_length"], printed["max_input_tokens"]
    assert differences(SERVER, tuple(printed.items())) == (
        "max_input_length is not among the arguments that the server printed",
    )
    moved = replace(SERVER, arguments=(LauncherArgument("port", 8080, False),))
    assert differences(moved, (("model_id", f'"{SERVER.model}"'), ("port", "43211"))) == ()
    (other,) = differences(moved, (("model_id", '"gpt2"'),))
    assert other == 'model_id is "gpt2", requested was bigscience/bloomz-7b1-mt'


@pytest.mark.parametrize(
    ("info", "status", "finding"),
    [
        # as TGI 2.0.4 and 3.3.7 name it; of each server what it was asked for
        ({"max_input_length": 1000}, CheckStatus.PASSED, "as /info repeats them at 1 server"),
        ({"max_input_tokens": 1000}, CheckStatus.PASSED, "as /info repeats them at 1 server"),
        ({"max_input_tokens": 512}, CheckStatus.FAILED, "max_input_length is 512"),
        ({"max_batch_total_tokens": 7}, CheckStatus.NOT_CHECKED, "no server printed"),
        ({"max_input_tokens": None}, CheckStatus.NOT_CHECKED, "no server printed"),
    ],
)
def test_a_server_whose_log_is_not_ours_repeats_its_limits(
    info: dict[str, object], status: CheckStatus, finding: str
) -> None:
    asked = (
        LauncherArgument("max_input_length", 1000, False),
        LauncherArgument("max_batch_total_tokens", 16000, False),
    )
    details = (("/info", json.dumps(info)),)
    told = replace(facts(SERVER), arguments=None, details=details)
    found = check_arguments((DeploymentRecord(replace(SERVER, arguments=asked), told, ""),))
    assert found.status is status
    assert finding in found.finding
    other = replace(told, identity=Identity(engine="vllm"))
    found = check_arguments((DeploymentRecord(replace(SERVER, arguments=asked), other, ""),))
    assert found.status is CheckStatus.NOT_CHECKED


def published(p50: float, p90: float, p99: float, runs: int = 10) -> Verdict:
    row = PublishedFigures("prefill", 5.0, 4.0, 9.0, p50, p90, p99, None, None, None)
    s = summarise_published(TRIAL, (row,), OK, runs)
    s = replace(s, prefill=None, decode_token=s.prefill)
    return judge(PLAN, Origin.IMPORTED, (), (s,), True)


@pytest.mark.parametrize(
    ("p50", "p90", "p99", "valid"),
    [
        (5.0, 8.0, 9.0, True),
        (5.0, 9.0, 9.0, False),
        (5.0, 4.5, 4.5, False),
        (5.0, 8.0, 9.5, False),
        (5.0, 8.0, 7.0, False),
    ],
)
def test_published_percentiles(p50: float, p90: float, p99: float, valid: bool) -> None:
    verdict = published(p50, p90, p99)
    assert verdict.valid is valid
    if not valid:
        (check,) = [c for c in verdict.checks if not c.passed]
        assert check.remedy == "use Average, Lowest and Highest only"


def test_few_published_runs_may_tie() -> None:
    assert published(5.0, 9.0, 9.0, runs=9).valid
