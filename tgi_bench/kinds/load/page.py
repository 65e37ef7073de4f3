"""The part of num_shard-N.md that is about load over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.run import Run
from tgi_bench.inert import all_on_one_line, on_one_line
from tgi_bench.kinds.judge import Failed, attached, clauses
from tgi_bench.kinds.kind import NoFigures, Stored, View
from tgi_bench.kinds.load import tables, words
from tgi_bench.kinds.load.client_rules import held_text
from tgi_bench.kinds.load.columns import floor, load_json, loads_csv, loads_on_screen
from tgi_bench.kinds.load.figures import LoadSummary, StageSummary, waits_text
from tgi_bench.kinds.load.goals import goals_line, goals_section, missed, slos_csv
from tgi_bench.kinds.load.group import (
    Group,
    GroupRow,
    groups,
    has_figures,
    missing,
    partly,
    without_figures,
)
from tgi_bench.kinds.load.metrics import LOAD_DEFINITIONS
from tgi_bench.kinds.load.overview import against_throughput, client_error
from tgi_bench.kinds.load.rules import load_checks
from tgi_bench.kinds.load.search_page import answer, search
from tgi_bench.kinds.load.steady_rules import cached_texts, texts_text
from tgi_bench.kinds.measured_windows import measured_stages
from tgi_bench.load_observation import ClientFloor, LoadStage, RequestObservation, RequestOutcome
from tgi_bench.report import units
from tgi_bench.report.json_text import Json
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import deployment_heading, outcome_words, short_reason
from tgi_bench.trials.load import LEAST_SEARCH_REQUESTS, LoadTrial, Sought

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
        parts.append(_group(group, run.verdict))
    return "\n".join(parts)


def _group(group: Group, verdict: Verdict) -> str:
    trial, rows = group.trial, group.rows()
    shown = any(row.stage is not None for row in rows)
    parts = [f"### {words.heading(trial)}\n", markdown(_asked(group))]
    if trial.find is not None:
        parts.append(search(group.loads[0], trial.find))
    if shown:
        of = _of_the_answer(group)
        parts.append(f"#### Latency{of}\n\n{markdown(tables.latency(trial, rows))}")
    parts.append(f"#### Throughput\n\n{markdown(tables.throughput(trial, rows, verdict))}")
    parts.append(_notes(group))
    parts.append(_waited(rows))
    if shown and trial.slos and trial.find is None:
        parts.append(f"#### SLOs\n\n{markdown(tables.slos(trial, rows))}")
    parts.append(_errors(group))
    if shown:
        parts.append(f"#### Requests\n\n{markdown(tables.of_stages(trial, rows, tables.REQUESTS))}")
        parts.append(f"#### Tokens\n\n{markdown(tables.of_stages(trial, rows, tables.TOKENS))}")
        parts.append(_cached(rows))
        parts.append(f"#### Client\n\n{markdown(tables.of_stages(trial, rows, tables.CLIENT))}")
        parts.append(_reopened(trial, rows))
        parts.append(_held_back(rows))
        parts.append(_user_space(rows))
    return "\n".join(part for part in parts if part)


def _asked(group: Group) -> Table:
    """What the experiment asked, and what was found by asking or chosen."""
    trial = group.trial
    dialects = tuple(dict.fromkeys(s.stage.dialect for s in group.stages))
    rows = [
        ("API", words.api(trial, dialects)),
        ("Prompts", words.prompts(trial.workload)),
        ("Outputs", words.outputs(trial)),
        ("Sampling", words.sampling(trial.sampling)),
        ("Arrivals", words.arrivals(trial.arrivals)),
        ("Measured for", words.extent(trial) + _longer(trial)),
        ("Request timeout", words.seconds(trial.request_timeout_ns)),
    ]
    if trial.max_in_flight is not None:
        rows.append(("Most in flight", f"{trial.max_in_flight:,}"))
    if trial.quickack:
        rows.append(("Acknowledgements", "at once (TCP_QUICKACK)"))
    if trial.slos:
        rows.append(("SLOs", ", ".join(map(words.slo, trial.slos))))
    return Table(("Asked", "Value"), (*rows, *_details(group)))


def _longer(trial: LoadTrial) -> str:
    """A search's steps at low rates last longer than it says."""
    find, duration_ns = trial.find, trial.extent.duration_ns
    if find is None or find.sought is not Sought.MAX_RATE or duration_ns is None:
        return ""
    rate = LEAST_SEARCH_REQUESTS * 1e9 / duration_ns
    if find.lowest >= rate:
        return ""
    return f"; below {words.plain(rate)}/s until {LEAST_SEARCH_REQUESTS} requests are due"


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


def _of_the_answer(group: Group) -> str:
    """A search's tables are of its answer; other steps are in the JSON and CSV documents."""
    if group.trial.find is None:
        return ""
    found = group.loads[0].found
    return " of the answer" if found is not None and found.value is not None else " of the lowest"


