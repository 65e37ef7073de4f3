"""How much longer than its estimate a simulated run's steps took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.samples import deployment, facts, plan, summary, trial
from tests.launch.deployments import docker
from tests.report.example import published_run, simulated_run
from tests.report.made import documents
from tgi_bench.analysis.rules import Verdict, failed
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.step_time import decode_time, prefill_time
from tgi_bench.estimate.tables import accelerator, model_shape
from tgi_bench.kinds.batch.excess import CLIENT_SHARE, excess_sentences, excesses, ranks_and_cores
from tgi_bench.plan.plan import Deployment

SERVER = deployment(2)


def _run(server: Deployment, factors: tuple[tuple[float, float], ...]) -> Run:
    """Trials whose prefill and decode steps take the estimate times (prefill, decode)."""
    setup = Setup(
        model_shape("bigscience/bloomz-7b1-mt"), accelerator("A100-40GB-SXM"), server.num_shard
    )
    trials = [trial(server, 2**i) for i in range(len(factors))]
    summaries = []
    for asked, (prefill, decode) in zip(trials, factors, strict=True):
        size = asked.batch_size
        steps = [decode_time(setup, size, 100 + i).total_s for i in (1, 2)]
        # the samples' runs are 0, 1 and 2 % slower: 1 % in the mean
        summaries.append(
            summary(
                asked,
                prefill * prefill_time(setup, size, 100).total_s * 1e3 / 1.01,
                decode * sum(steps) / 2 * 1e3 / 1.01,
            )
        )
    return replace(
        simulated_run(),
        plan=plan((server,), trials),
        deployments=(DeploymentRecord(server, facts(server), ""),),
        found=tuple(summaries),
    )


def test_excess_by_hand() -> None:
    run = _run(SERVER, ((1.02, 1.1), (1.04, 1.2), (1.5, 1.6)))
    assert [round(e.prefill, 4) for e in excesses(run)] == [0.02, 0.04, 0.5]
    assert [round(e.decode or 0, 4) for e in excesses(run)] == [0.1, 0.2, 0.6]
    assert excess_sentences(run) == (
        "\nDecode steps took 20.0% longer than the estimate (median over 3 trials; at most 60.0%). "
        "Prefill steps took 4.0% longer than the estimate (median over 3 trials; at most 50.0%). "
        "What is longer is the client, the transport and this machine's cores: up to 2 simulated "
        "ranks share this machine's 2 cores.\n"
    )
    pages = documents(run)
    assert all("took 20.0% longer than the estimate" in page for page in pages.values())


def test_steps_that_took_less_than_the_estimate_have_no_cause() -> None:
    assert excess_sentences(_run(SERVER, ((0.9, 0.8),))) == (
        "\nDecode steps took 20.0% less than the estimate (median over 1 trial; at most -20.0%). "
        "Prefill steps took 10.0% less than the estimate (median over 1 trial; at most -10.0%).\n"
    )


def test_before_0_9_0_prefill_answers_with_its_prompts() -> None:
    newer = replace(SERVER, tgi_version="0.9.0")
    older = replace(SERVER, tgi_version="0.8.2")
    (new,), (old,) = (excesses(_run(s, ((1.5, 1.5),))) for s in (newer, older))
    assert old.prefill < new.prefill
    assert old.decode == new.decode


@pytest.mark.parametrize(
    "server",
    [
        replace(SERVER, model="somebody/unknown"),
        replace(SERVER, accelerator="no such device"),
        replace(SERVER, launcher=docker()),
    ],
)
def test_nothing_is_said_where_no_estimate_can_be_made(server: Deployment) -> None:
    run = _run(server, ((1.1, 1.1),))
    assert excesses(run) == ()
    assert excess_sentences(run) == ""
    assert "longer than the estimate" not in documents(run)["report.md"]


def test_only_of_simulated_runs() -> None:
    assert excess_sentences(published_run()) == ""
    assert excess_sentences(replace(simulated_run(), origin=Origin.MEASURED)) == ""


def test_ranks_and_cores() -> None:
    run = simulated_run()
    assert ranks_and_cores(run) == "up to 2 simulated ranks share this machine's 2 cores"
    assert ranks_and_cores(replace(run, environment=())) is None
    assert ranks_and_cores(replace(run, origin=Origin.MEASURED)) is None
    alone = replace(run, deployments=run.deployments[:1], environment=(("CPU cores", "1 of 1"),))
    assert ranks_and_cores(alone) == "1 simulated rank runs on this machine's 1 core"


def test_the_remedy_for_the_clients_share_names_ranks_and_cores() -> None:
    check = failed(CLIENT_SHARE, "1 of 1 trials: a (30.0%)", "raise batches.batch_size")
    run = replace(simulated_run(), verdict=Verdict((check,)))
    shared = "up to 2 simulated ranks share this machine's 2 cores"
    assert f"Remedy: raise batches.batch_size: {shared}.\n" in documents(run)["report.md"]
    measured = replace(run, origin=Origin.MEASURED)
    assert "Remedy: raise batches.batch_size.\n" in documents(measured)["report.md"]
