"""What trials of every kind are run with, and whom a sweep tells what happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.devices.watch import TelemetryWatch
from tgi_bench.errors import LaunchError
from tgi_bench.observation import ServerFacts, TrialEnd
from tgi_bench.record.store import RunStore
from tgi_bench.report.durations import duration

if TYPE_CHECKING:
    from tgi_bench.drive.workers import Ahead
    from tgi_bench.launch.launcher import RunningServer
    from tgi_bench.plan.plan import Deployment


class Watcher:
    """Is told what happens, between the timed steps and never during one; this one looks away.

    Hosts, which are servers and models in processes of our own, and trials are told by their ids.
    """

    def starting(self, host_id: str, word: str, detail: str = "") -> None:
        """A host is about to be started. word: "starting", "loading"."""

    def waiting(self, host_id: str, text: str) -> None:
        """It is not ready yet: what it says that it is doing."""

    def ready(self, host_id: str, word: str, detail: str) -> None:
        """It is ready. word: "ready", "loaded"."""

    def not_started(self, host_id: str, error: LaunchError) -> None:
        """It did not become ready; its trials end here."""

    def begins(self, trial_id: str, now: str = "") -> None:
        """A trial is next. now: what of it, as in "warm-up 1 of 2"."""

    def part_begins(self, trial_id: str, now: str) -> None:
        """A part of a trial is next, as one load of a search."""

    def part_ended(self, trial_id: str, said: str) -> None:
        """A part of a trial is over: what came of it."""

    def going(self, trial_id: str, now: str, result: str, line: str = "") -> None:
        """A run is over, or a load goes on, whose time other processes keep.

        result: what may be said of the trial if it ends well. line: of what takes long, for now
        and then where there is no status.
        """

    def ended(self, trial_id: str, end: TrialEnd) -> None:
        """A trial has its end, whether it was run or not."""


@dataclass(frozen=True, slots=True)
class Served:
    """A deployment whose server is ready."""

    server: RunningServer
    deployment: Deployment


@dataclass(frozen=True, slots=True)
class Running:
    """A sweep's means, for the trials of one host.

    run_dir: the run's folder. redacted: a text without the host's secrets.
    start: a random word; texts without a seed are drawn from it, so a resumed run has new ones.
    ahead: worker processes of the load client that were started before.
    """

    store: RunStore
    run_dir: Path
    watcher: Watcher
    telemetry: TelemetryWatch
    redacted: Callable[[str], str]
    start: str
    ahead: Ahead | None = None


def next_run(ended: int, warmups: int, runs: int) -> str:
    """ "run 2 of 10": what comes after the run of that index; -1 is before the first."""
    following = ended + 1
    if following < warmups:
        return f"warm-up {following + 1} of {warmups}"
    run = following - warmups
    return f"run {run + 1} of {runs}" if run < runs else f"{runs} runs done"


def ready_in(facts: ServerFacts) -> str:
    """ "(simulated, in 1.2 s)": what a watcher is told of a server that is ready."""
    kind = "simulated, " if facts.simulated else ""
    return f"({kind}in {duration(facts.ready_ns / 1e9)})"
