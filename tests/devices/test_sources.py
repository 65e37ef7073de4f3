"""A GPU as NVML tells of it, whose processes are on it, and processors as RAPL counts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devices.fake_nvml import LOST, NOT_SUPPORTED, UNKNOWN, FakeNvml, Gpu
from tests.devices.powercap import RANGE_UJ, zone
from tgi_bench.devices.observation import Device, DeviceKind
from tgi_bench.devices.sources import NvmlDevice, Processes, RaplDevice, nvml_module, rapl_devices
from tgi_bench.devices.take import Whose

OURS, EARLIER, STRANGER = 910_001, 910_002, 910_003


def nobody() -> Processes:
    return Processes(Whose.CHILDREN, frozenset(), (os.getpid(),))


def test_every_value_in_its_unit() -> None:
    device = NvmlDevice(FakeNvml(Gpu(throttle=4)), 0)
    assert device.describe(3) == Device(
        3, DeviceKind.GPU, "NVIDIA H100 80GB HBM3", 80 << 30, 700_000, 700_000
    )
    seen = device.sample(3, nobody())
    assert (seen.device, seen.power_mw, seen.energy_mj) == (3, 700_000, 1_000_000)
    assert (seen.memory_bytes, seen.utilisation) == (20 << 30, 0.97)
    assert (seen.sm_clock_mhz, seen.memory_clock_mhz, seen.temperature_c) == (1980, 2619, 61)
    assert (seen.throttle, seen.others) == (4, 0)
    later = device.sample(3, nobody())
    assert later.energy_mj == 1_070_000
    assert later.at_ns > seen.at_ns


def test_what_it_does_not_tell_is_none_and_asked_once() -> None:
    parts = ("energy", "power", "utilisation", "clock", "temperature", "throttle", "processes")
    gpu = Gpu(fails=dict.fromkeys(parts, NOT_SUPPORTED))
    device = NvmlDevice(FakeNvml(gpu), 0)
    for _ in range(3):
        seen = device.sample(0, nobody())
        told = (seen.energy_mj, seen.power_mw, seen.utilisation, seen.sm_clock_mhz)
        assert told == (None, None, None, None)
        assert (seen.temperature_c, seen.throttle, seen.others) == (None, None, None)
    assert {gpu.asked[part] for part in parts} == {1}
    assert seen.memory_bytes == 20 << 30


def test_a_passing_failure_is_asked_again() -> None:
    gpu = Gpu(fails={"power": UNKNOWN, "memory_v2": LOST, "memory": LOST})
    device = NvmlDevice(FakeNvml(gpu), 0)
    assert device.sample(0, nobody()).power_mw is None
    gpu.fails.clear()
    assert device.sample(0, nobody()).power_mw == 700_000


def test_memory_of_an_old_driver_has_what_it_reserves() -> None:
    device = NvmlDevice(FakeNvml(Gpu(fails={"memory_v2": NOT_SUPPORTED})), 0)
    assert device.sample(0, nobody()).memory_bytes == (20 << 30) + (1 << 29)


def test_the_real_module_has_what_is_asked() -> None:
    asked = [name for name in dir(FakeNvml) if name.startswith(("nvml", "NVML"))]
    assert len(asked) == 17
    assert [name for name in asked if name not in vars(nvml_module())] == []


def proc(folder: Path, namespace: str = "pid:[4026531836]") -> Path:
    """OURS descends from 77, the sweep; the others do not. STRANGER is in a container."""
    (folder / "self/ns").mkdir(parents=True)
    (folder / "self/ns/pid").symlink_to(namespace)
    container = f"0::/system.slice/docker-{'ab' * 32}.scope\n"
    for pid, parent, cgroup in (
        (OURS, 900_500, "0::/user.slice\n"),
        (900_500, 77, "0::/user.slice\n"),
        (EARLIER, 1, "0::/user.slice\n"),
        (STRANGER, 1, container),
    ):
        (folder / str(pid)).mkdir()
        (folder / f"{pid}/stat").write_text(f"{pid} (a) b) S {parent} 0 0 0 -1 0 0 0 0 0 1 2 3 4\n")
        (folder / f"{pid}/cgroup").write_text(cgroup)
    return folder


@pytest.mark.parametrize(
    ("whose", "before", "pids", "others"),
    [
        (Whose.CHILDREN, (), (OURS,), 0),
        (Whose.CHILDREN, (), (OURS, STRANGER), 1),
        (Whose.CHILDREN, (), (EARLIER, STRANGER), 2),
        (Whose.CONTAINER, (), (STRANGER,), 0),
        (Whose.CONTAINER, (), (OURS, STRANGER), 1),
        (Whose.CONTAINER, (STRANGER,), (STRANGER,), 1),
        (Whose.CHILDREN, (), (), 0),
        (Whose.UNKNOWN, (EARLIER,), (EARLIER, STRANGER), None),
        (Whose.SERVER, (OURS, STRANGER), (OURS,), 0),
        (Whose.SERVER, (OURS,), (OURS, EARLIER, STRANGER), 2),
    ],
)
def test_whose_processes_are_on_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whose: Whose,
    before: tuple[int, ...],
    pids: tuple[int, ...],
    others: int | None,
) -> None:
    monkeypatch.setattr("tgi_bench.devices.sources._has_ended", lambda pid: False)
    found = Processes(whose, frozenset(before), (77,), proc(tmp_path))
    assert found.others(frozenset(pids)) == others
    assert found.others(frozenset(pids)) == others  # remembered


def test_one_that_ended_meanwhile_is_nobody_else(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    found = Processes(Whose.CHILDREN, frozenset(), (77,), proc(tmp_path))
    assert found.others(frozenset({child.pid})) == 0
    assert found.others(frozenset({1})) == 1


def test_in_a_container_ids_tell_only_who_was_there_before(tmp_path: Path) -> None:
    folder = proc(tmp_path, "pid:[4026532999]")
    found = Processes(Whose.CHILDREN, frozenset({EARLIER}), (77,), folder)
    assert found.others(frozenset({EARLIER, STRANGER})) == 1
    assert Processes(Whose.SERVER, frozenset(), (77,), folder).others(frozenset({OURS})) is None
    blind = Processes(Whose.CHILDREN, frozenset({EARLIER}), (77,), tmp_path / "none")
    assert blind.others(frozenset({EARLIER, STRANGER})) == 1


NOBODY = Processes(Whose.CHILDREN, frozenset(), ())


def test_packages_and_their_memory_without_what_is_in_them(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0")
    zone(tmp_path, "intel-rapl:0:0", "core")
    zone(tmp_path, "intel-rapl:0:1", "dram")
    zone(tmp_path, "intel-rapl:1", "package-1")
    zone(tmp_path, "intel-rapl:2", "psys")
    found, why = rapl_devices(tmp_path)
    described = [device.describe(i) for i, device in enumerate(found)]
    assert [d.name for d in described] == ["package-0", "package-0 dram", "package-1"]
    assert {d.kind for d in described} == {DeviceKind.CPU}
    assert why == ""


def test_the_counter_grows_over_its_end(tmp_path: Path) -> None:
    path = zone(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 1_999_999)
    device = RaplDevice(path, "package-0")
    assert device.sample(0, NOBODY).energy_mj == 0
    (path / "energy_uj").write_text("3000000\n")
    seen = device.sample(0, NOBODY)
    assert (seen.energy_mj, seen.power_mw, seen.others) == (5_000, None, None)
    (path / "energy_uj").write_text("4500000\n")
    assert device.sample(0, NOBODY).energy_mj == 6_500


def test_none_is_said_as_none(tmp_path: Path) -> None:
    assert rapl_devices(tmp_path / "missing") == ((), "no RAPL counter")
    path = zone(tmp_path, "intel-rapl:0", "package-0")
    (path / "energy_uj").write_text("broken\n")
    assert rapl_devices(tmp_path) == ((), "RAPL counters cannot be read: no number")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_counter_of_root_alone(tmp_path: Path) -> None:
    path = zone(tmp_path, "intel-rapl:0", "package-0")
    (path / "energy_uj").chmod(0)
    assert rapl_devices(tmp_path) == ((), "RAPL counters cannot be read: Permission denied")


def test_a_counter_that_is_not_there(tmp_path: Path) -> None:
    path = zone(tmp_path, "intel-rapl:0", "package-0")
    (path / "energy_uj").unlink()
    found, why = rapl_devices(tmp_path)
    assert (found, why) == ((), "RAPL counters cannot be read: No such file or directory")
