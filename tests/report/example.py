"""One simulated run with every kind of end, and the published report as an imported one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.analysis.samples import deployment, ended, facts, plan, summary, trial
from tests.report.made import judge
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.kinds.batch.metrics import summarise_published
from tgi_bench.kinds.sections import OTHERS, WRITTEN_BY
from tgi_bench.observation import Outcome
from tgi_bench.plan.plan import LauncherArgument, Override
from tgi_bench.published.tgi import parse
from tgi_bench.published.tgi_run import to_run_parts

PUBLISHED = Path(__file__).parents[1] / "golden" / "published_tgi_bloomz-7b1-mt.md"


def simulated_run() -> Run:
    """num_shard 1 and 2, plain and bitsandbytes; one server does not start."""
    servers = [deployment(n, q) for n in (1, 2) for q in (None, "bitsandbytes")]
    trials = [trial(d, size) for d in servers for size in (1, 2, 4, 8)]
    asked = replace(
        plan(servers, trials),
        overrides=(Override("only.num_shard", "1,2"), Override("server.launcher", "embedded")),
    )
    memory = (
        "CUDA out of memory. Tried to allocate 7.66 GiB (GPU 0; 39.39 GiB total capacity) "
        "(simulated)"
    )
    ends = {
        (1, None, 4): (Outcome.OUT_OF_MEMORY, memory),
        (1, None, 8): (Outcome.SKIPPED, "out of memory at batch size 4 already"),
        (2, None, 8): (Outcome.REFUSED, "1608 tokens asked, room for 1500"),
        (1, "bitsandbytes", 8): (Outcome.TIMEOUT, "no answer within 600 s"),
    }
    summaries = []
    for server in servers:
        for t in (t for t in trials if t.deployment_id == server.deployment_id):
            speed = server.num_shard * (0.5 if server.quantize else 1.0)
            failed = server.num_shard == 2 and server.quantize is not None
            if failed:
                summaries.append(ended(t, Outcome.LAUNCH_FAILED, "ShardCannotStart | see its log"))
            elif end := ends.get((server.num_shard, server.quantize, t.batch_size)):
                summaries.append(ended(t, *end))
            else:
                summaries.append(summary(t, 40 * t.batch_size / speed, 20 / speed))
    records = [
        DeploymentRecord(d, None, "ShardCannotStart")
        if d.num_shard == 2 and d.quantize
        else DeploymentRecord(d, facts(d), "")
        for d in servers
    ]
    return Run(
        run_id="20260101T000000Z-dddddd",
        plan=asked,
        origin=Origin.SIMULATED,
        environment=(
            ("tgi-bench", "0.1.0"),
            ("CPU", "two cores | one socket"),
            ("CPU cores", "2 of 8"),
        ),
        deployments=tuple(records),
        found=tuple(summaries),
        verdict=judge(asked, Origin.SIMULATED, records, summaries, True),
        finished=True,
    )


def imported_run(text: str, file_name: str) -> Run:
    """A published report as a run."""
    report = parse(text)
    asked, found = to_run_parts(report, file_name)
    records = tuple(DeploymentRecord(d, None, "") for d in asked.deployments)
    trials = tuple(
        summarise_published(t, found[t.trial_id][1], found[t.trial_id][0], t.runs)
        for t in asked.trials
    )
    return Run(
        run_id="imported",
        plan=asked,
        origin=Origin.IMPORTED,
        environment=((WRITTEN_BY, OTHERS),),
        deployments=records,
        found=trials,
        verdict=judge(asked, Origin.IMPORTED, records, trials, True),
        finished=True,
    )


def published_run() -> Run:
    return imported_run(PUBLISHED.read_text(encoding="utf-8"), "tgi_bloomz-7b1-mt.md")


def several_settings() -> Run:
    """A third argument varies: max_batch_total_tokens 16000 and None."""
    servers = [
        replace(
            deployment(1),
            deployment_id=f"num_shard-1+max_batch_total_tokens-{value}",
            arguments=(
                *deployment(1).arguments,
                LauncherArgument("max_batch_total_tokens", value, True),
            ),
        )
        for value in (16000, None)
    ]
    trials = [trial(d, 1) for d in servers]
    asked = plan(servers, trials)
    records = tuple(DeploymentRecord(d, None, "") for d in servers)
    summaries = tuple(summary(t) for t in trials)
    return Run(
        run_id="several",
        plan=asked,
        origin=Origin.MEASURED,
        environment=(),
        deployments=records,
        found=summaries,
        verdict=judge(asked, Origin.MEASURED, records, summaries, True),
        finished=True,
    )
