"""A load trial as the reports see it, and its stages as rows that rules look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import floor, log10

from tgi_bench.analysis.samples import Figure, LoadDistribution
from tgi_bench.load_observation import ClientFacts, LoadStage, RequestOutcome, Waits
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.trials.load import LoadTrial


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One stage of one load. name: the trial's id, and in a search the value that was tried."""

    name: str
    load: LoadSummary
    stage: StageSummary

    @property
    def trial_id(self) -> str:
        """Of the load."""
        return self.load.trial.trial_id

    @property
    def deployment_id(self) -> str:
        """Of its server."""
        return self.load.trial.deployment_id


def load_rows(loads: Sequence[LoadSummary]) -> tuple[LoadRow, ...]:
    """Every stage of every load, in order."""
    return tuple(LoadRow(_name(load, s), load, s) for load in loads for s in load.stages)


def waits_text(waits: Waits) -> str:
    """ "waited 312 times, 4.1 s in all, because the server refused"."""
    times = "once" if waits.count == 1 else f"{waits.count:,} times"
    longest = f", {time_text(waits.longest_ns)} at most" if waits.count > 1 else ""
    return (
        f"waited {times}, {time_text(waits.total_ns)} in all{longest}, because the server refused"
    )


def time_text(time_ns: float) -> str:
    """Three digits and the unit: "85.7 µs", "1.24 ms", "11.4 s"."""
    for factor, unit in ((1e3, "µs"), (1e6, "ms")):
        if abs(time_ns) < 999.5 * factor:
            return f"{_three_digits(time_ns / factor)} {unit}"
    return f"{_three_digits(time_ns / 1e9)} s"


def _three_digits(value: float) -> str:
    """Without an exponent: "0.02", "85.7", "1240"."""
    digits = max(0, 2 - floor(log10(abs(value)))) if value else 0
    return f"{value:.{min(digits, 3)}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def _name(load: LoadSummary, summary: StageSummary) -> str:
    stage, name = summary.stage, load.trial.trial_id
    if load.trial.find is None:
        return name
    if stage.rate_per_s is not None:
        name += f" at {stage.rate_per_s:g}/s"
    if stage.concurrency is not None:
        name += f" at concurrency {stage.concurrency}"
    return name if load.trial.find.repeats == 1 else f"{name}, repeat {stage.repeat + 1}"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of requests against those asked; counts are of measured requests with outcome OK.

    wrong_prompts: prompt_tokens said and other than asked; prompts_off: what these have of the
    tokens asked, 1.0 as many; None where there are none. early: fewer new tokens than asked
    with a finish_reason other than length; short_or_long: any other difference.
    cached: requests of whose prompt the server said that more than a tenth was cached.
    prompt_tokens, output_tokens: sums of what was said and of what came.
    first_untold: requests whose first token cannot be told. text_counted: those whose text a
    tokenizer counted; text_differs: of them, those of which it found another number than the
    server. spread: requests whose tokens are a sum that events do not account for one by one.
    """

    requests: int
    prompts_said: int
    wrong_prompts: int
    early: int
    short_or_long: int
    cached: int
    prompt_tokens: int
    output_tokens: int
    first_untold: int = 0
    text_counted: int = 0
    text_differs: int = 0
    spread: int = 0
    prompts_off: float | None = None


@dataclass(frozen=True, slots=True)
class CachedTokens:
    """What answers said of a cache, over measured requests that ended well.

    told: requests whose answer says it; prompt_tokens, cached_tokens: sums of theirs;
    beyond_tokens: of what was cached, what is above the tokens that a prompt shares as was asked.
    shared_share: of the tokens of all prompts, those that may be shared: heads that the experiment
    gives, earlier turns, what the server adds to each prompt.
    """

    told: int
    prompt_tokens: int
    cached_tokens: int
    beyond_tokens: int
    shared_share: float


@dataclass(frozen=True, slots=True)
class Reopening:
    """Requests that had to wait for a connection, of those that the figures are of.

    resent: those sent before on a connection that had been kept alive and ended. wait_p50_ns:
    median of sent - intended of them. moved: the largest share of p50, p90, p95, p99 or p99.9 of
    TTFT (of E2E where nothing is streamed) that goes away with the waits; None where an older
    version recorded none.
    """

    requests: int
    resent: int
    wait_p50_ns: float
    moved: float | None


@dataclass(frozen=True, slots=True)
class Window:
    """begin_ns .. end_ns of the client's clock. steady: found from the data, else as planned."""

    begin_ns: int
    end_ns: int
    steady: bool


class Part(StrEnum):
    """A part of a window that is laid beside the rest of it."""

    SECOND_HALF = "second half"
    MIDDLE = "middle third"


@dataclass(frozen=True, slots=True)
class Shift:
    """metric: "ttft", "tpot", "e2e". share: its median in the part over that in the rest, less 1.

    deviations: how far the part's rank sum is above what chance makes of it.
    """

    metric: str
    part: Part
    share: float
    deviations: float


@dataclass(frozen=True, slots=True)
class Begin:
    """The begin of a window, ns: the median TTFT of its first tenth of requests, five at least, and
    the p90 of TTFT in its second half."""

    first_ns: float
    later_ns: float


