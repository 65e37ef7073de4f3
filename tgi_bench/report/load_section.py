"""The part of num_shard-N.md that is about load over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.load_run import Found, LoadSummary, StageSummary
from tgi_bench.analysis.run import Run
from tgi_bench.observation import RequestOutcome
from tgi_bench.plan.load_trial import Find, Sought
from tgi_bench.report import load_tables as tables
from tgi_bench.report import load_words as words
from tgi_bench.report.load_group import Group, Row, groups, missing, without_figures
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import UNDEFINED, deployment_heading, short_reason

_INTERVALS = "In brackets: 95% bootstrap confidence intervals.\n"
_MOST_REASONS = 3


def load_section(run: Run, loads: Sequence[LoadSummary]) -> str:
    """Every load of one num_shard; empty where there is none."""
    if not loads:
        return ""
    parts = [f"# Load over HTTP\n\n{_INTERVALS}"]
    headed = ""
    for group in groups(loads):
        heading = deployment_heading(run.plan.deployment(group.trial.deployment_id))
        if heading != headed:
            parts.append(f"## {heading}\n")
            headed = heading
        parts.append(_group(group))
    return "\n".join(parts)


def _group(group: Group) -> str:
    trial, rows = group.trial, group.rows()
    shown = any(row.stage is not None for row in rows)
    parts = [f"### {words.heading(trial)}\n", markdown(_asked(group))]
    if trial.find is not None:
        parts.append(_search(group.loads[0], trial.find))
    if shown:
        of = _of_the_answer(group)
        parts.append(f"#### Latency{of}\n\n{markdown(tables.latency(trial, rows))}")
    parts.append(f"#### Throughput\n\n{markdown(tables.throughput(trial, rows))}")
    parts.append(_notes(group))
    if shown and trial.slos and trial.find is None:
        parts.append(f"#### SLOs\n\n{markdown(tables.slos(trial, rows))}")
    parts.append(_errors(group))
    if shown:
        parts.append(f"#### Requests\n\n{markdown(tables.samples(trial, rows))}")
        parts.append(f"#### Tokens\n\n{markdown(tables.lengths(trial, rows))}")
        parts.append(f"#### Client\n\n{markdown(tables.clients(trial, rows))}")
        parts.append(_user_space(rows))
    return "\n".join(part for part in parts if part)


def _asked(group: Group) -> Table:
    """What the experiment asked, and what was found by asking or chosen."""
    trial = group.trial
    dialects = tuple(dict.fromkeys(s.stage.dialect for s in group.stages))
    rows = [
        ("API", words.api(trial, dialects)),
        ("Prompts", words.prompts(trial.workload)),
        ("Outputs", words.outputs(trial.workload)),
        ("Sampling", words.sampling(trial.sampling)),
        ("Arrivals", words.arrivals(trial.arrivals)),
        ("Measured for", words.extent(trial)),
        ("Request timeout", words.seconds(trial.request_timeout_ns)),
    ]
    if trial.max_in_flight is not None:
        rows.append(("Most in flight", f"{trial.max_in_flight:,}"))
    if trial.slos:
        rows.append(("SLOs", ", ".join(map(words.slo, trial.slos))))
    return Table(("Asked", "Value"), (*rows, *_details(group)))


def _details(group: Group) -> list[tuple[str, str]]:
    """A row for each detail of the stages; values that differ say of which stage they are."""
    said: dict[str, dict[str, list[str]]] = {}
    for load in group.loads:
        for stage in load.stages:
            for name, value in stage.stage.details:
                asked = words.load_asked(load.trial, stage.stage)
                said.setdefault(name, {}).setdefault(value, []).append(asked)
    return [
        (name if len(values) == 1 else f"{name} ({', '.join(dict.fromkeys(asked))})", value)
        for name, values in said.items()
        for value, asked in values.items()
    ]


def _search(load: LoadSummary, find: Find) -> str:
    """The answer, then every step on the way to it."""
    headers = (
        "Step",
        words.value_header(load.trial),
        "Repeat",
        "Requests/s",
        *map(words.slo, load.trial.slos),
        "All met",
    )
    rows = tuple(
        (
            str(number),
            words.value_asked(load.trial, stage.stage),
            str(stage.stage.repeat + 1),
            words.rate(stage.requests_per_s),
            *tables.slo_cells(load.trial.slos, stage),
            _all_met(stage),
        )
        for number, stage in enumerate(load.stages, 1)
    )
    text = f"#### Search\n\n{answer(load, find)}\n"
    if not rows:
        return text
    right = frozenset(range(len(headers)))
    return f"{text}\n{markdown(Table(headers, rows, right))}"


def _all_met(stage: StageSummary) -> str:
    """ "-" where one is undefined and none is known to have failed."""
    met = [met for _, met in stage.slos_met]
    if False in met:
        return "no"
    return UNDEFINED if None in met else "yes"


def answer(load: LoadSummary, find: Find) -> str:
    """What the search found, with the bracket that the true value lies in, in a sentence."""
    found = load.found
    one, unit = ("rate", " requests/s") if find.sought is Sought.MAX_RATE else ("concurrency", "")
    if found is None:
        return f"**No answer**: no {one} was tried to its end."
    text = _found(found, one, unit, find)
    return text if found.done else f"{text} The search was cut off: this is what it knew then."


def _found(found: Found, one: str, unit: str, find: Find) -> str:
    if found.value is None:
        lowest = "" if found.high is None else f", {words.plain(found.high)}{unit}"
        return f"**None**: not even the lowest {one} tried{lowest}, met every SLO."
    text = f"**{words.plain(found.value)}{unit}** is the highest {one} that met every SLO"
    if find.repeats > 1:
        text += f" in most of {find.repeats} repeats"
    if found.high is None:
        bound = "the highest allowed" if found.value >= find.highest else "none higher was tried"
        return f"{text}; {bound}, so the true one may be higher."
    low = found.value if found.low is None else found.low
    return (
        f"{text}; the true one is between {words.plain(low)} and {words.plain(found.high)}, which "
        f"did not (within {(found.high - low) / found.high:.1%})."
    )


def _of_the_answer(group: Group) -> str:
    """A search's tables are of its answer; other steps are in the JSON and CSV documents."""
    if group.trial.find is None:
        return ""
    found = group.loads[0].found
    return " of the answer" if found is not None and found.value is not None else " of the lowest"


