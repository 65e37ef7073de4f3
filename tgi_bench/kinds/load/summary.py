"""The figures of a load from its requests: of each stage, and what moved them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from tgi_bench.analysis.bootstrap import load_distribution
from tgi_bench.analysis.samples import LEAST_SAMPLES, PER_MILLE, LoadDistribution, rank
from tgi_bench.kinds.load.figures import (
    CachedTokens,
    LoadSummary,
    Moved,
    Reopening,
    SearchAnswer,
    StageSummary,
    Window,
)
from tgi_bench.kinds.load.gaps import samples_of, tokens_an_event
from tgi_bench.kinds.load.lengths import lengths, prefix_suspicion
from tgi_bench.kinds.load.metrics import (
    LATE_NS,
    NS_PER_S,
    STREAMED,
    closed_loop,
    e2e_ns,
    send_lag_ns,
    ttft_ns,
)
from tgi_bench.kinds.load.search import SearchStep, certainly, found_so_far, met
from tgi_bench.kinds.load.slo import check_slos
from tgi_bench.kinds.load.steadiness import steadiness
from tgi_bench.kinds.load.window import find_window, in_window, mean_in_flight, throughput
from tgi_bench.load_observation import (
    LoadPart,
    LoadStage,
    RequestObservation,
    RequestOutcome,
    StageConditions,
)
from tgi_bench.observation import TrialEnd
from tgi_bench.trials.load import METRICS, FileKind, LoadTrial, Workload


def reopening(answered: Sequence[RequestObservation], streamed: bool) -> Reopening | None:
    """Of requests that ended well; None where each found a connection open."""
    waited = [seen for seen in answered if seen.new_connection]
    if not waited:
        return None
    waits = [wait for seen in waited if (wait := send_lag_ns(seen)) is not None]
    of = ttft_ns if streamed else e2e_ns
    pairs = [
        (value, value - ((send_lag_ns(seen) or 0) if seen.new_connection else 0))
        for seen in answered
        if (value := of(seen)) is not None
    ]
    # Runs of older formats have no wait in them: a closed loop's sends were all on time.
    told = bool(pairs) and min(waits, default=0) > 0
    return Reopening(
        requests=len(waited),
        resent=sum(seen.resent > 0 for seen in waited),
        wait_p50_ns=median(waits) if waits else 0.0,
        moved=_moved(pairs) if told else None,
    )


def _moved(pairs: Sequence[tuple[int, int]]) -> float:
    """The largest share of a percentile that is the waits', of those with enough samples."""
    whole, without = sorted(value for value, _ in pairs), sorted(value for _, value in pairs)
    shares = [
        1 - without[place] / whole[place]
        for name, per_mille in PER_MILLE.items()
        if len(pairs) >= LEAST_SAMPLES[name] and whole[place := rank(len(pairs), per_mille) - 1] > 0
    ]
    return max(shares, default=0.0)


def moved_by_lag(answered: Sequence[RequestObservation], streamed: bool) -> Moved | None:
    """The figure of TTFT or E2E, which are from intended, that is the furthest from what it is
    from sent; None without a request that was sent."""
    found = []
    for metric, formula in (("ttft", ttft_ns), ("e2e", e2e_ns)):
        if metric == "ttft" and not streamed:
            continue
        pairs = [
            (value, value - lag)
            for seen in answered
            if (value := formula(seen)) is not None and (lag := send_lag_ns(seen)) is not None
        ]
        found += moves(metric, pairs)
    return max(found, key=lambda moved: moved.share, default=None)


def moves(metric: str, pairs: Sequence[tuple[float, float]]) -> list[Moved]:
    """Of (with the part, without it) of each request: each figure with its share that is the
    part's. Percentiles of which there are enough samples, and the mean."""
    if not pairs:
        return []
    whole, without = sorted(value for value, _ in pairs), sorted(value for _, value in pairs)
    figures = [("mean", fmean(whole), fmean(without))]
    for name, per_mille in PER_MILLE.items():
        if len(pairs) >= LEAST_SAMPLES[name]:
            place = rank(len(pairs), per_mille) - 1
            figures.append((name, whole[place], without[place]))
    return [
        Moved(f"{metric}_{name}", abs(value - less) / value)
        for name, value, less in figures
        if value > 0
    ]


HEAD_SHARE = 0.1
"""Of a prompt: what a template may put before it, where nobody counted that."""

_Place = tuple[int, int]


