"""num_shard-N.md: the published report's layout, for one tensor-parallel degree."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.run import DeploymentRecord, Run
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.kinds.devices import devices_section
from tgi_bench.kinds.kind import Kinds, views
from tgi_bench.kinds.sections import client_unfit, definitions, simulated, verdict
from tgi_bench.report.launcher import arguments, commands
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import (
    NOT_KNOWN,
    devices,
    each,
    known_engine,
    known_model,
    model,
    origin_line,
)


def file_name(num_shard: int) -> str:
    """ "num_shard-2.md"."""
    return f"num_shard-{num_shard}.md"


def per_shard(run: Run, num_shard: int, kinds: Kinds) -> str:
    """The report of all deployments of that num_shard."""
    records = [d for d in run.deployments if d.num_shard == num_shard]
    ids = {d.deployment.deployment_id for d in records}
    of_run = views(run, kinds)
    found = [(v, [s for s in run.of(v.summary) if s.deployment_id in ids]) for v in of_run]
    # A page on which nothing was run says so by the first kind's empty tables.
    shown = [(view, own) for view, own in found if own] or [(kinds[0].view(), [])]
    where = devices(run, num_shard, unknown="a running server")
    asked = [row for view, own in shown for row in view.parameters(own)]
    sections = (
        f"# {run.plan.experiment}: {model(run)} on {where}\n",
        f"{origin_line(run)} Verdict of the whole run: {run.verdict.word} (see below).\n",
        client_unfit(run),
        commands(run, records),
        f"# {_arguments_title(records)}\n\n{arguments(run, records)}",
        f"# Experiment Generation Arguments\n\n{_parameters(run, records, asked)}",
        *(part for view, own in shown for part in view.on_server(run, where, own)),
        devices_section(run, {s.trial_id for _, own in found for s in own}),
        simulated(run),
        f"{verdict(run)}\nThe checks are of the whole run, every num_shard of it.\n",
        definitions(run, of_run),
    )
    return "\n".join(section for section in sections if section)


def _parameters(
    run: Run, records: Sequence[DeploymentRecord], asked: Sequence[tuple[str, str]]
) -> str:
    """The server, and what was asked of it; where tables say that, the server alone."""
    server = (
        ("Model", known_model(run) or NOT_KNOWN),
        (_version_title(records), each(map(_version, records))),
    )
    return markdown(Table(("Parameter", "Value"), (*server, *asked)))


def _arguments_title(records: Sequence[DeploymentRecord]) -> str:
    """As the published report has it; of another engine, or one not known, in plain words."""
    tgi = all(known_engine(r) == Engine.TGI for r in records)
    return "text_generation_launcher: Args" if tgi else "Arguments of the server"


def _version_title(records: Sequence[DeploymentRecord]) -> str:
    """Of TGI alone, or of whatever engine it is."""
    tgi = all(known_engine(r) == Engine.TGI for r in records)
    return "TGI Version" if tgi else "Engine"


def _version(record: DeploymentRecord) -> str:
    engine, deployment = known_engine(record), record.deployment
    if engine is None:
        return NOT_KNOWN
    assumed = " (assumed)" if deployment.version_assumed else ""
    planned = f"{deployment.tgi_version}{assumed}" if engine == deployment.engine else ""
    said = record.facts.version if record.facts is not None else None
    if engine == Engine.TGI:
        return said or planned or NOT_KNOWN
    title = engine_spec(Engine(engine)).title if engine in set(Engine) else engine
    return f"{title} {said or planned}".rstrip()
