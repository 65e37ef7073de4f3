"""The pages' parts about batches: tables by length and setting, scaling, the best batch size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tgi_bench.analysis.run import Origin, Run
from tgi_bench.analysis.telemetry import MeasuredWindows
from tgi_bench.devices.observation import Telemetry
from tgi_bench.kinds.batch.columns import (
    BATCH_SIZE,
    WHOLE,
    BatchRow,
    as_csv,
    batch_row,
    batches_on_screen,
    latency,
    setting_heading,
    throughput,
    trial_json,
    trial_word,
)
from tgi_bench.kinds.batch.estimated import section, summary_section
from tgi_bench.kinds.batch.metrics import (
    CLIENT_TERM,
    DEFINITIONS,
    HOST_MEMORY,
    TrialSummary,
    summarise,
    summarise_published,
)
from tgi_bench.kinds.batch.rules import batch_checks
from tgi_bench.kinds.batch.scaling import (
    BestBatch,
    ScalingPoint,
    Setting,
    best_batches,
    has_figures,
    scaling,
    settings,
    usable,
)
from tgi_bench.kinds.judge import Failed, attached, clauses
from tgi_bench.kinds.kind import NoFigures, Stored, View
from tgi_bench.kinds.measured_windows import measured_batches
from tgi_bench.kinds.sections import against
from tgi_bench.observation import Outcome, PublishedFigures, StepObservation
from tgi_bench.plan.plan import BatchTrial
from tgi_bench.record.store import RunStore
from tgi_bench.report import units
from tgi_bench.report.column import VERDICT, Column, Grid
from tgi_bench.report.json_text import Json
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import (
    NOT_FINISHED,
    UNDEFINED,
    cell_word,
    each,
    num_shard,
    outcome_words,
    short_reason,
)

LATENCY_HEADERS = ("Step", "Batch Size", "Average", "Lowest", "Highest", "p50", "p90", "p99")
THROUGHPUT_HEADERS = LATENCY_HEADERS[:5]
VERDICT_HEADERS = ("Batch Size", "Verdict", "Against it")
"""As a published report has them: what is read as one."""


_STEP_NAMES = {"prefill": "Prefill", "decode_token": "Decode (token)"}

_NOT_SCALING = 1.05
"""Efficiency that noise does not explain."""


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
        runs = "1 run of it was" if summary.runs == 1 else f"{summary.runs} runs of it were"
        return word, f"the sweep ended before this trial did; {runs} recorded"
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


def _on_server(run: Run, where: str, trials: Sequence[TrialSummary]) -> tuple[str, ...]:
    """A page on which nothing was run says so by empty tables."""
    ids = frozenset(t.trial_id for t in trials)
    return (
        f"# Tensor Parallel (TP) - {where}\n\n{_tables(run, trials)}",
        _runs(run, trials),
        section(run, ids) if trials else "",
    )


def _parameters(trials: Sequence[TrialSummary]) -> tuple[tuple[str, str], ...]:
    """What the batches asked."""
    asked = [t.trial for t in trials]
    sampling = [t.sampling for t in asked]
    return (
        ("Sequence Length", each(t.sequence_length for t in asked)),
        ("Decode Length", each(t.decode_length for t in asked)),
        ("N Runs", each(t.runs for t in asked)),
        ("Warmups", each(t.warmups for t in asked)),
        ("Temperature", each(s.temperature for s in sampling)),
        ("Top K", each(s.top_k for s in sampling)),
        ("Top P", each(s.top_p for s in sampling)),
        ("Typical P", each(s.typical_p for s in sampling)),
        ("Repetition Penalty", each(s.repetition_penalty for s in sampling)),
        ("Watermark", each(str(s.watermark).lower() for s in sampling)),
        ("Do Sample", each(str(s.do_sample).lower() for s in sampling)),
    )


def _read(stored: Stored) -> Iterator[TrialSummary]:
    for trial in stored.plan.trials:
        end = stored.ends.get(trial.trial_id)
        if stored.origin is Origin.IMPORTED:
            figures = tuple(stored.store.seen(trial.trial_id, PublishedFigures))
            yield summarise_published(trial, figures, end, trial.runs)
        else:
            steps = tuple(stored.store.seen(trial.trial_id, StepObservation))
            yield summarise(trial, steps, end)


def _measured(
    store: RunStore, summary: TrialSummary, seen: Telemetry
) -> tuple[MeasuredWindows, ...]:
    """Each run from its first send to its last reply; batch size x decode_length tokens a run."""
    # Steps are read a second time, where there is something to lay beside them.
    steps = tuple(store.seen(summary.trial_id, StepObservation)) if seen.samples else ()
    return (measured_batches(summary.trial, steps),)


def _mends(run: Run, summary: TrialSummary) -> tuple[str, ...]:
    return () if summary.end is None else clauses(Failed(summary.end, False, attached(run)))


def _unfinished(run: Run) -> Iterator[NoFigures]:
    """Every trial that did not end OK, with its reason."""
    for summary in run.of(TrialSummary):
        if summary.end is None:
            recorded = f"{summary.runs} of {summary.trial.runs} runs recorded"
            yield NoFigures(summary.trial_id, NOT_FINISHED, recorded)
        elif summary.end.outcome is not Outcome.OK:
            reason = short_reason(summary.end.reason) or UNDEFINED
            yield NoFigures(summary.trial_id, outcome_words(summary.end), reason)


def _terms(run: Run) -> Iterator[tuple[str, str]]:
    """The client's share only where a server sent the duration of its steps."""
    trials = run.of(TrialSummary)
    shared = any(trial.client_share is not None for trial in trials)
    yield from (row for row in DEFINITIONS if shared or row[0] != CLIENT_TERM)
    if any(t.end and t.end.outcome is Outcome.HOST_OUT_OF_MEMORY for t in trials):
        yield from HOST_MEMORY


def _data(run: Run) -> dict[str, Json]:
    word = run.verdict.word_of
    trials = run.of(TrialSummary)
    return {"trials": [trial_json(t, word(t.trial_id, t.deployment_id)) for t in trials]}


VIEW: View[TrialSummary] = View(
    summary=TrialSummary,
    read=_read,
    measured=_measured,
    has_figures=lambda summary: bool(usable((summary,))),
    started=lambda summary: bool(summary.runs),
    figureless="choose smaller values for batches.batch_size or batches.sequence_length",
    mends=_mends,
    checks=batch_checks,
    overview=(_best, _scaling, summary_section),
    terms=_terms,
    on_server=_on_server,
    parameters=_parameters,
    unfinished=_unfinished,
    data=_data,
    tables={"run.csv": as_csv},
    screen=batches_on_screen,
    keys=3,
    means="batches",
)
