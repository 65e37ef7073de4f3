"""Whether to believe the loads of a run: did the asked load arrive, and is its answer sound."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tgi_bench.analysis.rules import Check, Failing, Rule, Seen, apply, failed, listed, passed
from tgi_bench.analysis.samples import LEAST_REQUESTS, LEAST_SAMPLES
from tgi_bench.kinds.load.answer_rules import ANSWER_RULES, LENGTH_RULES
from tgi_bench.kinds.load.client_rules import (
    IDLE_CPU,
    client_checks,
    cpu_shares,
    late_remedy,
    workers_text,
)
from tgi_bench.kinds.load.figures import LoadRow, LoadSummary, load_rows, time_text, waits_text
from tgi_bench.kinds.load.host_rules import host_checks
from tgi_bench.kinds.load.metrics import distribution_of, figure_of, split_metric
from tgi_bench.kinds.load.steady_rules import CACHE_RULES, STEADY
from tgi_bench.load_observation import ClientFloor, LoadPart, RequestOutcome
from tgi_bench.trials.load import SUCCESS, OpenLoop, Process


def accepted(rows: Sequence[LoadRow]) -> tuple[LoadRow, ...]:
    """Those that figures are taken from: of a search the steps at its answer."""
    return tuple(row for row in rows if row.load.trial.find is None or _answers(row))


def deciding(rows: Sequence[LoadRow]) -> tuple[LoadRow, ...]:
    """As accepted, with a search's steps at the next higher value, which did not meet the SLOs."""
    return tuple(row for row in rows if row.load.trial.find is None or _decides(row))


def _answers(row: LoadRow) -> bool:
    found = row.load.found
    return found is not None and found.value is not None and row.stage.asked == found.value


def _decides(row: LoadRow) -> bool:
    found = row.load.found
    misses = found is not None and found.high is not None and row.stage.asked == found.high
    return misses or _answers(row)


LEAST_CONCURRENCY = 0.95
MOST_RATE_OFF = 0.02
_RATE_DEVIATIONS = 4
"""A random schedule may be off by chance: so many standard deviations of its number of sends."""
MOST_FAILED = 0.001
MOST_CUT_OFF = 0.005
"""Half of what p99 leaves above it: those that were cut off are the longest ones."""
MOST_HALF_WIDTH = 0.20
LEAST_ROUNDS = 10
"""Median E2E that a closed loop's window lasts, for its ends not to matter."""
UNTIL_SLACK = 1.25
_REFUSED = (
    "lower load.concurrency, or let the server take more at once (TGI: --max-concurrent-requests): "
    "it refused, and a closed loop waits before it asks again"
)
UNTOLD_REMEDY = (
    "decide by event_gap or e2e instead, or have the server send an event for each token "
    "(vLLM: --stream-interval 1)"
)
_IN_FLIGHT = "raise load.max_in_flight, at which requests were dropped, or lower load.rate"
_FEW_SENDS = "raise load.duration: so few requests are drawn far from their mean"


def load_checks(
    loads: Sequence[LoadSummary], floors: Sequence[ClientFloor] = ()
) -> tuple[Check, ...]:
    """Every check of loads over HTTP; one that cannot be made says so and passes.

    Of a search they look at the steps that decide: what a server does under load is asked of its
    answer, what the client did also of the nearest value above it.
    """
    rows = load_rows(loads)
    taken = accepted(rows)
    searches = tuple(load for load in loads if load.trial.find is not None)
    return (
        apply(ANSWERED, rows),
        *host_checks(taken),  # before what others' CPU makes look bad
        *(apply(rule, taken) for rule in RULES),
        *client_checks(deciding(rows), floors),
        *([_searches(searches), _contradictions(searches)] if searches else []),
    )


