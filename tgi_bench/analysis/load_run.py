"""A load trial as the reports see it."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.observation import ClientFacts, LoadStage, RequestOutcome, TrialEnd
from tgi_bench.plan.load_trial import LoadTrial


@dataclass(frozen=True, slots=True)
class Figure:
    """A value and its 95 % bootstrap confidence interval; None where too few samples give none."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class LoadDistribution:
    """Of `count` pooled samples in ns, by nearest rank.

    A percentile is None where there are too few samples for it: p90 needs 10, p95 20, p99 100,
    p999 1,000. requests: how many requests the samples come from.
    """

    count: int
    requests: int
    mean: Figure
    p50: Figure
    p90: Figure | None
    p95: Figure | None
    p99: Figure | None
    p999: Figure | None
    highest: float


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of requests against those asked; counts are of measured requests with outcome OK.

    wrong_prompts: prompt_tokens said and other than asked. early: fewer new tokens than asked
    with a finish_reason other than length; short_or_long: any other difference.
    cached: requests of whose prompt the server said that more than a tenth was cached.
    prompt_tokens, output_tokens: sums of what was said and of what came.
    """

    requests: int
    prompts_said: int
    wrong_prompts: int
    early: int
    short_or_long: int
    cached: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Window:
    """begin_ns .. end_ns of the client's clock. steady: found from the data, else as planned."""

    begin_ns: int
    end_ns: int
    steady: bool


@dataclass(frozen=True, slots=True)
class StageSummary:
    """The figures of one stage over its window. None: undefined.

    requests: those that the figures are of (MEASURED and in the window). outcomes: of all
        MEASURED requests. by_part: (part's name, count) of all that were intended.
    requests_per_s, output_tokens_per_s: answers that ended, and tokens that arrived, in the
        window. total_tokens_per_s adds the prompts of the answers that ended, where known.
    goodput_per_s: requests that met every SLO, in the window; None without SLOs.
    concurrency: mean in flight over the window; rate_per_s: requests sent in it.
    late: MEASURED requests sent more than 1 ms after intended; dropped: never sent.
    drift: median E2E of the window's second half over its first, less 1.
    prefix_suspicion: Spearman's rank correlation of TTFT and prompt tokens; None where prompts
        are alike or too few.
    slos_met: of each SLO of the trial in order, what was found and whether it was met; None where
        undefined.
    """

    stage: LoadStage
    window: Window
    requests: int
    by_part: tuple[tuple[str, int], ...]
    outcomes: tuple[tuple[RequestOutcome, int], ...]
    reasons: tuple[tuple[str, int], ...]
    ttft: LoadDistribution | None
    service_ttft: LoadDistribution | None
    itl: LoadDistribution | None
    event_gap: LoadDistribution | None
    tpot: LoadDistribution | None
    e2e: LoadDistribution | None
    send_lag: LoadDistribution | None
    requests_per_s: Figure | None
    output_tokens_per_s: Figure | None
    total_tokens_per_s: Figure | None
    goodput_per_s: Figure | None
    concurrency: float | None
    rate_per_s: float | None
    late: int
    dropped: int
    shared_reads: int
    events: int
    lengths: Lengths
    drift: float | None
    prefix_suspicion: float | None
    counted_by: tuple[str, ...]
    slos_met: tuple[tuple[float | None, bool | None], ...]

    @property
    def client(self) -> ClientFacts:
        """What the client was."""
        return self.stage.client


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: the highest value that met every SLO in most of its repeats.

    value: None where not even the lowest did. low, high: the bracket it lies in: the highest
    value that met them and the lowest that did not (None: none was tried that did not).
    done: False where the search was cut off.
    """

    value: float | None
    low: float | None
    high: float | None
    done: bool


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """One load trial. end: None where it is not finished. found: None without a search."""

    trial: LoadTrial
    end: TrialEnd | None
    stages: tuple[StageSummary, ...]
    found: Found | None
