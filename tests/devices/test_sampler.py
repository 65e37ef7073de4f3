"""The sampler's process: what it chooses and says, at what cost, and that none is left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.devices.fake_nvml import FakeNvml, Gpu
from tests.devices.powercap import zone
from tgi_bench.devices.observation import DeviceKind, Telemetry, without_devices
from tgi_bench.devices.sampler import (
    LONGEST_PERIOD_S,
    MOST_CORE_SHARE,
    SHORTEST_PERIOD_S,
    Pace,
    Sampler,
    ThisMachine,
)
from tgi_bench.devices.take import (
    Ended,
    Take,
    Taken,
    Tick,
    Whose,
    Word,
    line_of,
    read_command,
    read_said,
    why_nothing_to_sample,
)
from tgi_bench.devices.watch import DeviceSampling

TAKE = Take(None, 1, True, Whose.CHILDREN, (os.getpid(),))
STRANGER = 4_190_003


def machine(nvml: FakeNvml, powercap: Path) -> ThisMachine:
    return ThisMachine(powercap, lambda: nvml)


def chosen(made: ThisMachine, take: Take) -> tuple[list[str], str]:
    sources, absent, _ = made.sources(take)
    return [source.describe(0).name for source in sources], absent


def sees_all() -> bool:
    return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"


def gpus(*pids: tuple[int, ...]) -> FakeNvml:
    return FakeNvml(*(Gpu(f"G{i}", f"GPU-{i}", pids=p) for i, p in enumerate(pids)))


@pytest.mark.parametrize(
    ("take", "names"),
    [
        (TAKE, ["G0"]),
        (replace(TAKE, count=2), ["G0", "G1"]),
        (replace(TAKE, gpus=("2", "0")), ["G2"]),
        (replace(TAKE, gpus=("GPU-1", "7")), ["G1"]),
        (replace(TAKE, count=0, whose=Whose.UNKNOWN), ["G1"]),
    ],
)
def test_which_gpus_where_nothing_new_computes(
    tmp_path: Path, take: Take, names: list[str]
) -> None:
    assert chosen(machine(gpus((), (STRANGER,), ()), tmp_path), take) == (names, "")


def test_the_gpus_on_which_processes_came_since(tmp_path: Path) -> None:
    nvml = gpus((), (STRANGER,), ())
    made = machine(nvml, tmp_path)
    nvml.gpus[1].pids = (STRANGER, 5)
    nvml.gpus[2].pids = (5,)
    assert chosen(made, TAKE) == (["G1", "G2"], "")
    sources, _, processes = made.sources(replace(TAKE, whose=Whose.UNKNOWN))
    assert [source.sample(0, processes).others for source in sources] == [None, None]
    assert chosen(made, replace(TAKE, gpus=("0",)))[0] == ["G0"]


@pytest.mark.skipif(not sees_all(), reason="ids of /proc are not NVML's in a container")
def test_the_gpus_of_a_server_that_was_there_before(tmp_path: Path) -> None:
    nvml = gpus((1,), (os.getpid(), 1), ())
    made = machine(nvml, tmp_path)
    server = replace(TAKE, count=0, whose=Whose.SERVER)
    assert chosen(made, server) == (["G1"], "")
    sources, _, processes = made.sources(server)
    assert [source.sample(0, processes).others for source in sources] == [1]
    # Its workers are another service's: of these nobody knows.
    nvml.gpus[1].pids = (1,)
    sources, _, processes = made.sources(server)
    assert [source.sample(0, processes).others for source in sources] == [None, None]


@pytest.mark.parametrize(
    ("nvml", "take", "why"),
    [
        (FakeNvml(init=9), TAKE, "NVML: error 9; no RAPL counter"),
        (FakeNvml(), TAKE, "no NVIDIA GPU; no RAPL counter"),
        (gpus(()), replace(TAKE, gpus=()), "no RAPL counter"),
        (gpus(()), replace(TAKE, gpus=(), cpu=False), "it computes on no device of this machine"),
        (
            gpus(()),
            replace(TAKE, count=0, whose=Whose.UNKNOWN, cpu=False),
            "no process computes on a GPU",
        ),
    ],
)
def test_none_is_said_as_none(tmp_path: Path, nvml: FakeNvml, take: Take, why: str) -> None:
    assert chosen(machine(nvml, tmp_path), take) == ([], why)


def test_without_the_package(tmp_path: Path) -> None:
    def missing() -> FakeNvml:
        raise ImportError("pynvml")

    why = "nvidia-ml-py is not installed; no RAPL counter"
    assert chosen(ThisMachine(tmp_path, missing), TAKE) == ([], why)


def test_the_period_keeps_to_its_share_of_a_core() -> None:
    pace = Pace()
    assert pace.period_s == SHORTEST_PERIOD_S
    for _ in range(10):
        pace.ticked(0.0001)
    assert pace.period_s == SHORTEST_PERIOD_S
    pace = Pace()
    for _ in range(10):
        pace.ticked(0.0015)
    assert pace.period_s == pytest.approx(0.0015 / MOST_CORE_SHARE)
    pace.ticked(10.0)
    assert pace.period_s == LONGEST_PERIOD_S


def test_lines_are_read_back_equal(tmp_path: Path) -> None:
    sources, absent, processes = machine(gpus(()), tmp_path).sources(TAKE)
    taken = Taken(tuple(source.describe(0) for source in sources), absent)
    tick = Tick(5, 100_000_000, tuple(source.sample(0, processes) for source in sources))
    for told in (TAKE, replace(TAKE, gpus=("0", "GPU-1"), cpu=False), *Word):
        assert read_command(line_of(told)) == told
        with pytest.raises(ValueError, match="nothing that a sampler says"):
            read_said(line_of(told))
    for said in (taken, tick, Ended()):
        assert read_said(line_of(said)) == said
        with pytest.raises(ValueError, match="no command"):
            read_command(line_of(said))


@contextmanager
def obeying(made: ThisMachine) -> Iterator[tuple[int, int]]:
    """A sampler in a thread: where to write commands and read what it says."""
    inlet, commands = os.pipe()
    said, outlet = os.pipe()
    sampler = Sampler(made, inlet, outlet)
    thread = threading.Thread(target=sampler.run, args=(os.getppid(),))
    thread.start()
    try:
        yield commands, said
    finally:
        os.close(commands)
        thread.join()
        for end in (inlet, said, outlet):
            os.close(end)


def _lines(said: int, until: type[Ended | Taken]) -> list[Taken | Tick | Ended]:
    found: list[Taken | Tick | Ended] = []
    left = b""
    while not found or not isinstance(found[-1], until):
        assert select.select([said], [], [], 20)[0]
        *lines, left = (left + os.read(said, 1 << 16)).split(b"\n")
        found += map(read_said, lines)
    return found


def test_it_samples_between_begin_and_end(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0")
    with obeying(machine(gpus(()), tmp_path)) as (commands, said):
        # Commands may come in pieces, and several at once.
        line = line_of(TAKE)
        os.write(commands, line[:5])
        os.write(commands, line[5:])
        (taken,) = _lines(said, Taken)
        assert isinstance(taken, Taken)
        assert [d.kind for d in taken.devices] == [DeviceKind.GPU, DeviceKind.CPU]
        os.write(commands, line_of(Word.BEGIN) + line_of(Word.END))
        first = _lines(said, Ended)
        assert [type(one) for one in first] == [Tick, Tick, Ended]
        os.write(commands, line_of(Word.BEGIN))
        time.sleep(3 * SHORTEST_PERIOD_S)
        os.write(commands, line_of(Word.END))
        ticks = [one for one in _lines(said, Ended) if isinstance(one, Tick)]
        assert len(ticks) >= 3
        assert [s.device for s in ticks[0].samples] == [0, 1]
        assert [t.cpu_ns for t in ticks] == sorted(t.cpu_ns for t in ticks)


def test_it_waits_for_devices(tmp_path: Path) -> None:
    with obeying(machine(gpus(()), tmp_path)) as (commands, said):
        os.write(commands, line_of(Word.BEGIN) + line_of(Word.END))
        assert _lines(said, Ended) == [Ended()]


def gone(pid: int) -> bool:
    """Whether it ended within 10 s; its zombie counts as ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_the_process_is_told_and_read(tmp_path: Path) -> None:
    path = zone(tmp_path, "intel-rapl:0", "package-0")
    sampling = DeviceSampling.start(powercap=tmp_path)
    try:
        assert sampling.end() == without_devices("no device was chosen")
        sampling.take(replace(TAKE, gpus=()))
        for _ in range(2):
            before_ns = time.monotonic_ns()
            sampling.begin()
            assert path.joinpath("energy_uj").write_text("5000000\n")
            seen = sampling.end((("tgi_queue_size", 1.0),))
            after_ns = time.monotonic_ns()
            assert (seen.absent, seen.began) == ("", (("tgi_queue_size", 1.0),))
            assert [device.name for device in seen.devices] == ["package-0"]
            times = [sample.at_ns for sample in seen.samples]
            assert before_ns <= times[0] < times[-1] <= after_ns
            assert seen.samples[-1].energy_mj == 5000
            assert (seen.cpu_ns or 0) > 0
            assert seen.wall_ns == times[-1] - times[0]
    finally:
        sampling.stop()
    assert gone(sampling.pid)