def _answered(row: LoadRow) -> Seen | None:
    """One that was cut off has a failed trial to its name already."""
    if row.load.cut_off(row.stage):
        return None
    answers = row.stage.e2e.requests if row.stage.e2e is not None else 0
    text = f"{answers} of {row.stage.requests} requests of the window ended well"
    # A probe of a search may fail altogether: that is its answer.
    bad = row.stage.requests == 0 or (answers == 0 and row.load.trial.find is None)
    return Seen(bad, -answers, text)


def _concurrency(row: LoadRow) -> Seen | None:
    """A conversation that thinks is in no flight: with think time there is nothing to compare."""
    asked, held = row.stage.stage.concurrency, row.stage.concurrency
    turns = row.load.trial.workload.turns
    if not asked or held is None or (turns is not None and turns.think_ns > 0):
        return None
    text, waits = f"{held:.4g} of {asked}", row.stage.stage.conditions.waits
    remedy = _waiting_remedy(row)
    if waits.count:  # who waits is in no flight
        text += f"; it {waits_text(waits)}"
        remedy = _REFUSED
    bad = held < LEAST_CONCURRENCY * asked
    return Seen(bad, -held / asked, text + (workers_text(row) if bad else ""), remedy)


def _waiting_remedy(row: LoadRow) -> str:
    """What mends a closed loop with fewer in flight than asked; "" where it is not known."""
    e2e, window = row.stage.e2e, row.stage.window
    if e2e is not None and window.end_ns - window.begin_ns < LEAST_ROUNDS * e2e.p50.value:
        return (
            f"raise load.duration, which is less than {LEAST_ROUNDS} times the median E2E: its "
            "ends, where fewer are in flight, are too much of it"
        )
    shares = cpu_shares(row)
    if shares is not None and max(shares) <= IDLE_CPU:
        return (
            "see what requests waited for, with the load's workers idle: connections that were "
            "opened again, a server that admits fewer (the report says both), or other programs "
            "on the client's machine"
        )
    return late_remedy(row)


def _rate(row: LoadRow) -> Seen | None:
    """Sent against what the schedule asked in the window; and that, which is drawn, against the
    asked mean, from which chance may take it."""
    asked, sent = row.stage.stage.rate_per_s, row.stage.rate_per_s
    scheduled = row.stage.scheduled_per_s
    seconds = (row.stage.window.end_ns - row.stage.window.begin_ns) / 1e9
    if not scheduled or sent is None or seconds <= 0:
        return None
    off = abs(sent - scheduled) / scheduled
    remedy = _IN_FLIGHT if row.stage.dropped else late_remedy(row)
    most = max(MOST_RATE_OFF, 1 / (scheduled * seconds))  # one more or less at the window's ends
    text = f"{sent:.4g}/s sent of {scheduled:.4g}/s scheduled, limit {most:.1%}"
    if asked:
        chance = _RATE_DEVIATIONS * _gap_deviation(row) / math.sqrt(asked * seconds)
        drawn, allowed = abs(scheduled - asked) / asked, max(chance, 1 / (asked * seconds))
        if drawn > max(MOST_RATE_OFF, allowed):
            text = f"{scheduled:.4g}/s scheduled where {asked:g}/s was asked"
            return Seen(True, drawn, text, _FEW_SENDS)
    text += workers_text(row) if off > most else ""
    return Seen(off > most, off, text, remedy)


def _gap_deviation(row: LoadRow) -> float:
    """Standard deviation of the gaps between arrivals over their mean, as the process draws."""
    arrivals = row.load.trial.arrivals
    if not isinstance(arrivals, OpenLoop) or arrivals.process is Process.CONSTANT:
        return 0.0
    return 1.0 if arrivals.process is Process.POISSON else 1 / math.sqrt(arrivals.burstiness)


def _dropped(row: LoadRow) -> Seen | None:
    measured = _measured(row)
    text = f"{row.stage.dropped} of {measured}"
    return Seen(row.stage.dropped > 0, row.stage.dropped / measured, text) if measured else None