def cached_tokens(
    workload: Workload, conditions: StageConditions, answered: Sequence[RequestObservation]
) -> CachedTokens:
    """answered: measured requests that ended well."""
    told = prompts = cached = beyond = 0
    asked = shared = 0.0
    ends = {(r.conversation, r.turn): _end(r) for r in answered}
    for seen in answered:
        size = _size(seen)
        allowed = min(size, _shared(seen, workload, conditions, ends))
        asked, shared = asked + size, shared + allowed
        if seen.cached_tokens is not None:
            told += 1
            prompts += max(size, seen.cached_tokens)
            cached += seen.cached_tokens
            beyond += max(0, seen.cached_tokens - round(allowed))
    return CachedTokens(told, prompts, cached, beyond, shared / asked if asked else 0.0)


def _size(seen: RequestObservation) -> int:
    said = seen.prompt_tokens_asked if seen.prompt_tokens is None else seen.prompt_tokens
    return said or 0


def _end(seen: RequestObservation) -> int:
    """Tokens that the next turn of its conversation begins with."""
    return _size(seen) + seen.output_tokens


def _shared(
    seen: RequestObservation,
    workload: Workload,
    conditions: StageConditions,
    ends: Mapping[_Place, int],
) -> float:
    """Of one prompt, the tokens that an honest server may have seen before."""
    size = _size(seen)
    kind = None if workload.file is None else workload.file.kind
    if workload.repeats or kind is FileKind.MOONCAKE:
        return size
    head: float = conditions.added_tokens + 1  # a BOS that nobody counts, as llama.cpp's
    if not conditions.words_by:
        head = max(head, HEAD_SHARE * size)
    if seen.turn:
        return head + ends.get((seen.conversation, seen.turn - 1), size)
    if workload.shared_prefix is not None:
        head += workload.shared_prefix.tokens
    if kind is FileKind.SHAREGPT and (texts := conditions.prompts) is not None and texts.sent:
        head += size * texts.shared_characters / max(1, texts.characters)
    return head


MOST_REASONS = 20

Requests = Sequence[RequestObservation]


def summarise_load(
    trial: LoadTrial,
    stages: Sequence[LoadStage],
    requests: Iterable[RequestObservation],
    end: TrialEnd | None,
) -> LoadSummary:
    """The figures of every stage; requests of a stage that is not among them are left out."""
    by_stage: dict[int, list[RequestObservation]] = {stage.index: [] for stage in stages}
    for seen in requests:
        if seen.stage in by_stage:
            by_stage[seen.stage].append(seen)
    summaries = tuple(summarise_stage(trial, stage, by_stage[stage.index]) for stage in stages)
    return LoadSummary(trial, end, summaries, _found(trial, summaries))


def summarise_stage(trial: LoadTrial, stage: LoadStage, requests: Requests) -> StageSummary:
    """The figures of one stage; requests: all of it, of every part and outcome, in any order.

    Latencies are of requests that ended OK, send lag of all that were sent, both MEASURED and
    intended in the window. reasons: the MOST_REASONS most frequent ones; failed_for: the most
    frequent one of requests that failed, which those that were DROPPED or CUT_OFF did not.
    """
    requests = sorted(requests, key=lambda seen: (seen.intended_ns, seen.request_index))
    window = find_window(trial, stage, requests)
    measured = [seen for seen in requests if seen.part is LoadPart.MEASURED]
    inside = [seen for seen in measured if in_window(seen.intended_ns, window)]
    answered = [seen for seen in inside if seen.outcome is RequestOutcome.OK]
    figures = _figures(trial, inside, answered)
    unmeasurable = _unmeasurable(answered) if trial.stream else {}
    figures |= dict.fromkeys(unmeasurable)
    rates = throughput(trial, window, requests)
    failed = [seen for seen in measured if seen.outcome is not RequestOutcome.OK]
    whole = [seen for seen in measured if seen.outcome is RequestOutcome.OK]
    lags = [lag for seen in measured if (lag := send_lag_ns(seen)) is not None]
    return StageSummary(
        stage=stage,
        window=window,
        requests=len(inside),
        by_part=_by_part(requests),
        outcomes=_outcomes(measured),
        reasons=tuple(Counter(s.reason for s in failed if s.reason).most_common(MOST_REASONS)),
        failed_for=_failed_for(failed),
        ttft=figures["ttft"],
        service_ttft=figures["service_ttft"],
        itl=figures["itl"],
        event_gap=figures["event_gap"],
        tpot=figures["tpot"],
        e2e=figures["e2e"],
        send_lag=figures["send_lag"],
        requests_per_s=rates.requests_per_s,
        output_tokens_per_s=rates.output_tokens_per_s,
        total_tokens_per_s=rates.total_tokens_per_s,
        goodput_per_s=rates.goodput_per_s,
        concurrency=mean_in_flight(window, requests),
        rate_per_s=_sent_per_s(window, requests),
        late=sum(1 for lag in lags if lag > LATE_NS),
        dropped=sum(1 for seen in measured if seen.outcome is RequestOutcome.DROPPED),
        shared_reads=sum(seen.shared_reads for seen in answered),
        events=sum(seen.events for seen in answered),
        lengths=lengths(whole),
        cached=cached_tokens(trial.workload, stage.conditions, whole),
        prefix_suspicion=prefix_suspicion(answered) if trial.stream else None,
        counted_by=tuple(dict.fromkeys(seen.counted_by.value for seen in answered)),
        slos_met=check_slos(trial.slos, figures, len(answered) / len(inside) if inside else None),
        scheduled_per_s=None if closed_loop(trial) else _scheduled_per_s(window, requests),
        reopening=reopening(answered, trial.stream),
        unmeasurable=unmeasurable,
        steadiness=steadiness(window, answered, requests),
        lag_moves=moved_by_lag(answered, trial.stream),
    )


