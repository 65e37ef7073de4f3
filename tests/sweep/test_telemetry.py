"""A sweep of a real model beside an energy counter: from its samples to the report."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.devices.powercap import zone
from tests.report.made import documents
from tests.torch_engine.needs_torch import needs_torch
from tests.torch_engine.tiny import write_config
from tgi_bench.cli.run_view import load
from tgi_bench.devices.watch import TelemetryWatch
from tgi_bench.errors import LaunchError
from tgi_bench.kinds.running import Watcher
from tgi_bench.plan.experiment import to_json
from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.record.store import RunHeader, RunStore
from tgi_bench.sweep import Sweep

WATTS = 20
EXPERIMENT = """
experiment: energy
model: {model}
server:
  launcher: embedded
  version: 3.3.7
  constant: {{max_input_tokens: 48, max_total_tokens: 448}}
  embedded: {{engine: transformers, device: cpu, random_weights: true}}
batches: {{sequence_length: 16, decode_length: 400, batch_size: 2, runs: 3}}
"""


class Quiet(Watcher):
    """Watches a sweep of one trial that does not fail."""

    def not_started(self, host_id: str, error: LaunchError) -> None:
        raise error


@contextmanager
def burning(powercap: Path) -> Iterator[None]:
    """A counter that grows by WATTS, as often as Linux lets it."""
    counter = os.open(zone(powercap, "intel-rapl:0", "package-0") / "energy_uj", os.O_WRONLY)
    over = threading.Event()
    began = time.monotonic()

    def burn() -> None:
        while not over.wait(0.002):
            os.pwrite(counter, b"%015d\n" % int((time.monotonic() - began) * WATTS * 1e6), 0)

    thread = threading.Thread(target=burn)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.close(counter)


@needs_torch
@pytest.mark.long
def test_energy_of_a_real_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = write_config(tmp_path / "model", "llama", max_position_embeddings=512)
    powercap, run_dir = tmp_path / "powercap", tmp_path / "run"
    powercap.mkdir()
    run_dir.mkdir()
    experiment, plan = load_plan(EXPERIMENT.format(model=model), "energy.yaml")
    header = RunHeader("run", to_json(experiment), plan, "measured", (), "2026-01-01T00:00:00Z")
    with burning(powercap), RunStore.create(run_dir, header) as store:
        Sweep(plan, store, run_dir, Quiet(), telemetry=TelemetryWatch(powercap=powercap)).run()
    run = load(run_dir)
    (seen,) = run.telemetry
    (package,) = seen.devices
    assert (seen.absent, seen.no_energy, package.names) == ("", "", ("package-0",))
    assert package.average_power_w == pytest.approx(WATTS, rel=0.2)
    assert package.energy_j is not None
    assert package.j_per_token == pytest.approx(package.energy_j / (3 * 2 * 400))
    assert dict(seen.began) == dict(seen.ended)
    assert dict(seen.began)["tgi_queue_size"] == 0
    page = documents(run)["num_shard-1.md"]
    assert "| package-0 " in page
    assert "# Server before and after" in page