def _failed(row: LoadRow) -> Seen | None:
    """An SLO of success says how many may fail; DROPPED and CUT_OFF are asked for elsewhere."""
    apart = (RequestOutcome.OK, RequestOutcome.DROPPED, RequestOutcome.CUT_OFF)
    measured = _measured(row)
    kinds = [(kind, count) for kind, count in row.stage.outcomes if kind not in apart]
    if not measured:
        return None
    allowed = [1 - slo.limit for slo in row.load.trial.slos if slo.metric == SUCCESS]
    share = sum(count for _, count in kinds) / measured
    words = ", ".join(f"{count} {kind.value.replace('_', ' ')}" for kind, count in kinds)
    text = f"{words or 'none'} of {measured}"
    if row.stage.failed_for:
        text += f": {row.stage.failed_for}"
    if (waits := row.stage.stage.conditions.waits).count:
        text += f"; the closed loop {waits_text(waits)}"
    return Seen(share > max([MOST_FAILED, *allowed]), share, text)


def _cut_off(row: LoadRow) -> Seen | None:
    measured = _measured(row)
    count = dict(row.stage.outcomes).get(RequestOutcome.CUT_OFF, 0)
    if not measured:
        return None
    return Seen(count > MOST_CUT_OFF * measured, count / measured, f"{count} of {measured}")


def _samples(row: LoadRow) -> Seen | None:
    """What SLOs and `until` decide by must be defined; anything needs LEAST_REQUESTS."""
    trial, stage = row.load.trial, row.stage
    until = trial.extent.until
    deciding = [slo.metric for slo in trial.slos if slo.metric != SUCCESS]
    deciding += [until.metric] if until is not None else []
    answers = stage.e2e.requests if stage.e2e is not None else 0
    for name in deciding:
        metric, statistic = split_metric(name)
        if (tokens := stage.unmeasurable.get(metric)) is not None:
            text = f"{name} is not measurable: {tokens:.3g} tokens an event"
            return Seen(True, math.inf, text, UNTOLD_REMEDY)
        least, figure = LEAST_SAMPLES.get(statistic, 1), distribution_of(stage, metric)
        count = figure.requests if figure is not None else 0
        if count < least:
            return Seen(True, least / (count + 1), f"{name} needs {least} requests, has {count}")
    text = f"{answers} requests"
    return Seen(answers < LEAST_REQUESTS, -answers, text)


def _narrow(row: LoadRow) -> Seen | None:
    first = row.stage.ttft or row.stage.e2e
    width = first.p50.half_width if first is not None else None
    if width is None or first is None:
        return None
    name = "TTFT" if row.stage.ttft is not None else "E2E"
    text = f"{name} p50 {time_text(first.p50.value)} within {width:.1%}"
    return Seen(width > MOST_HALF_WIDTH, width, text)


def _until(row: LoadRow) -> Seen | None:
    """The interval as it is reported, which may differ a little from the one that it stopped by."""
    until = row.load.trial.extent.until
    if until is None:
        return None
    figure = figure_of(row.stage, until.metric)
    if split_metric(until.metric)[0] in row.stage.unmeasurable:
        return Seen(True, math.inf, f"{until.metric} is not measurable", UNTOLD_REMEDY)
    if figure is None or figure.low is None or figure.high is None or figure.value <= 0:
        return Seen(True, math.inf, f"{until.metric} has no interval")
    off = max(figure.high - figure.value, figure.value - figure.low) / figure.value
    text = f"{until.metric} within {off:.1%}, asked {until.share:.1%}"
    return Seen(off > UNTIL_SLACK * until.share, off / until.share, text)


def _measured(row: LoadRow) -> int:
    return dict(row.stage.by_part).get(LoadPart.MEASURED.value, 0)


