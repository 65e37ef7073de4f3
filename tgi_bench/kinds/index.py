"""report.md: the verdict, an overview of each kind of trial, what failed, the way to the tables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from tgi_bench.analysis.run import Origin, Run
from tgi_bench.kinds.devices import devices_section
from tgi_bench.kinds.kind import Kinds, View, views
from tgi_bench.kinds.per_shard import file_name
from tgi_bench.kinds.sections import client_unfit, definitions, environment, simulated, verdict
from tgi_bench.report.source import COMMAND, EXPERIMENT_FILE, OPTIONS, RESULTS
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import devices, model, origin_line

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
