"""A load client made of http.client and a thread a stream: slow, simple and independent of ours."""

from __future__ import annotations

import http.client
import json
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tgi_bench.load_observation import (
    ClientFacts,
    LoadPart,
    LoadStage,
    RequestObservation,
    RequestOutcome,
    TokenSource,
)
from tgi_bench.trials.load import ClosedLoop, Fixed, LoadTrial, OpenLoop

RATE_STREAMS = 8
"""Threads that an open loop is served with."""


@dataclass(slots=True)
class BlockingClient:
    """Runs a closed loop, or an open loop's schedule, of at most `most` requests.

    name_of: the x-request-id of a request's index.
    """

    most: int = 10**9
    name_of: Callable[[int], str] = "0-{}".format
    trials: list[LoadTrial] = field(default_factory=list)

    def __call__(
        self, url: str, trial: LoadTrial
    ) -> tuple[LoadStage, Sequence[RequestObservation]]:
        self.trials.append(trial)
        load = _Load(self, urlsplit(url).netloc, trial)
        load.run()
        return load.stage(), load.seen


class _Load:
    def __init__(self, client: BlockingClient, netloc: str, trial: LoadTrial) -> None:
        self.client, self.netloc, self.trial = client, netloc, trial
        self.seen: list[RequestObservation] = []
        self.began_ns = time.monotonic_ns()
        self._lock = threading.Lock()
        self._next = 0
        arrivals, extent = trial.arrivals, trial.extent
        self.concurrency = arrivals.concurrency if isinstance(arrivals, ClosedLoop) else None
        self.rate_per_s = None if isinstance(arrivals, ClosedLoop) else _rate(trial)
        self._requests = min(extent.requests or 10**9, client.most)
        self._stop_ns = self.began_ns + (extent.duration_ns or 10**12)

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._stream) for _ in range(self.concurrency or RATE_STREAMS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seen.sort(key=lambda request: request.request_index)

    def _stream(self) -> None:
        connection = http.client.HTTPConnection(self.netloc, timeout=30)
        while (index := self._taken()) is not None:
            intended_ns = None
            if self.rate_per_s is not None:
                intended_ns = self.began_ns + round(index * 1e9 / self.rate_per_s)
                time.sleep(max(0, intended_ns - time.monotonic_ns()) / 1e9)
            self.seen.append(self._asked(connection, index, intended_ns))
        connection.close()

    def _taken(self) -> int | None:
        with self._lock:
            index = self._next
            over = index >= self._requests or time.monotonic_ns() >= self._stop_ns
            if self.rate_per_s is not None:
                over = over or self.began_ns + index * 1e9 / self.rate_per_s >= self._stop_ns
            self._next += not over
            return None if over else index

    def _asked(
        self, connection: http.client.HTTPConnection, index: int, intended_ns: int | None
    ) -> RequestObservation:
        output = self.trial.workload.output
        assert isinstance(output, Fixed)
        payload = json.dumps(
            {"inputs": "a", "parameters": {"max_new_tokens": output.tokens, "details": True}}
        )
        headers = {"x-request-id": self.client.name_of(index)}
        sent_ns = time.monotonic_ns()
        connection.request("POST", "/generate_stream", payload, headers)
        response = connection.getresponse()
        event_ns = array("q")
        while line := response.readline():
            if line.startswith(b"data:"):
                event_ns.append(time.monotonic_ns())
        return _observation(index, (intended_ns or sent_ns, sent_ns), event_ns)

    def stage(self) -> LoadStage:
        ended_ns = time.monotonic_ns()
        facts = ClientFacts(
            workers=1,
            worker_cpu_ns=(time.process_time_ns(),),
            parent_cpu_ns=0,
            wall_ns=ended_ns - self.began_ns,
            kernel_stamps=False,
            stamp_reason="read in user space",
            clock_step_ns=0,
            connections_opened=1,
            connections_reopened=0,
        )
        window = (self.began_ns, ended_ns)
        return LoadStage(
            0, self.concurrency, self.rate_per_s, 0, *window, *window, dialect="tgi", client=facts
        )


def _rate(trial: LoadTrial) -> float:
    assert isinstance(trial.arrivals, OpenLoop)
    assert trial.arrivals.rate_per_s is not None
    return trial.arrivals.rate_per_s


def _observation(
    index: int, intended_and_sent_ns: tuple[int, int], event_ns: array[int]
) -> RequestObservation:
    intended_ns, sent_ns = intended_and_sent_ns
    return RequestObservation(
        stage=0,
        request_index=index,
        worker=0,
        part=LoadPart.MEASURED,
        conversation=index,
        turn=0,
        intended_ns=intended_ns,
        sent_ns=sent_ns,
        ended_ns=event_ns[-1],
        event_ns=event_ns,
        event_tokens=array("i", [1] * len(event_ns)),
        events=len(event_ns),
        shared_reads=0,
        prompt_tokens_asked=None,
        prompt_tokens=None,
        cached_tokens=None,
        output_tokens_asked=None,
        output_tokens=len(event_ns),
        counted_by=TokenSource.SERVER,
        finish_reason="length",
        status=200,
        new_connection=False,
        kernel_stamps=False,
        outcome=RequestOutcome.OK,
        reason="",
    )
