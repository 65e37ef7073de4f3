"""Experiments with loads that take a second or two, and what came of them."""

from __future__ import annotations

from pathlib import Path

import yaml

from tgi_bench.load_observation import LoadStage, RequestObservation
from tgi_bench.observation import TrialEnd
from tgi_bench.record.store import RunStore

EMBEDDED: dict[str, object] = {
    "launcher": "embedded",
    "version": "3.3.7",
    "constant": {"max_input_tokens": 128, "max_total_tokens": 256},
    "embedded": {"accelerator": "H100-SXM"},
}
SHORT: dict[str, object] = {"prompt_tokens": 8, "output_tokens": 4}


def write(folder: Path, *loads: dict[str, object], server: dict[str, object] | None = None) -> Path:
    """An experiment file of that many loads; each without a workload gets a short one."""
    tree = {
        "experiment": "loads",
        "model": "bigscience/bloomz-1b1",
        "server": {**EMBEDDED, **(server or {})},
        "load": [{"workload": SHORT, "request_timeout": "5s", **load} for load in loads],
    }
    file = folder / "loads.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return file


def ends(run_dir: Path) -> dict[str, TrialEnd]:
    with RunStore.open(run_dir, writable=False) as store:
        return dict(store.ends())


def stages(run_dir: Path, trial_id: str) -> tuple[LoadStage, ...]:
    with RunStore.open(run_dir, writable=False) as store:
        return tuple(store.seen(trial_id, LoadStage))


def requests(run_dir: Path, trial_id: str) -> list[RequestObservation]:
    with RunStore.open(run_dir, writable=False) as store:
        return list(store.seen(trial_id, RequestObservation))