def _notes(group: Group) -> str:
    """Why loads have no figures, or of a part alone: those that share a reason share a line."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for load in without_figures(group.loads):
        by_reason.setdefault(missing(load), []).append(words.load_planned(load.trial))
    for load in group.loads:
        if load.partial and has_figures(load):
            by_reason.setdefault(partly(load), []).append(words.load_planned(load.trial))
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


def _waited(rows: Sequence[GroupRow]) -> str:
    """Closed loops that the server refused at times."""
    return "".join(
        f"- {row.asked}: the closed loop {waits_text(row.stage.stage.conditions.waits)}\n"
        for row in rows
        if row.stage is not None and row.stage.stage.conditions.waits.count
    )


def _cached(rows: Sequence[GroupRow]) -> str:
    """What servers said of their caches, and which texts repeated; empty where there is neither."""
    lines = []
    for row in rows:
        if row.stage is None:
            continue
        lines += [f"- {row.asked}: {text}\n" for text in cached_texts(row.stage)]
        texts = row.stage.stage.conditions.prompts
        if texts is not None and (texts.repeated or texts.shared_heads):
            lines.append(f"- {row.asked}: {texts_text(texts)}\n")
    return "".join(lines)


def _reopened(trial: LoadTrial, rows: Sequence[GroupRow]) -> str:
    """What waiting for connections did to the figures; empty where nothing waited for one."""
    of = "TTFT and E2E" if trial.stream else "E2E"
    lines = []
    for row in rows:
        found = row.stage.reopening if row.stage is not None else None
        if found is None:
            continue
        again = f", {found.resent:,} of them after the server ended one that it had kept alive"
        moved = "" if found.moved is None else f", at most {found.moved:.1%} of a percentile"
        lines.append(
            f"- {row.asked}: {words.counted(found.requests, 'request')} waited for a connection"
            f"{again if found.resent else ''}: {of} hold that wait, p50 "
            f"{units.FINE_MS.text(found.wait_p50_ns)}{moved}; service TTFT does not\n"
        )
    return "".join(lines)


def _held_back(rows: Sequence[GroupRow]) -> str:
    """Where first tokens waited for an acknowledgement; empty where none did."""
    found = ((row.asked, row.stage.stage.conditions.small_writes) for row in rows if row.stage)
    texts = ((asked, held_text(control)) for asked, control in found if control is not None)
    return "".join(f"- {asked}: {text}\n" for asked, text in texts if text)


def _user_space(rows: Sequence[GroupRow]) -> str:
    """Why arrivals were not stamped by the kernel; empty where they all were."""
    reasons = dict.fromkeys(
        row.stage.client.stamp_reason
        for row in rows
        if row.stage is not None and not row.stage.client.kernel_stamps
    )
    return "".join(
        f"- stamped in user space: {reason or 'no reason given'}\n" for reason in reasons
    )


def _read(stored: Stored) -> Iterator[LoadSummary | ClientFloor]:
    if not stored.plan.load_trials:
        return
    # Only here: it imports numpy, which a run of batches alone does not wait for.
    from tgi_bench.kinds.load.summary import summarise_load

    for trial in stored.plan.load_trials:
        yield summarise_load(
            trial,
            all_on_one_line(tuple(stored.store.seen(trial.trial_id, LoadStage))),
            map(_of_printable_words, stored.store.seen(trial.trial_id, RequestObservation)),
            stored.ends.get(trial.trial_id),
        )
    yield from stored.store.of_run(ClientFloor)


def _of_printable_words(request: RequestObservation) -> RequestObservation:
    """Of many, most of which need no other words."""
    reason, finish = request.reason, request.finish_reason
    if reason.isprintable() and (finish is None or finish.isprintable()):
        return request
    finish = None if finish is None else on_one_line(finish)
    return replace(request, reason=on_one_line(reason), finish_reason=finish)


def _mends(run: Run, load: LoadSummary) -> tuple[str, ...]:
    if load.end is None:
        return ()
    some = any(count for stage in load.stages for _, count in stage.by_part)
    unmeasured = some and not any(stage.outcomes for stage in load.stages)
    return clauses(Failed(load.end, True, attached(run), unmeasured))


def _unfinished(run: Run) -> Iterator[NoFigures]:
    for load in without_figures(run.of(LoadSummary)):
        word, reason = missing(load)
        word = word if load.end is None else outcome_words(load.end)
        yield NoFigures(load.trial_id, word, reason)


def _partial(run: Run) -> Iterator[NoFigures]:
    for load in run.of(LoadSummary):
        if load.partial and has_figures(load):
            yield NoFigures(load.trial_id, *partly(load))


def _data(run: Run) -> dict[str, Json]:
    return {
        "loads": [load_json(run.verdict, summary) for summary in run.of(LoadSummary)],
        "floors": [floor(measured) for measured in run.of(ClientFloor)],
    }


def _answers(run: Run) -> Iterator[str]:
    for load in run.of(LoadSummary):
        if load.trial.find is not None:
            yield f"{load.trial_id}: {answer(load, load.trial.find).replace('**', '')}"


VIEW: View[LoadSummary] = View(
    summary=LoadSummary,
    read=_read,
    measured=lambda _store, load, _seen: measured_stages(load),
    has_figures=lambda load: load.end is not None and any(s.e2e is not None for s in load.stages),
    started=lambda load: bool(load.stages),
    figureless="see why requests failed, then raise load.duration",
    mends=_mends,
    checks=lambda run: load_checks(run.of(LoadSummary), run.of(ClientFloor)),
    overview=(against_throughput, goals_section),
    closing=(client_error,),
    terms=lambda _: LOAD_DEFINITIONS,
    on_server=lambda run, _, loads: (load_section(run, loads),),
    unfinished=_unfinished,
    partial=_partial,
    data=_data,
    missed=missed,
    goals=goals_line,
    tables={"loads.csv": loads_csv, "slos.csv": slos_csv},
    screen=loads_on_screen,
    keys=2,
    answers=_answers,
)
