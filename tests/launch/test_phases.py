"""What a starting server's log lines say that it is doing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.launch.readiness import StartPhase, Step, last_step
from tgi_bench.plan.plan import Timeouts

D, L = StartPhase.DOWNLOAD, StartPhase.LOAD


@pytest.mark.parametrize(
    ("line", "phase", "text"),
    [
        ("Starting download process.", D, "downloading"),
        ("Starting check and download process for org/model", D, "downloading"),
        ("Download file: model-00001-of-00002.safetensors", D,
         "downloading model-00001-of-00002.safetensors"),
        ("Download: [1/2] -- ETA: 0:01:02", D, "downloading 1 of 2, 0:01:02 left"),
        ("Download: [2/2] -- ETA: 0", D, "downloading 2 of 2, 0 left"),
        ("Convert: [3/9] -- Took: 0:00:03.1", D, "converting 3 of 9"),
        ("Files are already present on the host.", L, "weights are there already"),
        ("Successfully downloaded weights.", L, "loading"),
        ("Sharding model on 4 processes", L, "sharding on 4 processes"),
        ("Starting shard rank=0", L, "starting shards"),
        ("Starting shard 0", L, "starting shards"),
        ("Waiting for shard to be ready... rank=0", L, "waiting for shards"),
        ("Waiting for shard 0 to be ready...", L, "waiting for shards"),
        ("Shard ready in 12.3s rank=0", L, "shards are ready"),
        ("Starting Webserver", L, "starting its webserver"),
        ("Warming up model", L, "warming up"),
        ("Fetching 5 files:  40%|####      | 2/5 [00:01<00:02,  1.2it/s]", D, "downloading 2 of 5"),
        ("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01]", L,
         "loading 1 of 2"),
        ("Capturing CUDA graph shapes:  10%", L, "capturing CUDA graphs"),
        ("Load weight begin. avail mem=23.3 GB", L, "loading"),
        ("main: loading model", L, "loading"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "form",
    [
        "2024-03-06T18:04:02.019265Z  INFO text_generation_launcher: {}",
        "\x1b[2m2024-03-06T18:04:02Z\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mx\x1b[0m: {}",
    ],
)
def test_a_line(line: str, phase: StartPhase, text: str, form: str) -> None:
    said = Step(phase, text)
    assert last_step([form.format(line), "something else"]) == said
    assert last_step([json.dumps({"fields": {"message": line}})]) == said


def test_the_last_line_counts_and_so_does_the_last_of_a_progress_bar() -> None:
    both = ["Warming up model", "Starting Webserver"]
    assert last_step(both) == Step(L, "starting its webserver")
    bar = "Fetching 5 files: 20%| 1/5\rFetching 5 files: 60%| 3/5\r"
    assert last_step([bar]) == Step(D, "downloading 3 of 5")


@given(st.lists(st.text()))
def test_garbage_never_raises(lines: list[str]) -> None:
    last_step(lines)


def test_each_phase_has_its_timeout_and_its_key() -> None:
    timeouts = Timeouts(1.0, 2.0, 3.0, 4.0)
    assert [(p.key, p.timeout_s(timeouts)) for p in StartPhase] == [
        ("server.timeouts.pull_s", 1.0),
        ("server.timeouts.download_s", 2.0),
        ("server.timeouts.load_s", 3.0),
        ("server.timeouts.probe_s", 4.0),
    ]