def test_one_that_was_killed_is_said(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0")
    sampling = DeviceSampling.start(powercap=tmp_path)
    try:
        sampling.take(replace(TAKE, gpus=()))
        sampling.begin()
        os.kill(sampling.pid, signal.SIGKILL)
        assert gone(sampling.pid)
        expected: Telemetry = without_devices("the sampler did not answer")
        assert sampling.end() == expected
        sampling.begin()
        assert sampling.end() == expected
    finally:
        sampling.stop()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        DeviceSampling.start(program=(str(tmp_path / "none"),), powercap=tmp_path)


PARENT = """
import sys, time
from pathlib import Path
from tgi_bench.devices.watch import DeviceSampling
from tgi_bench.devices.take import Take, Whose
sampling = DeviceSampling.start(powercap=Path(sys.argv[1]))
sampling.take(Take((), 0, True, Whose.CHILDREN, (1,)))
sampling.begin()
print(sampling.pid, flush=True)
time.sleep(60)
"""


def test_after_kill_9_of_the_sweep_it_ends_by_itself(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)  # it lives
        parent.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_what_a_machine_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tgi_bench.devices.take._DRIVERS", (tmp_path / "nvidiactl",))
    none = "this machine has no NVIDIA driver and no RAPL counter"
    assert why_nothing_to_sample(tmp_path) == none
    (tmp_path / "nvidiactl").touch()
    assert why_nothing_to_sample(tmp_path / "missing") == ""
    zone(tmp_path, "intel-rapl:0", "package-0")
    (tmp_path / "nvidiactl").unlink()
    assert why_nothing_to_sample(tmp_path) == ""


@pytest.mark.skipif(bool(why_nothing_to_sample()), reason=why_nothing_to_sample() or "-")
def test_a_real_device_uses_energy() -> None:
    sampling = DeviceSampling.start()
    try:
        sampling.take(TAKE)
        sampling.begin()
        time.sleep(1.5)
        seen = sampling.end()
    finally:
        sampling.stop()
    assert seen.absent == ""  # there is something to sample, or this test were skipped
    for device in seen.devices:
        samples = [sample for sample in seen.samples if sample.device == device.index]
        counts = [s.energy_mj for s in samples if s.energy_mj is not None]
        powers = [s.power_mw for s in samples if s.power_mw is not None]
        assert (counts and counts[-1] > counts[0]) or max(powers) > 0
