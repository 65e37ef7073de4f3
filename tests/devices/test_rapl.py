"""Energy counters of processors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.devices.powercap import RANGE_UJ, zone
from tgi_bench.devices.observation import DeviceKind
from tgi_bench.devices.sources import Processes, RaplDevice, rapl_devices
from tgi_bench.devices.take import Whose

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
