"""Which devices a deployment has, and what a sweep records around a trial."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.devices.powercap import zone
from tests.launch.deployments import attach, docker, embedded, program, transformers
from tests.record import samples
from tgi_bench.devices.observation import (
    Gauges,
    without_devices,
)
from tgi_bench.devices.take import ELSEWHERE, SIMULATED, Take, Whose, own_devices
from tgi_bench.devices.watch import TelemetryWatch
from tgi_bench.launch.launcher import Launcher
from tgi_bench.record.store import RunStore

TRIAL, SECOND, THIRD = (t.trial_id for t in samples.plan().trials)
ME = os.getpid()


@contextmanager
def stored(folder: Path) -> Iterator[RunStore]:
    with RunStore.create(folder, samples.header()) as store:
        yield store


@pytest.mark.parametrize(
    ("launcher", "environ", "found"),
    [
        (embedded(), {}, SIMULATED),
        (
            transformers(),
            {},
            (None, 2, Whose.CHILDREN),
        ),
        (
            transformers("cpu"),
            {},
            ((), 1, Whose.CHILDREN),
        ),
        (
            transformers(layer_split=True),
            {"CUDA_VISIBLE_DEVICES": "0,1,2"},
            (("0", "1", "2"), 1024, Whose.CHILDREN),
        ),
        (program(), {}, (None, 2, Whose.CHILDREN)),
        (
            program(),
            {"CUDA_VISIBLE_DEVICES": "3, GPU-ab,x,1"},
            (("3", "GPU-ab"), 2, Whose.CHILDREN),
        ),
        (
            program(),
            {"CUDA_VISIBLE_DEVICES": "-1"},
            ((), 2, Whose.CHILDREN),
        ),
        (docker(), {}, (None, 2, Whose.CONTAINER)),
        (docker(gpus="4"), {}, (None, 4, Whose.CONTAINER)),
        (docker(gpus="all"), {}, (None, 2, Whose.CONTAINER)),
        (docker(gpus="0"), {}, ((), 0, Whose.CONTAINER)),
        (docker(gpus="0,3"), {}, (("0", "3"), 2, Whose.CONTAINER)),
        (docker(), {"DOCKER_HOST": "tcp://10.0.0.1:2375"}, ELSEWHERE),
        (
            docker(),
            {"DOCKER_HOST": "unix:///run/docker.sock"},
            (None, 2, Whose.CONTAINER),
        ),
        (
            attach("http://127.0.0.1:8080"),
            {},
            (None, 0, Whose.UNKNOWN),
        ),
        (attach("http://gpu-box:8080"), {}, ELSEWHERE),
        (
            attach(sockets="/run/tgi/server-0"),
            {},
            (None, 0, Whose.UNKNOWN),
        ),
    ],
)
def test_which_devices_a_deployment_has(
    launcher: Launcher,
    environ: dict[str, str],
    found: str | tuple[tuple[str, ...] | None, int, Whose],
) -> None:
    expected: Take | str = (
        found if isinstance(found, str) else Take(*found[:2], True, found[2], (ME,))
    )
    asked = replace(samples.deployment(), launcher=launcher)  # num_shard 2
    assert launcher.devices(asked, environ) == expected


def test_devices_of_our_own_processes() -> None:
    assert own_devices(1, {}) == Take(None, 1, True, Whose.CHILDREN, (ME,))
    visible = {"CUDA_VISIBLE_DEVICES": "2"}
    assert own_devices(1, visible).gpus == ("2",)
    assert own_devices(1, visible, cpu_only=True).gpus == ()


ON_CPU = own_devices(1, {}, cpu_only=True)


@dataclass(slots=True)
class Server:
    """Says one size of its queue after the other, then nothing. asked: how often it was."""

    sizes: list[float]
    asked: int = 0

    def __call__(self) -> Callable[[], Gauges]:
        self.asked += 1
        gauges = queue(self.sizes.pop(0)) if self.sizes else ()
        return lambda: gauges


def queue(size: float) -> Gauges:
    return (("tgi_queue_size", size),)


@pytest.mark.parametrize(
    ("whose", "roots", "told"),
    [
        (Whose.UNKNOWN, (31, 32), (Whose.SERVER, (31, 32))),
        (Whose.UNKNOWN, (), (Whose.UNKNOWN, (ME,))),
        (Whose.CHILDREN, (31,), (Whose.CHILDREN, (ME,))),
    ],
)
def test_whose_processes_a_running_server_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whose: Whose,
    roots: tuple[int, ...],
    told: tuple[Whose, tuple[int, ...]],
) -> None:
    takes: list[Take] = []
    monkeypatch.setattr(
        "tgi_bench.devices.watch.DeviceSampling.take", lambda _, take: takes.append(take)
    )
    zone(tmp_path, "intel-rapl:0", "package-0")
    watch = TelemetryWatch(powercap=tmp_path)
    with watch.of(Take(None, 0, True, whose, (ME,))):
        watch.ready(roots=lambda: roots)
    assert [(take.whose, take.roots) for take in takes] == [told]


def test_a_sweep_records_what_happened_inside(tmp_path: Path) -> None:
    powercap = tmp_path / "powercap"
    powercap.mkdir()
    counter = zone(powercap, "intel-rapl:0", "package-0") / "energy_uj"
    watch = TelemetryWatch(powercap=powercap)
    with stored(tmp_path) as store:
        with watch.of(ON_CPU):
            watch.ready()
            with watch.during(store, store.begin(TRIAL)):
                watch.ready()  # a process of it was started anew
                counter.write_text("7000\n")
            with pytest.raises(ZeroDivisionError), watch.during(store, store.begin(SECOND)):
                raise ZeroDivisionError
            with pytest.raises(KeyboardInterrupt), watch.during(store, store.begin(SECOND)):
                raise KeyboardInterrupt
        for trial_id, first_mj in ((TRIAL, 0), (SECOND, 7)):
            seen = store.telemetry(trial_id)
            assert seen is not None
            assert (seen.absent, seen.began, seen.ended) == ("", (), ())
            assert [s.energy_mj for s in seen.samples][:: len(seen.samples) - 1] == [first_mj, 7]


def test_a_server_is_asked_around_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([1.0, 2.0, 3.0, 4.0, 5.0])
    now_ns = [0]
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns[0])
    watch = TelemetryWatch(powercap=tmp_path)
    with stored(tmp_path) as store:
        with watch.of(SIMULATED), watch.serving(True, server):
            with watch.during(store, store.begin(TRIAL)):
                assert server.asked == 1  # when it was ready
            with watch.during(store, store.begin(SECOND)):
                assert server.asked == 2  # the end of one is the beginning of the next
            now_ns[0] += 10**9
            with watch.during(store, store.begin(THIRD)):
                assert server.asked == 4  # unless time has passed
        assert server.asked == 5
        for trial_id, began, ended in ((TRIAL, 1, 2), (SECOND, 2, 3), (THIRD, 4, 5)):
            expected = without_devices(SIMULATED, queue(began), queue(ended))
            assert store.telemetry(trial_id) == expected


def test_a_server_without_metrics_is_asked_once(tmp_path: Path) -> None:
    server = Server([])
    watch = TelemetryWatch(powercap=tmp_path)
    with stored(tmp_path) as store:
        with watch.of(SIMULATED), watch.serving(True, server):
            for trial_id in (TRIAL, SECOND):
                with watch.during(store, store.begin(trial_id)):
                    pass
        assert server.asked == 1
        assert store.telemetry(SECOND) == without_devices(SIMULATED)


def test_a_server_that_says_that_it_simulates(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0")
    watch = TelemetryWatch(powercap=tmp_path)
    with stored(tmp_path) as store, watch.of(ON_CPU):
        watch.ready(simulated=True)
        with watch.during(store, store.begin(TRIAL)):
            pass
        assert store.telemetry(TRIAL) == without_devices(SIMULATED)


def test_a_machine_without_any_and_a_sampler_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tgi_bench.devices.take._DRIVERS", ())
    with stored(tmp_path) as store:
        watch = TelemetryWatch(powercap=tmp_path)
        with watch.of(ON_CPU):
            watch.ready()
            with watch.during(store, store.begin(TRIAL)):
                pass
        none = "this machine has no NVIDIA driver and no RAPL counter"
        assert store.telemetry(TRIAL) == without_devices(none)
        zone(tmp_path, "intel-rapl:0", "package-0")
        watch = TelemetryWatch(program=(str(tmp_path / "none"),), powercap=tmp_path)
        with watch.of(ON_CPU):
            watch.ready()
            with watch.during(store, store.begin(TRIAL)):
                pass
        seen = store.telemetry(TRIAL)
        assert seen is not None
        assert seen.absent.startswith("the sampler could not be started: No such file")


def test_turned_off_it_records_nothing(tmp_path: Path) -> None:
    watch = TelemetryWatch(enabled=False)
    server = Server([1.0])
    with stored(tmp_path) as store, watch.of(ON_CPU), watch.serving(False, server):
        with watch.during(store, store.begin(TRIAL)):
            pass
        assert server.asked == 0
        assert store.telemetry(TRIAL) is None
