"""num_shard-N.md: the published report's layout, for one tensor-parallel degree."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.kinds.batch.columns import (
    BATCH_SIZE,
    WHOLE,
    BatchRow,
    batch_row,
    latency,
    setting_heading,
    throughput,
    trial_word,
)
from tgi_bench.kinds.batch.estimated import section as estimated
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.batch.scaling import Setting, has_figures, settings, usable
from tgi_bench.kinds.devices import telemetry_section
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.kinds.load.page import load_section
from tgi_bench.kinds.sections import against, client_unfit, definitions, simulated, verdict
from tgi_bench.observation import Outcome
from tgi_bench.plan.plan import BatchTrial
from tgi_bench.report import units
from tgi_bench.report.column import VERDICT, Column, Grid
from tgi_bench.report.launcher import arguments, commands
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import (
    NOT_KNOWN,
    UNDEFINED,
    devices,
    known_engine,
    known_model,
    model,
    origin_line,
    short_reason,
)

LATENCY_HEADERS = ("Step", "Batch Size", "Average", "Lowest", "Highest", "p50", "p90", "p99")
THROUGHPUT_HEADERS = LATENCY_HEADERS[:5]
VERDICT_HEADERS = ("Batch Size", "Verdict", "Against it")
"""As a published report has them: what is read as one."""


def file_name(num_shard: int) -> str:
    """ "num_shard-2.md"."""
    return f"num_shard-{num_shard}.md"


def per_shard(run: Run, num_shard: int) -> str:
    """The report of all deployments of that num_shard."""
    records = [d for d in run.deployments if d.num_shard == num_shard]
    ids = {d.deployment.deployment_id for d in records}
    trials = [t for t in run.of(TrialSummary) if t.trial.deployment_id in ids]
    loads = [load for load in run.of(LoadSummary) if load.trial.deployment_id in ids]
    where = devices(run, num_shard, unknown="a running server")
    # A page of loads only has no batches to speak of; one of neither says so by empty tables.
    batches = bool(trials) or not loads
    sections = (
        f"# {run.plan.experiment}: {model(run)} on {where}\n",
        f"{origin_line(run)} Verdict of the whole run: {run.verdict.word} (see below).\n",
        client_unfit(run),
        commands(run, records),
        f"# {_arguments_title(records)}\n\n{arguments(run, records)}",
        f"# Experiment Generation Arguments\n\n{_parameters(run, records, trials, batches)}",
        f"# Tensor Parallel (TP) - {where}\n\n{_tables(run, trials)}" if batches else "",
        _runs(run, trials),
        estimated(run, frozenset(t.trial.trial_id for t in trials)) if trials else "",
        load_section(run, loads),
        telemetry_section(run, ids),
        simulated(run),
        f"{verdict(run)}\nThe checks are of the whole run, every num_shard of it.\n",
        definitions(run),
    )
    return "\n".join(section for section in sections if section)


def _parameters(
    run: Run,
    records: Sequence[DeploymentRecord],
    trials: Sequence[TrialSummary],
    batches: bool,
) -> str:
    """What the batches asked; of a page of loads only, whose tables say it, the server alone."""

    def each(values: Sequence[object]) -> str:
        return ", ".join(dict.fromkeys(map(str, values))) or UNDEFINED

    asked = [t.trial for t in trials]
    sampling = [t.sampling for t in asked]
    server = (
        ("Model", known_model(run) or NOT_KNOWN),
        (_version_title(records), each([_version(d) for d in records])),
    )
    if not batches:
        return markdown(Table(("Parameter", "Value"), server))
    rows = (
        *server,
        ("Sequence Length", each([t.sequence_length for t in asked])),
        ("Decode Length", each([t.decode_length for t in asked])),
        ("N Runs", each([t.runs for t in asked])),
        ("Warmups", each([t.warmups for t in asked])),
        ("Temperature", each([s.temperature for s in sampling])),
        ("Top K", each([s.top_k for s in sampling])),
        ("Top P", each([s.top_p for s in sampling])),
        ("Typical P", each([s.typical_p for s in sampling])),
        ("Repetition Penalty", each([s.repetition_penalty for s in sampling])),
        ("Watermark", each([str(s.watermark).lower() for s in sampling])),
        ("Do Sample", each([str(s.do_sample).lower() for s in sampling])),
    )
    return markdown(Table(("Parameter", "Value"), rows))


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


def _tables(run: Run, trials: Sequence[TrialSummary]) -> str:
    shared = settings(run.plan)
    by_length: dict[int, dict[Setting, list[TrialSummary]]] = {}
    for summary in trials:
        chosen = shared[summary.trial.trial_id]
        groups = by_length.setdefault(chosen.sequence_length, {})
        groups.setdefault(chosen, []).append(summary)
    parts = []
    for length, groups in by_length.items():
        parts.append(f"## Sequence Length {length}\n")
        for chosen, group in groups.items():
            parts.append(f"### {setting_heading(chosen)}\n")
            parts.append(markdown(latency(run, group)))
            parts.append(markdown(throughput(run, group)))
            parts.append(markdown(_verdicts(run, group)))
            parts.append(_notes(group))
    return "\n".join(part for part in parts if part)


def _verdicts(run: Run, group: Sequence[TrialSummary]) -> Table:
    """Each trial's own: the tables above have the published report's columns and no others."""
    columns: tuple[Column[BatchRow], ...] = (
        BATCH_SIZE,
        *WHOLE,
        VERDICT,
        Column("", lambda r: against(run, r.trial_id, r.deployment_id), "Against it", units.NAME),
    )
    return Grid(columns, [batch_row(run, summary) for summary in group]).page()


def _notes(group: Sequence[TrialSummary]) -> str:
    """Why cells hold a word: trials that share a reason share a line."""
    by_reason: dict[tuple[str, str], list[int]] = {}
    for summary in group:
        if not has_figures(summary):
            by_reason.setdefault(_why(summary), []).append(summary.trial.batch_size)
    lines = []
    for (word, why), sizes in by_reason.items():
        listed = f"batch size{'s' if len(sizes) > 1 else ''} {', '.join(map(str, sizes))}"
        lines.append(f"- {word}, {listed}: {why}\n")
    return "".join(lines)


def _why(summary: TrialSummary) -> tuple[str, str]:
    word = trial_word(summary)
    if summary.end is None:
        runs = f"{summary.runs} run{'' if summary.runs == 1 else 's'}"
        return word, f"the sweep ended before this trial did; {runs} of it were recorded"
    if summary.end.outcome is Outcome.OK:
        return word, "no run has all of its steps"
    reason = short_reason(summary.end.reason) or "no reason given"
    if summary.end.outcome is Outcome.SKIPPED:
        return word, f"skipped, not run: {reason}"
    return word, reason


def _runs(run: Run, trials: Sequence[TrialSummary]) -> str:
    """How many runs and samples stand behind a figure."""
    if not trials:
        return ""
    lines = dict.fromkeys(_count(run.origin, t.trial, t.runs) for t in usable(trials))
    text = "".join(lines) or "No trial has figures.\n"
    return f"# Runs\n\n{text}"


def _count(origin: Origin, trial: BatchTrial, runs: int) -> str:
    warmups = f"{trial.warmups} warm-up{'' if trial.warmups == 1 else 's'}"
    if origin is Origin.IMPORTED:
        return f"- {runs} runs for each batch size after {warmups}, as the published report says\n"
    steps = trial.decode_length - 1
    return (
        f"- {runs} of {trial.runs} runs for each batch size, {warmups} left out: {runs} prefill "
        f"steps, {runs * steps} decode steps, {runs if steps else 0} decode totals\n"
    )
