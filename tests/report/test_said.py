"""What a server said of itself in a report, beside what the experiment said of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.launch.deployments import attach
from tests.report.example import simulated_run
from tests.report.made import as_json, documents
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.kinds.batch.columns import as_csv
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.observation import Identity, Outcome, ShardFacts, TrialEnd
from tgi_bench.report.source import EXPERIMENT_FILE, OPTIONS, RESULTS

VLLM = Identity("vllm", "0.32.0", ("org/other", "org/more"), revision="0a1b")
TGI = Identity("tgi", "3.3.6-dev0", ("m",), sha="ac02c62c", docker_label="sha-ac02c62")
ON_CPU = replace(TGI, device_type="cpu", dtype="torch.float32")
TWO_RANKS = ShardFacts("generate.v3", ("cpu", "cpu"), ("torch.float32", "torch.float32"))


def _attached(identity: Identity, shards: ShardFacts | None = None) -> Run:
    """One server that ran already; its trials are those of num_shard 1."""
    run = simulated_run()
    record = run.deployments[0]
    assert record.facts is not None
    deployment = replace(
        record.deployment,
        launcher=attach("http://h:80"),
        arguments=(),
    )
    facts = replace(
        record.facts,
        identity=identity,
        shards=shards,
        version=identity.version,
        arguments=None,
        details=(),
        simulated=False,
    )
    trials = tuple(
        t for t in run.of(TrialSummary) if t.trial.deployment_id == deployment.deployment_id
    )
    asked = tuple(t.trial for t in trials)
    plan = replace(run.plan, deployments=(deployment,), trials=asked)
    return replace(
        run,
        plan=plan,
        origin=Origin.MEASURED,
        found=trials,
        deployments=(replace(record, deployment=deployment, facts=facts),),
    )


@pytest.mark.parametrize(
    ("identity", "shards", "where", "file"),
    [
        (TGI, None, "a running server", "num_shard-1.md"),
        (ON_CPU, None, "a running server", "num_shard-1.md"),
        (TGI, TWO_RANKS, "cpu (num_shard 2)", "num_shard-2.md"),
        (ON_CPU, TWO_RANKS, "cpu (num_shard 2)", "num_shard-2.md"),
        (TGI, replace(TWO_RANKS, device_types=("cuda", "cuda")), "2 GPUs", "num_shard-2.md"),
    ],
)
def test_a_cpu_is_never_gpus_and_ranks_are_what_the_sockets_say(
    identity: Identity, shards: ShardFacts | None, where: str, file: str
) -> None:
    run = _attached(identity, shards)
    pages = documents(run)
    assert set(pages) == {"report.md", file}
    assert pages[file].startswith(f"# {run.plan.experiment}: {run.plan.model} on {where}\n")
    if shards is not None:
        assert f"# Tensor Parallel (TP) - {where}\n" in pages[file]
        assert f"- [{where}]({file})" in pages["report.md"]
        assert "- num_shard: 2\n" in pages[file]
        assert {row.split(",")[3] for row in as_csv(run).splitlines()[1:]} == {"2"}
    if where.startswith("cpu"):
        assert "GPU" not in pages[file].partition("\n")[0]


def test_a_started_server_on_a_cpu() -> None:
    run = simulated_run()
    records = tuple(
        r if r.facts is None else replace(r, facts=replace(r.facts, identity=ON_CPU, shards=None))
        for r in run.deployments
    )
    pages = documents(replace(run, deployments=records))
    assert "on cpu (num_shard 1)\n" in pages["num_shard-1.md"]


def test_what_it_said_stands_in_the_environment_and_in_json() -> None:
    page = documents(_attached(ON_CPU, TWO_RANKS))["report.md"]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in page.splitlines()]
    for row in (
        ["Engine, as it says", "tgi 3.3.6-dev0"],
        ["Built from, as it says", "ac02c62c, sha-ac02c62"],
        ["Device, as it says", "cpu, torch.float32"],
        ["gRPC shards", "generate.v3, cpu, torch.float32: 2 ranks"],
    ):
        assert row in rows
    other = documents(_attached(VLLM))["report.md"]
    assert "vllm 0.32.0" in other
    assert "org/other, org/more" in other
    (shown,) = json.loads(as_json(_attached(VLLM, TWO_RANKS)))["deployments"]
    assert shown["engine"] == "vllm"
    assert shown["server"]["identity"]["models"] == ["org/other", "org/more"]
    assert shown["server"]["identity"]["revision"] == "0a1b"
    assert shown["server"]["shards"]["protocol"] == "generate.v3"


def test_a_model_that_the_experiment_names_is_not_what_its_server_says() -> None:
    run = simulated_run()
    record = run.deployments[0]
    assert record.facts is not None
    deployment = replace(record.deployment, launcher=attach())

    def simulation(identity: Identity) -> str:
        facts = replace(record.facts, identity=identity) if record.facts is not None else None
        shown = replace(record, deployment=deployment, facts=facts)
        others = run.deployments[1:]
        return documents(replace(run, deployments=(shown, *others)))["report.md"]

    said = simulation(replace(TGI, models=("org/another",)))
    assert "- model org/another, as its server says of itself" in said
    assert f"- model {run.plan.model}, as its server says" not in said
    assert "- model not known, as its server says" in simulation(Identity("tgi"))


def test_the_engine_that_answered_is_the_one_that_is_named() -> None:
    page = documents(_attached(VLLM))["num_shard-1.md"]
    assert "# Arguments of the server" in page
    assert "vLLM 0.32.0" in page
    proxy = documents(_attached(Identity("litellm")))["num_shard-1.md"]
    assert "litellm" in proxy
    silent = documents(_attached(Identity()))["num_shard-1.md"]
    assert "text_generation_launcher: Args" not in silent


def test_how_to_make_it_again_repeats_every_option() -> None:
    run = simulated_run()
    rows = ((EXPERIMENT_FILE, "e.yaml"), (RESULTS, "/srv/my runs"), (OPTIONS, "--no-pull"))
    page = documents(replace(run, environment=rows))["report.md"]
    assert "tgi-bench sweep e.yaml" in page
    assert " --results '/srv/my runs' --no-pull\n" in page
    assert f"tgi-bench report '/srv/my runs/{run.plan.experiment}/{run.run_id}'\n" in page


def test_a_host_that_ran_out_of_memory_is_another_word_than_the_device() -> None:
    run = simulated_run()
    assert "host OOM" not in "".join(documents(run).values())
    ended = [t.end.outcome if t.end else None for t in run.of(TrialSummary)]
    index = ended.index(Outcome.OUT_OF_MEMORY)
    host = TrialEnd(Outcome.HOST_OUT_OF_MEMORY, "decode step 1 of batch size 4: killed (signal 9)")
    trials = list(run.of(TrialSummary))
    trials[index] = replace(trials[index], end=host)
    pages = documents(run.having(TrialSummary, trials))
    assert "| host OOM |" in pages["num_shard-1.md"].replace("  ", "")
    assert "- **host OOM**: the memory limit" in pages["num_shard-1.md"]
    assert "host out of memory" in pages["report.md"]
    assert "host_out_of_memory" in as_csv(run.having(TrialSummary, trials))
