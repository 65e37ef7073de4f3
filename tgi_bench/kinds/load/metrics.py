"""The formulas of load over HTTP, once: from one request's observation to its figures.

Gaps between events, which a request has many of, are in `gaps`.
"""

from __future__ import annotations

from collections.abc import Callable

from tgi_bench.analysis.samples import METHOD, PER_MILLE, Figure, LoadDistribution, statistic_of
from tgi_bench.kinds.load.figures import StageSummary
from tgi_bench.load_observation import RequestObservation
from tgi_bench.trials.load import ClosedLoop, LoadTrial, OpenLoop, Sought

NS_PER_S = 1_000_000_000
LATE_NS = 1_000_000
"""A request sent more than this after its time counts as late."""

GAPS = ("itl", "event_gap")
"""Metrics of which one request has many samples."""
STREAMED = frozenset({"ttft", "service_ttft", "itl", "event_gap", "tpot"})
"""Metrics that an answer which comes in one piece does not have."""

LOAD_DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "request figures",
        "of requests that were intended after the warm-up and before the cool-down, within the "
        "window, and ended well; send lag is of all of them that were sent",
    ),
    (
        "TTFT",
        "first token's arrival - intended send time; undefined where the answer is not streamed",
    ),
    (
        "service TTFT",
        "first token's arrival - the time when the request was sent; of one that was sent again "
        "the sending that was answered",
    ),
    (
        "inter-event gap",
        "arrival of an event that carries tokens - arrival of the one before; the gaps of all "
        "requests are pooled",
    ),
    (
        "ITL",
        "inter-token latency: the gap before an event / the tokens that the event carries, counted "
        "once for each of them; equal to the inter-event gap where each event carries one token. "
        "Tokens that come with a request's first event have no gap before them and give no sample. "
        "Not measurable where more than 1 % of the events carry several tokens and the server says "
        "only their sum",
    ),
    (
        "TPOT",
        "(last token's arrival - first token's) / (tokens - those of the first event), one value a "
        "request: tokens that came with the first took no time after it; undefined where all "
        "tokens came in one event. Not measurable where the server says only the sum of an "
        "answer's tokens and it would be off by more than 5 % if those of nobody knows which "
        "events had come with the first",
    ),
    ("E2E", "end of the answer - intended send time"),
    (
        "send lag",
        "time when the request was sent - intended send time; 0 in a closed loop, but for a "
        "conversation's next turn, which is intended after its think time, and for a request that "
        "had to wait for a connection or was sent again on another one",
    ),
    (
        "closed loop, open loop",
        "the next send waits for a completion, so a slow server is asked less often; sends follow "
        "a schedule whatever happens",
    ),
    (
        "window",
        "the time between warm-up and cool-down; a steady window is the part of it found from the "
        "data: of a closed loop from the first to the last time that the requests in flight are "
        "at 95 % of their time-weighted median, of an open loop at a constant rate what MSER-5 "
        "leaves of the E2E in order of intended time. Where less than half of the window would "
        "be left, it stays as planned",
    ),
    (
        "requests/s",
        "answers that ended well, of any part of the load, each by the share of its time (sent to "
        "ended) that lies in the window / the window's length",
    ),
    (
        "output tokens/s",
        "tokens that arrived in the window / its length, those of failed requests included; "
        "total tokens/s adds the prompt tokens of the answers that ended well, by the same share",
    ),
    (
        "goodput",
        "answers that ended well and met every latency SLO by themselves, counted as for "
        "requests/s / the window's length: a request's own value, of ITL and inter-event gap its "
        "own mean or percentile; a "
        "request without a second token meets SLOs of ITL, inter-event gap and TPOT",
    ),
    (
        "SLO met",
        "the figure is within the limit. A percentile decides from so many requests on: p90 from "
        "10, p95 from 20, p99 from 100, p99.9 from 1,000, of gaps too, for requests are what is "
        "drawn. With fewer it is never met; it is missed where a lower percentile of enough "
        "requests is beyond the limit already",
    ),
    (
        "success",
        "requests that ended well / requests intended between warm-up and cool-down; dropped "
        "ones, and those that the end of the load cut off, did not",
    ),
    ("concurrency delivered", "mean number of requests in flight over the window"),
    ("rate delivered", "requests sent in the window / its length"),
    ("late, dropped", "sent more than 1 ms after the intended time; never sent"),
    (
        "drift",
        "median E2E of the second half of the window / that of the first - 1. The same is asked "
        "of TTFT and TPOT, and of the middle third beside the rest; a difference is more than "
        "chance where the rank sums of both parts say so (Mann-Whitney)",
    ),
    (
        "standstill",
        "no request in flight gets a token, although two or more had their first and not their "
        "last, for longer than 20 median gaps and a quarter of the median time from sent to ended; "
        "where a first token ends it, which a prefill may have held up, than 5 times the p90 of "
        "service TTFT",
    ),
    (
        "p50 to p99.9 of a load",
        f"{METHOD}; given from 10 samples on for p90, 20 for p95, 100 for p99, 1,000 for p99.9",
    ),
    (
        "answer of a search",
        "the highest value tried that met every SLO in most of its repeats; where a step has too "
        "few requests for a percentile, its highest sample stands in its place. Its 95 % "
        "confidence interval goes from the highest value tried at which the whole interval of "
        "every SLO's figure met the SLO to the lowest at which the whole interval of one missed "
        "it, in every repeat; those values, and the bracket's two, are tried as often as repeats "
        "says, each time with other prompts and arrivals. Of success it is Wilson's interval of a "
        "share",
    ),
    ("partial", "figures of a load that was cut off: of what was measured until then"),
    (
        "95 % interval",
        "percentile bootstrap with a fixed seed. Whole requests are drawn again, not single gaps, "
        "for those of one request resemble each other; above 2,000 requests, neighbours in groups. "
        "Of rates: blocks of the window, no shorter than two median times from sent to "
        "ended where that leaves ten. "
        "Not given below 10 requests, nor where the highest sample may lie below the percentile "
        "with a chance above 2.5 %",
    ),
)
"""The words of loads and what they mean, for reports."""


