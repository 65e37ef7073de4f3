"""What a sweep costs a trial beside launching servers and driving them.

Everything between the first line of the sweep and its written reports counts, less the time
from a launch to its readiness, less the time that a server takes to stop, less each run from
its first send to its last reply, less the Health calls before it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from unittest.mock import patch

from tests.bench.figures import Figure
from tests.report.made import documents
from tgi_bench.cli.run_view import load, write_documents
from tgi_bench.drive.ranks import Ranks
from tgi_bench.errors import LaunchError
from tgi_bench.kinds.running import Watcher
from tgi_bench.observation import StepObservation, TrialEnd
from tgi_bench.plan.experiment import to_json
from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.plan.plan import BatchTrial, Plan
from tgi_bench.record.environment import capture
from tgi_bench.record.runs import RunLock, new_run_dir
from tgi_bench.record.store import RunHeader, RunStore
from tgi_bench.sweep import Sweep

EXPERIMENT = """
experiment: sweep-overhead
model: bigscience/bloomz-1b1
server:
  launcher: embedded
  version: 3.3.7
  variable: {num_shard: [1, 2]}
  embedded: {accelerator: H100-SXM}
batches:
  {sequence_length: [1024, 100], decode_length: 8, batch_size: [1, 2, 4, 8, 16, 32], runs: 10}
"""


def run() -> tuple[Figure, ...]:
    """Milliseconds a trial."""
    began_ns = time.monotonic_ns()
    experiment, plan = load_plan(EXPERIMENT, "sweep-overhead")
    stopwatch = _Stopwatch()
    with tempfile.TemporaryDirectory() as results:
        run_dir = new_run_dir(Path(results), plan.experiment, plan.digest)
        header = _header(run_dir, to_json(experiment), plan)
        asking = patch.object(Ranks, "health_ns", stopwatch.ask_health)
        with asking, RunLock(run_dir), RunStore.create(run_dir, header) as store:
            Sweep(plan, store, run_dir, stopwatch).run()
            stopwatch.leave_server()
            began_reading_ns = time.monotonic_ns()
            stopwatch.leave_driving(store, plan.trials)
            stopwatch.elsewhere_ns += time.monotonic_ns() - began_reading_ns
        write_documents(run_dir, documents(load(run_dir)))
        took_ns = time.monotonic_ns() - began_ns
    own_ms = (took_ns - stopwatch.elsewhere_ns) / 1e6 / len(plan.trials)
    detail = f"{len(plan.trials)} trials of 11 runs, {took_ns / 1e9:.1f} s in all"
    return (Figure("a sweep's own time a trial", 50, own_ms, "ms", detail),)


def _header(run_dir: Path, experiment_json: str, plan: Plan) -> RunHeader:
    return RunHeader(
        run_dir.name, experiment_json, plan, "measured", capture(), "2026-01-01T00:00:00Z"
    )


class _Stopwatch(Watcher):
    """Watches a sweep and adds up the time that is not its own."""

    def __init__(self) -> None:
        self.elsewhere_ns = 0
        self._since_ns: int | None = None

    def leave_server(self) -> None:
        """The last server has stopped."""
        if self._since_ns is not None:
            self.elsewhere_ns += time.monotonic_ns() - self._since_ns
            self._since_ns = None

    def starting(self, host_id: str, word: str, detail: str = "") -> None:
        """Stopping the server before it ends where starting the next one begins."""
        self.leave_server()
        self._since_ns = time.monotonic_ns()

    def ready(self, host_id: str, word: str, detail: str) -> None:
        """Launched."""
        self.leave_server()

    def not_started(self, host_id: str, error: LaunchError) -> None:
        """The figure would mean nothing."""
        raise error

    def begins(self, trial_id: str, now: str = "") -> None:
        """What lay before it since the last trial is the sweep's own."""
        self._since_ns = None

    def ended(self, trial_id: str, end: TrialEnd) -> None:
        """If this was the deployment's last, what follows is its server stopping."""
        self._since_ns = time.monotonic_ns()

    def leave_driving(self, store: RunStore, trials: Sequence[BatchTrial]) -> None:
        """Driving: of each run, from the first send to the last reply."""
        for trial in trials:
            steps = store.seen(trial.trial_id, StepObservation)
            for _, run in groupby(steps, key=lambda step: step.run_index):
                first, *_, last = run
                self.elsewhere_ns += last.ended_ns - first.sent_ns

    @property
    def ask_health(self) -> Callable[[Ranks], int | None]:
        """Ranks.health_ns, of which the time is the server's."""
        asked = Ranks.health_ns

        def timed(ranks: Ranks) -> int | None:
            began_ns = time.monotonic_ns()
            health_ns = asked(ranks)
            self.elsewhere_ns += time.monotonic_ns() - began_ns
            return health_ns

        return timed