def _searches(loads: Sequence[LoadSummary]) -> Check:
    name = "searches found the highest load"
    bad = []
    for load in loads:
        found = load.found
        trial_id, of = load.trial.trial_id, load.trial.deployment_id
        if found is None or not found.done:
            bad.append(Failing(trial_id, trial_id, of, "cut off"))
        elif found.value is not None and found.high is None:
            text = f"{found.value:g}, the highest allowed, met them"
            bad.append(Failing(trial_id, trial_id, of, text))
    if bad:
        remedy = (
            "raise load.find's highest where it met every SLO; go on with "
            "the same command and --resume where the search was cut off"
        )
        return failed(name, listed([f"{b.name} ({b.text})" for b in bad]), remedy, tuple(bad))
    return passed(name, f"bracketed in {len(loads)}")


def _contradictions(loads: Sequence[LoadSummary]) -> Check:
    name = "a search's steps agree"
    bad = [
        Failing(
            load.trial.trial_id,
            load.trial.trial_id,
            load.trial.deployment_id,
            f"{missed:g} surely missed an SLO, {met:g} surely met all",
        )
        for load in loads
        if load.found is not None and load.found.contradiction is not None
        for missed, met in (load.found.contradiction,)
    ]
    if bad:
        remedy = (
            "see what else the server or its machine did between the steps, then search again with "
            "a longer load.duration and more repeats in load.find"
        )
        return failed(name, listed([f"{b.name} ({b.text})" for b in bad]), remedy, tuple(bad))
    return passed(name, f"no two tries of {len(loads)} contradict each other")


ANSWERED = Rule(
    "every load has answers",
    _answered,
    "no load has a stage",
    "raise load.duration, lower load.warmup, and see why requests failed",
)
CONCURRENCY = Rule(
    f"closed loops held {LEAST_CONCURRENCY:.0%} of the asked concurrency",
    _concurrency,
    "no closed loop without think time was run",
    "raise load.workers, and load.duration where it is short against E2E",
)
RATE = Rule(
    f"open loops sent within {MOST_RATE_OFF:.0%} of what their schedule asked",
    _rate,
    "no open loop was run",
    "raise load.workers or load.max_in_flight; raise load.duration where few requests were sent",
)
DROPPED = Rule(
    "no request was dropped",
    _dropped,
    "no request was intended",
    "raise load.max_in_flight and the limit of open files (`ulimit -n`), or lower load.rate",
)
FAILED = Rule(
    f"at most {MOST_FAILED:.1%} of the requests failed",
    _failed,
    "no request was sent",
    "read the reasons and the server's log; a timeout is mended by load.request_timeout, an "
    "overload by a lower load.rate or load.concurrency, a rejected request by shorter prompts or "
    "outputs, a client limit by a higher limit of open files (`ulimit -n`) or fewer in flight",
)
CUT_OFF = Rule(
    f"at most {MOST_CUT_OFF:.1%} of the requests were cut off",
    _cut_off,
    "no request was sent",
    "raise load.cooldown above the longest E2E",
)
SAMPLES = Rule(
    "percentiles that decide have enough requests",
    _samples,
    "no load has a stage",
    "raise load.duration or load.requests",
)
NARROW = Rule(
    f"intervals of the median are within {MOST_HALF_WIDTH:.0%}",
    _narrow,
    "no load has enough requests for an interval",
    "raise load.duration or load.requests, or stop by load.until",
)
UNTIL = Rule(
    "loads went on until their interval was narrow",
    _until,
    "no load was asked to",
    "raise load.duration or load.requests, which ended the load before, or raise load.until.ci",
)
RULES: tuple[Rule[LoadRow], ...] = (
    CONCURRENCY,
    RATE,
    DROPPED,
    FAILED,
    CUT_OFF,
    *LENGTH_RULES,
    *CACHE_RULES,
    *STEADY,
    SAMPLES,
    NARROW,
    UNTIL,
    *ANSWER_RULES,
)
"""What is asked of each load, in the order of the page."""