def ttft_ns(seen: RequestObservation) -> int | None:
    """t_1 - intended; None where no token came."""
    return seen.event_ns[0] - seen.intended_ns if seen.event_ns else None


def service_ttft_ns(seen: RequestObservation) -> int | None:
    """t_1 - sent; None where no token came."""
    if seen.sent_ns is None or not seen.event_ns:
        return None
    return seen.event_ns[0] - seen.sent_ns


def tpot_ns(seen: RequestObservation) -> float | None:
    """(t_n - t_1) / (n - those of the first event); None where all came in one event."""
    if len(seen.event_ns) < 2 or seen.output_tokens <= seen.event_tokens[0]:
        return None
    return (seen.event_ns[-1] - seen.event_ns[0]) / (seen.output_tokens - seen.event_tokens[0])


def e2e_ns(seen: RequestObservation) -> int | None:
    """ended - intended; None where it was never sent."""
    return None if seen.sent_ns is None else seen.ended_ns - seen.intended_ns


def send_lag_ns(seen: RequestObservation) -> int | None:
    """sent - intended; None where it was never sent."""
    return None if seen.sent_ns is None else seen.sent_ns - seen.intended_ns


OF_REQUEST: dict[str, Callable[[RequestObservation], float | None]] = {
    "ttft": ttft_ns,
    "service_ttft": service_ttft_ns,
    "tpot": tpot_ns,
    "e2e": e2e_ns,
    "send_lag": send_lag_ns,
}
"""The metrics of which a request has one value in ns."""


def split_metric(name: str) -> tuple[str, str]:
    """Metric and statistic of "service_ttft_p99"; ValueError where the name is none."""
    metric, _, statistic = name.rpartition("_")
    if metric not in OF_REQUEST and metric not in GAPS:
        raise ValueError(f"{name} is no metric of a load")
    if statistic not in PER_MILLE and statistic not in ("mean", "max"):
        raise ValueError(f"{name} does not end in a statistic")
    return metric, statistic


def distribution_of(stage: StageSummary, metric: str) -> LoadDistribution | None:
    """A stage's distribution by the metric's name in trials.load.METRICS."""
    return {
        "ttft": stage.ttft,
        "service_ttft": stage.service_ttft,
        "itl": stage.itl,
        "event_gap": stage.event_gap,
        "tpot": stage.tpot,
        "e2e": stage.e2e,
        "send_lag": stage.send_lag,
    }[metric]


def figure_of(stage: StageSummary, name: str) -> Figure | None:
    """A stage's figure by its name, "ttft_p99"; None where undefined."""
    metric, statistic = split_metric(name)
    distribution = distribution_of(stage, metric)
    return None if distribution is None else statistic_of(distribution, statistic)


def closed_loop(trial: LoadTrial) -> bool:
    """Whether sends wait for completions."""
    if trial.find is not None:
        return trial.find.sought is Sought.MAX_CONCURRENCY
    return isinstance(trial.arrivals, ClosedLoop)


def constant_rate(trial: LoadTrial) -> bool:
    """Whether sends follow a schedule of one mean rate."""
    if trial.find is not None:
        return trial.find.sought is Sought.MAX_RATE
    return isinstance(trial.arrivals, OpenLoop) and not trial.arrivals.parts
