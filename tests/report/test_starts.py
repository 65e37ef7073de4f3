"""What a report says of how its servers were started."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.launch.deployments import docker
from tests.report.example import simulated_run
from tests.report.made import as_json, documents
from tgi_bench.analysis.run import Run
from tgi_bench.engines.engine import Engine
from tgi_bench.observation import ShardFacts
from tgi_bench.plan.plan import LauncherArgument


def _with_details(run: Run) -> Run:
    """The same digest of every image, a /info of each server's own."""
    records = tuple(
        replace(
            r,
            facts=replace(
                r.facts,
                details=(("Image digest", "sha256:0a"), ("/info", r.deployment.deployment_id)),
            ),
        )
        if r.facts is not None
        else r
        for r in run.deployments
    )
    return replace(run, deployments=records)


def test_details_stand_in_the_environment_once_where_servers_agree() -> None:
    page = documents(_with_details(simulated_run()))["report.md"]
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert sum("sha256:0a" in row for row in rows) == 1
    assert sum(row.startswith("| /info (num_shard-1+quantize-none)") for row in rows) == 1
    assert sum(row.startswith("| /info (") for row in rows) == 3  # one server did not start


def test_details_in_json() -> None:
    document = json.loads(as_json(_with_details(simulated_run())))
    assert document["deployments"][0]["server"]["details"]["Image digest"] == "sha256:0a"
    assert document["deployments"][3]["server"] is None


def _with_shards(run: Run, *said: ShardFacts | None) -> Run:
    """What the ranks of each server that started said."""
    shards = iter(said)
    records = tuple(
        r if r.facts is None else replace(r, facts=replace(r.facts, shards=next(shards)))
        for r in run.deployments
    )
    return replace(run, deployments=records)


def test_what_all_ranks_said_stands_in_one_row() -> None:
    one = ShardFacts("generate.v3", ("cuda",), ("torch.float16",))
    mixed = ShardFacts("generate.v2", ("cuda", "cpu"), ("torch.float16", "torch.float32"))
    run = _with_shards(simulated_run(), one, mixed, one)
    page = documents(run)["report.md"]
    (row,) = [line for line in page.splitlines() if line.startswith("| gRPC shards")]
    assert row.strip("| ").partition("| ")[2] == (
        "generate.v3, cuda, torch.float16: 1 rank; "
        "generate.v2, cpu, cuda, torch.float16, torch.float32: 2 ranks"
    )
    first, second = (d["server"]["shards"] for d in json.loads(as_json(run))["deployments"][:2])
    assert first == {
        "protocol": "generate.v3",
        "ranks": 1,
        "device_types": ["cuda"],
        "dtypes": ["torch.float16"],
    }
    assert (second["ranks"], second["device_types"]) == (2, ["cuda", "cpu"])


def test_ranks_that_were_not_asked() -> None:
    run = _with_shards(simulated_run(), None, None, None)
    assert "gRPC shards" not in documents(run)["report.md"]
    assert json.loads(as_json(run))["deployments"][0]["server"]["shards"] is None


def test_a_simulated_server_in_a_container_is_not_said_to_be_the_embedded_one() -> None:
    run = simulated_run()
    records = tuple(
        replace(r, deployment=replace(r.deployment, launcher=docker())) for r in run.deployments
    )
    page = documents(replace(run, deployments=records))["report.md"]
    assert "**Simulated.** The server says of itself that it simulates" in page
    assert "as its server says of itself" in page
    assert "A100-40GB-SXM" not in page


def test_another_engine() -> None:
    run = simulated_run()
    records = tuple(
        replace(
            r,
            deployment=replace(
                r.deployment,
                engine=Engine.VLLM,
                tgi_version="",
                arguments=(
                    LauncherArgument("enforce_eager", True, False),
                    LauncherArgument("tensor_parallel_size", 1, True),
                ),
            ),
            facts=None
            if r.facts is None
            else replace(r.facts, arguments=None, command=(), version=None),
        )
        for r in run.deployments
    )
    asked = replace(run.plan, deployments=tuple(r.deployment for r in records))
    page = documents(replace(run, deployments=records, plan=asked))["num_shard-1.md"]
    assert "vllm serve bigscience/bloomz-7b1-mt --enforce-eager --tensor-parallel-size 1" in page
    assert "| Engine" in page
    assert "| vLLM" in page
    assert "# Arguments of the server\n" in page
    assert "TGI Version" not in page
    assert "- enforce_eager: true" in page
