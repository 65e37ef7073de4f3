"""The loads of `tgi-bench selfcheck`: each is run against a null server of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tgi_bench.analysis.client_error import (
    ClientErrors,
    NullLoad,
    Percentiles,
    ServerSends,
    client_errors,
    client_floor,
    most_in_flight,
    percentiles,
)
from tgi_bench.errors import InputError, LaunchError, TgiBenchError
from tgi_bench.launch.left_behind import NULL_SERVER, owned_folder
from tgi_bench.load_observation import ClientFloor, LoadStage, RequestObservation
from tgi_bench.sections.section import Sampling
from tgi_bench.selfcheck.memory_watch import MemoryPeak, watched
from tgi_bench.server.null.loop import HOST
from tgi_bench.server.null.timing import ServedLog, StreamPace, decode
from tgi_bench.trials.load import (
    ClosedLoop,
    Extent,
    Fixed,
    LoadTrial,
    OpenLoop,
    Process,
    Workload,
)

_END_S = 30.0
"""After it a null server that was told to stop is killed."""


@dataclass(frozen=True, slots=True)
class NullServerProcess:
    """A null server that serves."""

    url: str
    pid: int
    _process: subprocess.Popen[bytes]
    _log: Path

    def stop(self) -> ServedLog:
        """End it; what it served. Raises LaunchError where it died or wrote no log."""
        self._process.terminate()
        try:
            _, said = self._process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            raise LaunchError(f"the null server did not end within {_END_S:g} s") from None
        if self._process.returncode != 0:
            raise _died(self._process.returncode, said)
        return decode(self._log.read_bytes())


@contextmanager
def null_server(pace: StreamPace) -> Iterator[NullServerProcess]:
    """Start one on a free port; it ends when the context is left, or when this process dies."""
    if sys.platform != "linux":
        raise InputError("the null server needs Linux: it is built on epoll")
    with owned_folder(Path(tempfile.gettempdir()), NULL_SERVER) as folder:
        log = folder / "null_server.log"
        process = subprocess.Popen(
            _command(pace, log),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # a terminal's signals are for the sweep alone
        )
        try:
            yield NullServerProcess(f"http://{HOST}:{_port(process)}", process.pid, process, log)
        finally:
            process.kill()
            process.communicate()


def _command(pace: StreamPace, log: Path) -> list[str]:
    numbers = {
        "--port": 0,
        "--interval-ns": pace.interval_ns,
        "--first-ns": pace.first_ns,
        "--spread-ns": pace.spread_ns,
    }
    words = [word for name, value in numbers.items() for word in (name, str(value))]
    module = [sys.executable, "-m", "tgi_bench.server.null"]
    return [*module, *words, "--log", str(log), "--until-stdin-ends"]


def _port(process: subprocess.Popen[bytes]) -> int:
    if process.stdout is None:
        raise ValueError("the null server's output is not read")
    line = process.stdout.readline().strip()
    if not line.isdigit():
        process.kill()
        _, said = process.communicate()
        raise _died(process.returncode, said)
    return int(line)


def _died(code: int, said: bytes) -> LaunchError:
    lines = tuple(said.decode(errors="replace").splitlines()[-20:])
    return LaunchError(f"the null server ended with {code}", lines)


INTERVAL_NS = 20_000_000
RATE_PER_S = 200.0
ABSORB_STREAMS = 64
_PROMPT_TOKENS = 32
_TOKENS = 128
"""New tokens of an answer; fewer where few streams would otherwise give few requests."""

_FEWEST_TOKENS = 8
_WANTED_REQUESTS = 100
_OPEN_TOKENS = 16
_HELD_TOKENS = 8
_HELD_INTERVAL_NS = 1_000_000_000
"""A held stream lasts as long as it takes to begin the last one, and longer."""

_TIMEOUT_NS = 120 * 1_000_000_000
_ID = "selfcheck"


class RunLoad(Protocol):
    """Runs one load against a server and gives every request with x-request-id
    "<stage>-<request_index>"."""

    def __call__(
        self, url: str, trial: LoadTrial
    ) -> tuple[LoadStage, Sequence[RequestObservation]]:
        """The stage and its requests, in the order of their index."""


@dataclass(frozen=True, slots=True)
class CheckLoad:
    """One load. watch_memory: whether memory is measured beside it, by a process more."""

    name: str
    pace: StreamPace
    streams: int
    trial: LoadTrial
    watch_memory: bool = False


@dataclass(frozen=True, slots=True)
class NullFacts:
    """What the null server was meanwhile. lateness_ns: sent less due; None for an instant one."""

    cpu_ns_per_event: float
    lateness_ns: Percentiles | None
    kernel_stamps: bool
    clock_step_ns: int


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What came of a load. memory_bytes: of all client processes; None: not watched."""

    load: CheckLoad
    floor: ClientFloor
    errors: ClientErrors
    stage: LoadStage
    most_in_flight: int
    memory_bytes: int | None
    null: NullFacts