@dataclass(frozen=True, slots=True)
class Silences:
    """Times in a window in which no request got a token although two or more had their first and
    not their last. Only those longer than limit_ns; one that a first token ended may be a
    prefill's, whose limit is higher.

    held: answered requests that one or more of them held up.
    """

    count: int
    longest_ns: int
    total_ns: int
    held: int
    limit_ns: float


@dataclass(frozen=True, slots=True)
class Moved:
    """A figure, "ttft_p99", and the share of it that something is which is not the server's."""

    figure: str
    share: float


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How alike the parts of a window are. begin, silences: None where too few tokens tell it."""

    shifts: tuple[Shift, ...] = ()
    begin: Begin | None = None
    silences: Silences | None = None

    def shift(self, metric: str, part: Part) -> float | None:
        """One of the shifts; None where a part has too few requests."""
        return next((s.share for s in self.shifts if (s.metric, s.part) == (metric, part)), None)


@dataclass(frozen=True, slots=True)
class StageSummary:
    """The figures of one stage over its window. None: undefined.

    requests: those that the figures are of (MEASURED and in the window). outcomes: of all
        MEASURED requests. by_part: (part's name, count) of all that were intended.
    requests_per_s: answers, each by the share of its time (sent to ended) that lies in the
        window. output_tokens_per_s: tokens that arrived in it; total_tokens_per_s adds the prompts
        of the answers by the same share, where known. goodput_per_s: answers that met every SLO,
        by the same share; None without SLOs.
    concurrency: mean in flight over the window; rate_per_s: requests sent in it, scheduled_per_s:
        those that its schedule asked for in it; None in a closed loop.
    late: MEASURED requests sent more than 1 ms after intended; dropped: never sent.
    prefix_suspicion: Spearman's rank correlation of TTFT and prompt tokens; None where prompts
        are alike or too few.
    slos_met: of each SLO of the trial in order, what was found and whether it was met; None where
        undefined.
    reopening: None where every request found a connection open.
    unmeasurable: metric -> mean tokens of an event, where nobody tells which events these are and
        itl, or tpot, is None for it.
    lag_moves: the figure that send lag is the largest share of; None where none was sent.
    cached: None where it was not looked at.
    """

    stage: LoadStage
    window: Window
    requests: int
    by_part: tuple[tuple[str, int], ...]
    outcomes: tuple[tuple[RequestOutcome, int], ...]
    reasons: tuple[tuple[str, int], ...]
    failed_for: str
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
    prefix_suspicion: float | None
    counted_by: tuple[str, ...]
    slos_met: tuple[tuple[float | None, bool | None], ...]
    scheduled_per_s: float | None = None
    reopening: Reopening | None = None
    unmeasurable: Mapping[str, float] = field(default_factory=dict)
    steadiness: Steadiness = Steadiness()
    lag_moves: Moved | None = None
    cached: CachedTokens | None = None

    @property
    def drift(self) -> float | None:
        """Median E2E of the window's second half over its first, less 1."""
        return self.steadiness.shift("e2e", Part.SECOND_HALF)

    @property
    def client(self) -> ClientFacts:
        """What the client was."""
        return self.stage.client

    @property
    def asked(self) -> float | None:
        """The rate or concurrency; None where it changes with time."""
        rate = self.stage.rate_per_s
        return self.stage.concurrency if rate is None else rate


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What a search found: the highest value that met every SLO in most of its repeats.

    value: None where not even the lowest did. low, high: the bracket that was searched: the
    highest value that met them and the lowest above it that did not (None: none was tried that
    did not). done: False where the search was cut off.
    sure_low, sure_high: the 95 % confidence interval, among the values tried: the highest at
    which every SLO metric's whole interval met its SLO in every repeat, and the lowest at which
    the whole interval of one missed it in every repeat; None where no value was as clear.
    met_in, missed_in: of the tries at value those that met the SLOs, and of the tries at high
    those that did not, each with the number of tries.
    contradiction: a value at which the whole interval of an SLO's figure missed its limit in a
    try, and a higher one at which every whole interval met it; None where no two tries say so.
    """

    value: float | None
    low: float | None
    high: float | None
    done: bool
    sure_low: float | None = None
    sure_high: float | None = None
    met_in: tuple[int, int] = (0, 0)
    missed_in: tuple[int, int] = (0, 0)
    contradiction: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """One load trial. end: None where it is not finished. found: None without a search."""

    trial: LoadTrial
    end: TrialEnd | None
    stages: tuple[StageSummary, ...]
    found: SearchAnswer | None

    @property
    def trial_id(self) -> str:
        """Of its trial."""
        return self.trial.trial_id

    @property
    def deployment_id(self) -> str:
        """Of its server."""
        return self.trial.deployment_id

    def cut_off(self, stage: StageSummary) -> str:
        """Why the stage's figures are of a part of what was asked; "" where they are of all."""
        if stage.stage.cut_off or stage is not self.stages[-1]:
            return stage.stage.cut_off
        if self.end is None:
            # Of a search the next step is what is missing.
            return "" if self.trial.find is not None else "the sweep ended before this load did"
        return "" if self.end.outcome is Outcome.OK else self.end.reason or self.end.outcome.value

    @property
    def partial(self) -> bool:
        """Whether it has stages and did not come to its end."""
        ended = self.end is not None and self.end.outcome is Outcome.OK
        return bool(self.stages) and not ended
