"""What a sweep adds to a container's own time: before its first trial, and after its last.

Measured on real containers of the embedded server. What the engine itself takes is what
`docker stop` and `docker rm` of the same container take; it is measured beside, and left out.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path

import docker

from tests.bench.figures import Figure
from tests.docker.images import NoImageError, embedded_image
from tgi_bench.errors import LaunchError
from tgi_bench.kinds.running import Watcher
from tgi_bench.launch.docker_engine import engine
from tgi_bench.observation import TrialEnd
from tgi_bench.plan.experiment import to_json
from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.record.environment import capture
from tgi_bench.record.runs import RunLock, new_run_dir
from tgi_bench.record.store import RunHeader, RunStore
from tgi_bench.sweep import Sweep

DEPLOYMENTS = 4
GOAL_S = 1.0
EXPERIMENT = """
experiment: containers
model: bigscience/bloomz-1b1
server:
  launcher: docker
  image: {image}
  variable: {{max_concurrent_requests: [1, 2, 3, 4]}}
  embedded: {{accelerator: H100-SXM}}
batches:
  {{sequence_length: [20], decode_length: 4, batch_size: [1, 2], runs: 2}}
"""


def run() -> tuple[Figure, ...]:
    """Medians over DEPLOYMENTS starts; () where no engine answers, which is said."""
    try:
        with engine() as client:
            return _measure(client)
    except (LaunchError, NoImageError) as error:
        print(f"containers: not measured: {error}")
        return ()


def _measure(client: docker.DockerClient) -> tuple[Figure, ...]:
    image = embedded_image(client)
    experiment, plan = load_plan(EXPERIMENT.format(image=image), "containers")
    with tempfile.TemporaryDirectory() as results:
        run_dir = new_run_dir(Path(results), plan.experiment, plan.digest)
        watch = _Stopwatch(run_dir)
        header = RunHeader(
            run_dir.name, to_json(experiment), plan, "measured", capture(), "2026-01-01T00:00:00Z"
        )
        with RunLock(run_dir), RunStore.create(run_dir, header) as store:
            Sweep(plan, store, run_dir, watch).run()
            watch.gone()
    own = statistics.median(_bare_stop_s(client, image) for _ in range(DEPLOYMENTS))
    first, last = statistics.median(watch.first_s), statistics.median(watch.last_s)
    detail = f"p50 of {DEPLOYMENTS} deployments, highest"
    return (
        Figure(
            "a container's server listens -> its first trial",
            GOAL_S,
            first,
            "s",
            f"{detail} {max(watch.first_s):.3f}",
        ),
        Figure(
            "its last trial -> container gone, less the engine's own",
            GOAL_S,
            max(0.0, last - own),
            "s",
            f"{detail} {max(watch.last_s):.3f} in all; the engine alone {own:.3f}",
        ),
        Figure(
            "starts of a server a deployment",
            1,
            watch.starts / len(plan.deployments),
            "",
            f"{len(plan.trials)} trials on {len(plan.deployments)} deployments",
        ),
    )


def _bare_stop_s(client: docker.DockerClient, image: str) -> float:
    """How long the engine takes to stop and remove a container whose server is ready."""
    words = ["--model-id", "bigscience/bloomz-1b1"]
    container = client.containers.run(image, words, detach=True)
    try:
        deadline = time.monotonic() + 60
        while b"Listening on" not in container.logs():
            if time.monotonic() > deadline:
                raise NoImageError("the embedded server did not become ready")
            time.sleep(0.05)
        began = time.monotonic()
        container.stop()
    finally:
        container.remove(force=True)
    return time.monotonic() - began


def _listening_since(log: Path) -> float:
    """Seconds since the epoch; container and client share the machine's clock."""
    for line in log.read_text().splitlines():
        if "Listening on" in line:
            return datetime.fromisoformat(line.split()[0]).timestamp()
    raise RuntimeError(f"{log} does not say when the server listened")


class _Stopwatch(Watcher):
    """Watches a sweep and notes both times of each deployment."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.first_s: list[float] = []
        self.last_s: list[float] = []
        self.starts = 0
        self._log: Path | None = None
        self._ended_s: float | None = None

    def gone(self) -> None:
        """The container of the deployment before is gone, or the sweep is over."""
        if self._ended_s is not None:
            self.last_s.append(time.monotonic() - self._ended_s)
            self._ended_s = None

    def starting(self, host_id: str, word: str, detail: str = "") -> None:
        """The sweep starts the next one when the last is gone."""
        self.gone()
        self.starts += 1

    def ready(self, host_id: str, word: str, detail: str) -> None:
        """The sweep knows that it is ready; the server's own log says since when it listens."""
        self._log = self._run_dir / "launch" / f"{host_id}.log"

    def not_started(self, host_id: str, error: LaunchError) -> None:
        """The figures would mean nothing."""
        raise error

    def begins(self, trial_id: str, now: str = "") -> None:
        """The first of a deployment ends the first time."""
        if self._log is not None:
            self.first_s.append(time.time() - _listening_since(self._log))
            self._log = None

    def ended(self, trial_id: str, end: TrialEnd) -> None:
        """If this was the deployment's last, its container goes now."""
        self._ended_s = time.monotonic()
