"""A run as files: report.md, num_shard-N.md, reStructuredText and CSV, over every kind of trial."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from tgi_bench.analysis.run import CORRECTED, DOUBTFUL, DeploymentRecord, Origin, Run
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.errors import InputError
from tgi_bench.kinds.batch.estimated import rst_section
from tgi_bench.kinds.batch.estimated_measured import estimates_csv
from tgi_bench.kinds.devices import devices_section
from tgi_bench.kinds.kind import Kinds, View, views
from tgi_bench.kinds.sections import client_unfit, definitions, environment, simulated, verdict
from tgi_bench.report.launcher import arguments, commands
from tgi_bench.report.markdown_page import page
from tgi_bench.report.rst_table import escaped, heading
from tgi_bench.report.source import COMMAND, EXPERIMENT_FILE, OPTIONS, RESULTS
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

PARTIAL_TITLE = "Trials without figures, or with partial ones"


def index(run: Run, kinds: Kinds) -> str:
    """The page that a reader opens first."""
    of_run = views(run, kinds)
    sections = (
        f"# {run.plan.experiment}: {model(run)}\n",
        f"{origin_line(run)}\n",
        f"Run {run.run_id}. Verdict: **{run.verdict.word}**"
        + ("." if run.finished else "; the sweep is not finished.")
        + "".join(_sentence(view.goals(run)) for view in of_run)
        + "\n",
        client_unfit(run),
        _links(run),
        *(section(run) for view in of_run for section in view.overview),
        _without_figures(run, of_run),
        "" if run.deployments else devices_section(run),
        verdict(run),
        *(section(run) for view in of_run for section in view.closing),
        simulated(run),
        reproduce(run),
        environment(run),
        definitions(run, of_run),
    )
    return "\n".join(section for section in sections if section)


def _sentence(line: str) -> str:
    return f" {line[0].upper()}{line[1:]}." if line else ""


def shard_counts(run: Run) -> tuple[int, ...]:
    """Every num_shard of the run, ascending."""
    return tuple(sorted({record.num_shard for record in run.deployments}))


def _links(run: Run) -> str:
    lines = [f"- [{devices(run, n)}]({file_name(n)})\n" for n in shard_counts(run)]
    return f"# Tables\n\n{''.join(lines)}" if lines else ""


def _without_figures(run: Run, of_run: Sequence[View[Any]]) -> str:
    """Every trial that did not end OK, with its reason; last those with figures of a part."""
    rows = [row for view in of_run for row in view.unfinished(run)]
    partial = [row for view in of_run for row in view.partial(run)]
    if not rows and not partial:
        return ""
    title = PARTIAL_TITLE if partial else "Trials without figures"
    cells = tuple((row.name, row.outcome, row.reason) for row in (*rows, *partial))
    return f"# {title}\n\n{markdown(Table(('Trial', 'Outcome', 'Reason'), cells))}"


def reproduce(run: Run) -> str:
    """The commands that make this run and this report again."""
    known = dict(run.environment)
    run_dir = f"{known.get(RESULTS, 'results')}/{run.plan.experiment}/{run.run_id}"
    if run.origin is Origin.IMPORTED:
        source = known.get("imported from", f"{run.plan.experiment}.md")
        first = shlex.join(("tgi-bench", "import", source))
    elif COMMAND in known:
        first = known[COMMAND]
    else:
        file = known.get(EXPERIMENT_FILE, f"experiments/{run.plan.experiment}.yaml")
        words = ["tgi-bench", "sweep", file]
        for override in run.plan.overrides:
            if override.key_path.startswith("only."):
                words += ["--only", f"{override.key_path[5:]}={override.value}"]
            else:
                words += ["--set", f"{override.key_path}={override.value}"]
        words += ["--results", known[RESULTS]] if RESULTS in known else []
        first = " ".join(filter(None, (shlex.join(words), known.get(OPTIONS))))
    return (
        "# How to make it again\n\n"
        f"```bash\n{first}\ntgi-bench report {shlex.quote(run_dir)}\n```\n\n"
        f"Plan digest: `{run.plan.digest}`; the experiment itself is stored in run.db.\n"
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


def rst_page(run: Run, tables: Sequence[str] = ()) -> str:
    """Estimates beside the run's figures. tables: those of a run that holds both itself.

    Raises InputError where nothing of the run is estimated.
    """
    estimated = rst_section(run)
    if not estimated and not tables:
        raise InputError(
            f"run {run.run_id}: nothing of it can be estimated, which reStructuredText is for; use "
            "--format md"
        )
    parts = [
        heading(f"{run.plan.experiment}: {run.plan.model}", "="),
        f"{_origin(run)} Verdict: **{run.verdict.word}**.\n",
        *tables,
        estimated,
    ]
    notes = "".join(
        f"- {escaped(f'{name}: {value}')}\n"
        for name, value in run.environment
        if name.startswith((CORRECTED, DOUBTFUL))
    )
    if notes:
        parts.append(f"Notes\n-----\n\n{notes}")
    return "\n".join(part for part in parts if part)


def _origin(run: Run) -> str:
    """The line of the Markdown page, whose bold first word is bold here too."""
    _, word, sentence = origin_line(run).split("**", 2)
    return f"**{word}** {escaped(sentence)}"


def documents(run: Run, kinds: Kinds) -> dict[str, str]:
    """File name -> text: report.md, and one num_shard-N.md for each tensor-parallel degree."""
    shards = {file_name(n): per_shard(run, n, kinds) for n in shard_counts(run)}
    pages = {"report.md": index(run, kinds), **shards}
    return {name: page(text) for name, text in pages.items()}


def tables(run: Run, kinds: Kinds) -> dict[str, str]:
    """CSV by file name: those of each kind that the run has, last what is estimated of it."""
    of_run = views(run, kinds)
    made = {name: table(run) for view in of_run for name, table in view.tables.items()}
    made["estimates.csv"] = estimates_csv(run)
    return {name: text for name, text in made.items() if text}