def _figures(
    trial: LoadTrial, inside: Requests, answered: Requests
) -> dict[str, LoadDistribution | None]:
    figures: dict[str, LoadDistribution | None] = {}
    one_token_each = all(max(seen.event_tokens, default=1) == 1 for seen in answered)
    for metric in METRICS:
        if metric in STREAMED and not trial.stream:
            figures[metric] = None
        elif metric == "event_gap" and one_token_each:
            figures[metric] = figures["itl"]
        else:
            of = _with_a_time(trial, inside) if metric == "send_lag" else answered
            figures[metric] = load_distribution(samples_of(metric, of))
    return figures


def _unmeasurable(answered: Requests) -> dict[str, float]:
    found = {metric: tokens_an_event(metric, answered) for metric in STREAMED}
    return {metric: tokens for metric, tokens in found.items() if tokens is not None}


def _with_a_time(trial: LoadTrial, inside: Requests) -> Requests:
    """Of conversations those that had a time to be late for: others are sent once they can be,
    and were intended when they were sent."""
    if trial.workload.turns is None:
        return inside
    return [seen for seen in inside if seen.sent_ns != seen.intended_ns]


def _by_part(requests: Requests) -> tuple[tuple[str, int], ...]:
    counts = Counter(seen.part for seen in requests)
    return tuple((part.value, counts[part]) for part in LoadPart)


def _outcomes(measured: Requests) -> tuple[tuple[RequestOutcome, int], ...]:
    """In the order of RequestOutcome; those that did not occur are left out."""
    counts = Counter(seen.outcome for seen in measured)
    return tuple((outcome, counts[outcome]) for outcome in RequestOutcome if counts[outcome])


def _failed_for(ended_otherwise: Requests) -> str:
    """ "" where none failed, or none of them says why."""
    apart = (RequestOutcome.DROPPED, RequestOutcome.CUT_OFF)
    reasons = Counter(s.reason for s in ended_otherwise if s.reason and s.outcome not in apart)
    return next((reason for reason, _ in reasons.most_common(1)), "")


def _sent_per_s(window: Window, requests: Requests) -> float | None:
    span = window.end_ns - window.begin_ns
    if span <= 0:
        return None
    sent = sum(1 for r in requests if r.sent_ns is not None and in_window(r.sent_ns, window))
    return sent * NS_PER_S / span


def _scheduled_per_s(window: Window, requests: Requests) -> float | None:
    """Dropped ones are recorded with their time, so that all of the schedule is there."""
    span = window.end_ns - window.begin_ns
    if span <= 0:
        return None
    return sum(1 for r in requests if in_window(r.intended_ns, window)) * NS_PER_S / span


def _found(trial: LoadTrial, stages: Sequence[StageSummary]) -> SearchAnswer | None:
    """Of the steps that were tried to their end."""
    if trial.find is None:
        return None
    probes = [
        SearchStep(float(summary.asked), met(trial, summary), certainly(trial, summary))
        for summary in stages
        if summary.asked is not None and not summary.stage.cut_off
    ]
    return found_so_far(trial.find, probes)