def _notes(group: Group) -> str:
    """Why loads have no figures: those that share a reason share a line."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for load in without_figures(group.loads):
        by_reason.setdefault(missing(load), []).append(words.load_planned(load.trial))
    return "".join(
        f"- {word}, {', '.join(which)}: {why}\n" for (word, why), which in by_reason.items()
    )


def _errors(group: Group) -> str:
    """Of each stage its kinds of errors and its most frequent reasons."""
    lines = []
    for load in group.loads:
        for stage in load.stages:
            kinds = [
                f"{count:,} {outcome.value.replace('_', ' ')}"
                for outcome, count in sorted(stage.outcomes, key=lambda o: -o[1])
                if outcome is not RequestOutcome.OK and count
            ]
            if kinds:
                asked = words.load_asked(load.trial, stage.stage)
                lines.append(f"- {asked}: {', '.join(kinds)}{_reasons(stage)}\n")
    return f"#### Errors\n\n{''.join(lines)}" if lines else ""


def _reasons(stage: StageSummary) -> str:
    """The most frequent ones, each with how often."""
    ordered = sorted(stage.reasons, key=lambda reason: -reason[1])
    listed = [f"{short_reason(text)} ({count:,})" for text, count in ordered[:_MOST_REASONS]]
    if len(ordered) > _MOST_REASONS:
        listed.append(f"and {len(ordered) - _MOST_REASONS} more")
    return f". Reasons: {'; '.join(listed)}" if listed else ""


def _user_space(rows: Sequence[Row]) -> str:
    """Why arrivals were not stamped by the kernel; empty where they all were."""
    reasons = dict.fromkeys(
        row.stage.client.stamp_reason
        for row in rows
        if row.stage is not None and not row.stage.client.kernel_stamps
    )
    return "".join(
        f"- stamped in user space: {reason or 'no reason given'}\n" for reason in reasons
    )