def paced(streams: int, seconds: float) -> CheckLoad:
    """A closed loop of `streams`, whose streams have an event every INTERVAL_NS."""
    events = streams * seconds * 1e9 / INTERVAL_NS
    tokens = max(_FEWEST_TOKENS, min(_TOKENS, int(events / _WANTED_REQUESTS)))
    return CheckLoad(
        name=f"paced 20 ms, {streams} streams",
        pace=StreamPace(INTERVAL_NS, INTERVAL_NS, INTERVAL_NS),
        streams=streams,
        trial=_trial(f"load-c{streams}", tokens, ClosedLoop(streams), _lasting(seconds)),
    )


def open_loop(seconds: float) -> CheckLoad:
    """RATE_PER_S requests a second, one after another at a constant gap."""
    arrivals = OpenLoop(RATE_PER_S, (), Process.CONSTANT, burstiness=1.0, seed=0)
    lasts_s = _OPEN_TOKENS * INTERVAL_NS / 1e9
    return CheckLoad(
        name=f"open loop, {RATE_PER_S:g} requests/s",
        pace=StreamPace(INTERVAL_NS, INTERVAL_NS, INTERVAL_NS),
        streams=round(RATE_PER_S * lasts_s),
        trial=_trial(f"load-r{RATE_PER_S:g}", _OPEN_TOKENS, arrivals, _lasting(seconds)),
    )


def absorbed(seconds: float) -> CheckLoad:
    """One worker, and a server that sends whole answers at once."""
    trial = _trial("load-instant", _TOKENS, ClosedLoop(ABSORB_STREAMS), _lasting(seconds), 1)
    name = f"instant, {ABSORB_STREAMS} streams, one worker"
    return CheckLoad(name, StreamPace(0, 0, 0), ABSORB_STREAMS, trial)


def held(streams: int) -> CheckLoad:
    """All streams at once, each begun before the first one ends, and their memory."""
    extent = Extent(None, streams, 0, 0, 0, 0, None)
    return CheckLoad(
        name=f"held, {streams} streams",
        pace=StreamPace(_HELD_INTERVAL_NS, _HELD_INTERVAL_NS, _HELD_INTERVAL_NS),
        streams=streams,
        trial=_trial(f"load-held-c{streams}", _HELD_TOKENS, ClosedLoop(streams), extent),
        watch_memory=True,
    )


def _lasting(seconds: float) -> Extent:
    return Extent(round(seconds * 1e9), None, 0, 0, 0, 0, None)


def _trial(
    name: str,
    tokens: int,
    arrivals: ClosedLoop | OpenLoop,
    extent: Extent,
    workers: int | None = None,
) -> LoadTrial:
    return LoadTrial(
        trial_id=f"{_ID}/{name}",
        deployment_id=_ID,
        spoken="tgi",
        stream=True,
        workload=Workload(Fixed(_PROMPT_TOKENS), Fixed(tokens), None, None, None, seed=0),
        arrivals=arrivals,
        extent=extent,
        slos=(),
        find=None,
        sampling=Sampling(False, None, None, None, None, None, False),
        request_timeout_ns=_TIMEOUT_NS,
        max_in_flight=None,
        workers=workers,
        tokenizer=None,
    )


def check(load: CheckLoad, run_load: RunLoad) -> CheckResult:
    """Run a load against a null server. Raises TgiBenchError where nothing can be compared."""
    with null_server(load.pace) as server:
        with watched((server.pid,)) if load.watch_memory else nullcontext(MemoryPeak()) as memory:
            stage, requests = run_load(server.url, load.trial)
        served = server.stop()
    errors = client_errors(requests, sends_of(served))
    if not errors.compared:
        raise TgiBenchError(f"{load.name}: no request could be compared: {_why(server, requests)}")
    floor = client_floor(NullLoad(load.streams, load.pace.interval_ns), stage, requests, errors)
    return CheckResult(
        load=load,
        floor=floor,
        errors=errors,
        stage=stage,
        most_in_flight=most_in_flight(requests),
        memory_bytes=memory.bytes,
        null=_null_facts(served),
    )


def sends_of(served: ServedLog) -> tuple[ServerSends, ...]:
    """A null server's log as it is compared; requests without an id are left out."""
    return tuple(
        ServerSends(request.request_id.decode("latin-1"), request.arrival_ns, request.sent_ns)
        for request in served.requests
        if request.request_id
    )


def _why(server: NullServerProcess, requests: Sequence[RequestObservation]) -> str:
    for request in requests:
        if request.reason:
            return request.reason
    return f"none of {len(requests)} requests to {server.url} gave its x-request-id back"


def _null_facts(served: ServedLog) -> NullFacts:
    events = sum(len(request.sent_ns) for request in served.requests)
    return NullFacts(
        cpu_ns_per_event=served.cpu_ns / max(1, events),
        lateness_ns=percentiles(served.lateness_ns()),
        kernel_stamps=served.kernel_stamps,
        clock_step_ns=served.clock_step_ns,
    )
