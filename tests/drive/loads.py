"""Loads that the tests of the load client send, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from tgi_bench.dialects import speaking
from tgi_bench.dialects.dialect import Abilities
from tgi_bench.drive.load import run_stage
from tgi_bench.drive.preparation import Prepared
from tgi_bench.drive.stage import Listener, Progress, StageAsk
from tgi_bench.load_observation import LoadPart, LoadStage, RequestObservation, RequestOutcome
from tgi_bench.sections.section import Sampling
from tgi_bench.trials.load import (
    Arrivals,
    ClosedLoop,
    Extent,
    Fixed,
    LoadTrial,
    OpenLoop,
    Process,
    Workload,
)

TOKENS = 5
GREEDY = Sampling(False, None, None, None, None, None, False)
WORKLOAD = Workload(Fixed(5), Fixed(TOKENS), None, None, None, 0)
MS = 1_000_000


def counted(requests: int, warmup: int = 0, cooldown: int = 0) -> Extent:
    return Extent(None, requests, 0, warmup, 0, cooldown, None)


def timed(duration_ns: int, warmup_ns: int = 0, cooldown_ns: int = 0) -> Extent:
    return Extent(duration_ns, None, warmup_ns, 0, cooldown_ns, 0, None)


def at_rate(rate_per_s: float, process: Process = Process.CONSTANT) -> OpenLoop:
    return OpenLoop(rate_per_s, (), process, 1.0, 0)


def trial(
    arrivals: Arrivals, extent: Extent, workload: Workload = WORKLOAD, **rest: object
) -> LoadTrial:
    """One of TGI's own API; rest: fields of LoadTrial."""
    plain = LoadTrial(
        trial_id="drive/load",
        deployment_id="drive",
        spoken="tgi",
        stream=True,
        workload=workload,
        arrivals=arrivals,
        extent=extent,
        slos=(),
        find=None,
        sampling=GREEDY,
        request_timeout_ns=2_000_000_000,
        max_in_flight=None,
        workers=1,
        tokenizer=None,
    )
    return replace(plain, **rest)  # type: ignore[arg-type]


def closed(requests: int, concurrency: int, **rest: object) -> LoadTrial:
    return trial(ClosedLoop(concurrency), counted(requests), **rest)  # type: ignore[arg-type]


def prepared(url: str, asked: LoadTrial, verify_tls: bool = True) -> Prepared:
    """As `prepare` leaves it, without asking a server that may not answer."""
    return Prepared(
        trial=asked,
        url=url,
        host=urlsplit(url).netloc,
        base_path=urlsplit(url).path,
        headers=(),
        verify_tls=verify_tls,
        abilities=Abilities(
            dialect=speaking("tgi")[0],
            model="",
            engine="tgi",
            truncates=True,
            tokenize_path=None,
            ignores_eos=None,
            usage=False,
            max_input_tokens=None,
        ),
        corpus=None,
        count_tokens=None,
        fitted=lambda spec: spec.text,
        details=(),
    )


@dataclass(slots=True)
class Sent:
    """What a load's listener was told."""

    requests: list[RequestObservation] = field(default_factory=list)
    told: list[Progress] = field(default_factory=list)

    def record(self, observations: Sequence[RequestObservation]) -> None:
        self.requests.extend(observations)

    def listener(self, kernel_stamps: bool = True) -> Listener:
        return Listener(self.record, self.told.append, None, kernel_stamps)

    @property
    def in_order(self) -> list[RequestObservation]:
        return sorted(self.requests, key=lambda one: one.request_index)


def send(
    url: str, asked: LoadTrial, kernel_stamps: bool = True, verify_tls: bool = True
) -> tuple[LoadStage, list[RequestObservation]]:
    """A load to its end, and its requests by their index."""
    return send_prepared(prepared(url, asked, verify_tls), kernel_stamps)


def send_prepared(
    ready: Prepared, kernel_stamps: bool = True
) -> tuple[LoadStage, list[RequestObservation]]:
    sent = Sent()
    ask = StageAsk(0, 0, ready.trial.arrivals)
    stage = run_stage(ready, ask, sent.listener(kernel_stamps))
    return stage, sent.in_order


def outcomes(seen: Sequence[RequestObservation]) -> set[RequestOutcome]:
    return {one.outcome for one in seen}


def parts(seen: Sequence[RequestObservation]) -> list[LoadPart]:
    return [one.part for one in seen]


def most_at_once(seen: Sequence[RequestObservation]) -> int:
    """Requests in flight at once, at most; one that ends as another is sent is not."""
    turns = [(one.sent_ns, 1) for one in seen if one.sent_ns is not None]
    turns += [(one.ended_ns, -1) for one in seen if one.sent_ns is not None]
    now = most = 0
    for _, change in sorted(turns):
        now += change
        most = max(most, now)
    return most
