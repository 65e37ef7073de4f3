"""report.md: the verdict, how the figures scale, what failed, and the way to the tables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tgi_bench.analysis.run import Origin, Run
from tgi_bench.kinds.batch.columns import setting_heading
from tgi_bench.kinds.batch.estimated import summary_section
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.batch.scaling import BestBatch, ScalingPoint, Setting, best_batches, scaling
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.kinds.load.goals import goals_line, goals_section
from tgi_bench.kinds.load.group import PARTIAL, has_figures, missing, partly, without_figures
from tgi_bench.kinds.load.overview import against_throughput, client_error
from tgi_bench.kinds.per_shard import file_name
from tgi_bench.kinds.sections import client_unfit, definitions, environment, simulated, verdict
from tgi_bench.observation import Outcome
from tgi_bench.report import units
from tgi_bench.report.column import Column, Grid
from tgi_bench.report.source import COMMAND, EXPERIMENT_FILE, OPTIONS, RESULTS
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import (
    NOT_FINISHED,
    UNDEFINED,
    cell_word,
    devices,
    model,
    num_shard,
    origin_line,
    outcome_words,
    short_reason,
)

_STEP_NAMES = {"prefill": "Prefill", "decode_token": "Decode (token)"}

_NOT_SCALING = 1.05
"""Efficiency that noise does not explain."""


def index(run: Run) -> str:
    """The page that a reader opens first."""
    sections = (
        f"# {run.plan.experiment}: {model(run)}\n",
        f"{origin_line(run)}\n",
        f"Run {run.run_id}. Verdict: **{run.verdict.word}**"
        + ("." if run.finished else "; the sweep is not finished.")
        + _missed(run)
        + "\n",
        client_unfit(run),
        _links(run),
        _best(run),
        _scaling(run),
        summary_section(run),
        against_throughput(run),
        goals_section(run),
        _without_figures(run),
        verdict(run),
        client_error(run),
        simulated(run),
        reproduce(run),
        environment(run),
        definitions(run),
    )
    return "\n".join(section for section in sections if section)


def _missed(run: Run) -> str:
    """Whether loads met what they had to; empty where nothing was asked of them."""
    line = goals_line(run)
    return f" {line[0].upper()}{line[1:]}." if line else ""


def shard_counts(run: Run) -> tuple[int, ...]:
    """Every num_shard of the run, ascending."""
    return tuple(sorted({record.num_shard for record in run.deployments}))


def _links(run: Run) -> str:
    lines = (f"- [{devices(run, n)}]({file_name(n)})\n" for n in shard_counts(run))
    return f"# Tables\n\n{''.join(lines)}"


def _best(run: Run) -> str:
    best = best_batches(run.plan, run.of(TrialSummary))
    if not best:
        return ""
    columns: tuple[Column[BestBatch], ...] = (
        Column("", lambda b: num_shard(run.record(b.deployment_id)), "num_shard"),
        Column("", lambda b: setting_heading(b.setting), "Setting", units.NAME),
        Column("", lambda b: b.setting.sequence_length, "Sequence Length"),
        Column("", lambda b: b.batch_size, "Batch Size"),
        Column("", lambda b: b.tokens_per_s, "Decode throughput", units.TOKENS_PER_S),
        Column("", lambda b: b.step_latency_ns, "Decode (token)", units.MS),
        Column("", _above, "Larger batch sizes", units.WORD),
    )
    return (
        "# Best batch size\n\nThe one with the highest decode throughput. Where larger ones were "
        "not tried, one of them may do better if it fits.\n\n"
        + markdown(Grid(columns, best).page())
        + _doubted(run, best)
    )


def _doubted(run: Run, best: Sequence[BestBatch]) -> str:
    """Which of them are not to be believed; empty where all are."""
    lines = [
        f"- num_shard {num_shard(run.record(b.deployment_id))}, {setting_heading(b.setting)}, "
        f"batch size {b.batch_size}: its own verdict is INVALID.\n"
        for b in best
        if run.verdict.against(b.trial_id, b.deployment_id)
    ]
    return "".join(["\n", *lines]) if lines else ""


def _above(best: BestBatch) -> str:
    """What is known of larger batch sizes than the best one."""
    if best.slower_above:
        return "tried, slower"
    if best.next_above is None and not best.unfinished_above:
        return "not tried"
    return f"next one {cell_word(best.next_above)}"


def _scaling(run: Run) -> str:
    """One table for each setting; the smallest num_shard's cell holds the latency itself."""
    by_setting: dict[Setting, list[ScalingPoint]] = {}
    for point in scaling(run.plan, run.of(TrialSummary)):
        by_setting.setdefault(point.setting, []).append(point)
    if not by_setting:
        return ""
    text = (
        "# Speed-up and efficiency over num_shard\n\nMean latency, and against the smallest "
        "num_shard of the row its speed-up and efficiency. Rows compare trials that differ in "
        "num_shard only.\n"
    )
    for shared, points in by_setting.items():
        heading = f"Sequence Length {shared.sequence_length}, {setting_heading(shared)}"
        text += f"\n## {heading}\n\n{markdown(_scaling_table(points))}"
    if any(p.efficiency > _NOT_SCALING for points in by_setting.values() for p in points):
        text += (
            "\nAn efficiency above 100% is no gain of parallel work alone: the smallest num_shard "
            "ran another code path, or was short of memory.\n"
        )
    return text


def _scaling_table(points: list[ScalingPoint]) -> Table:
    shards = sorted({p.num_shard for p in points})
    rows: dict[tuple[str, int], dict[int, str]] = {}
    for point in points:
        row = rows.setdefault((_STEP_NAMES[point.step], point.batch_size), {})
        cell = units.MS.text(point.latency_ns)
        if row:
            cell += f", {point.speed_up:.2f}x, {point.efficiency:.0%}"
        row[point.num_shard] = cell
    return Table(
        ("Step", "Batch Size", *(f"num_shard {n}" for n in shards)),
        tuple(
            (step, str(batch), *(cells.get(n, "-") for n in shards))
            for (step, batch), cells in rows.items()
        ),
        frozenset(range(1, len(shards) + 2)),
    )


def _without_figures(run: Run) -> str:
    """Every trial that did not end OK, with its reason."""
    rows = tuple(
        (t.trial.trial_id, *_end(t))
        for t in run.of(TrialSummary)
        if t.end is None or t.end.outcome is not Outcome.OK
    ) + tuple(
        (load.trial.trial_id, *_load_end(load)) for load in without_figures(run.of(LoadSummary))
    )
    partial = tuple(
        (load.trial.trial_id, *partly(load))
        for load in run.of(LoadSummary)
        if load.partial and has_figures(load)
    )
    if not rows and not partial:
        return ""
    title = "Trials without figures" + (f", or with {PARTIAL} ones" if partial else "")
    table = markdown(Table(("Trial", "Outcome", "Reason"), (*rows, *partial)))
    return f"# {title}\n\n{table}"


def _end(summary: TrialSummary) -> tuple[str, str]:
    """Outcome and reason in words."""
    if summary.end is None:
        return NOT_FINISHED, f"{summary.runs} of {summary.trial.runs} runs recorded"
    return outcome_words(summary.end), short_reason(summary.end.reason) or UNDEFINED


def _load_end(summary: LoadSummary) -> tuple[str, str]:
    """As `_end`, of a load."""
    word, reason = missing(summary)
    return word if summary.end is None else outcome_words(summary.end), reason


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
