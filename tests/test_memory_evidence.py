"""What proves that memory ran out: words of allocators, and the kernel's count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tgi_bench.memory_evidence import KillCounter, out_of_memory
from tgi_bench.observation import Outcome

DEVICE, HOST = Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY
CPU_WORDS = (
    "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    ("text", "device_type", "outcome"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", None, DEVICE),
        ("HIP out of memory. Tried to allocate 2.00 GiB", "cuda", DEVICE),
        ("CUDA error: out of memory", "cuda", DEVICE),
        ("RuntimeError: HIP error: hipErrorOutOfMemory", "cuda", DEVICE),
        ("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None, DEVICE),
        ("Out of available cache blocks: asked 9, only 3 free blocks", None, DEVICE),
        ("Not enough memory to handle 4096 prefill tokens.", None, DEVICE),
        (CPU_WORDS, "cpu", DEVICE),
        (CPU_WORDS, None, DEVICE),
        (CPU_WORDS, "cuda", HOST),
        ("std::bad_alloc", "cpu", DEVICE),
        ("std::bad_alloc", "cuda", HOST),
        ("OSError: [Errno 12] Cannot allocate memory", "cuda", HOST),
        ("OSError: [Errno 12] Cannot allocate memory", "cpu", HOST),
        ("Shard process was signaled to shutdown with signal 9 rank=0", None, None),
        ("killed (signal 9)", None, None),
        ("Connection reset by peer", None, None),
        ("Batch ID 999 not found in cache.", None, None),
    ],
)
def test_what_a_message_says(text: str, device_type: str | None, outcome: Outcome | None) -> None:
    assert out_of_memory(text, device_type) is outcome


def _proc(root: Path, cgroup: str, mountinfo: str) -> Path:
    folder = root / "proc" / "7"
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(cgroup)
    (folder / "mountinfo").write_text(mountinfo)
    return root / "proc"


def _file(path: Path, count: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = {"memory.events": "low 0\noom 3\n", "memory.oom_control": "under_oom 0\n"}[path.name]
    path.write_text(f"{lines}oom_kill {count}\n")
    return path


def test_cgroup_v2(tmp_path: Path) -> None:
    mount = tmp_path / "cg"
    _file(mount / "memory.events", 100)
    own = _file(mount / "a.slice" / "b.service" / "memory.events", 2)
    line = f"30 23 0:26 / {mount} rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    proc = _proc(
        tmp_path, "0::/a.slice/b.service\n", f"29 23 0:1 / /proc rw - proc proc rw\n{line}"
    )
    counter = KillCounter.of(7, proc)
    assert counter == KillCounter(own)
    assert counter.read() == 2
    _file(own, 3)
    assert counter.read() == 3


def test_cgroup_v1_beside_an_empty_v2(tmp_path: Path) -> None:
    mount = tmp_path / "memory"
    own = _file(mount / "job" / "memory.oom_control", 1)
    mounts = (
        f"35 31 0:32 / {mount} rw,relatime - cgroup cgroup rw,memory\n"
        f"36 31 0:33 / {tmp_path / 'unified'} rw - cgroup2 cgroup2 rw\n"
        f"37 31 0:34 / {tmp_path / 'cpu'} rw - cgroup cgroup rw,cpu\n"
    )
    proc = _proc(tmp_path, "8:cpu:/\n4:memory:/job\n0::/\n", mounts)
    assert KillCounter.of(7, proc) == KillCounter(own)


def test_in_a_container_that_sees_its_own_cgroup_as_the_mount(tmp_path: Path) -> None:
    mount = tmp_path / "cg"
    own = _file(mount / "memory.events", 5)
    bound = f"30 23 0:26 /docker/0a1b {mount} ro - cgroup2 cgroup rw\n"
    proc = _proc(tmp_path, "0::/docker/0a1b\n", bound)
    assert KillCounter.of(7, proc) == KillCounter(own)
    assert KillCounter(own).read() == 5


def test_where_nothing_counts(tmp_path: Path) -> None:
    proc = _proc(tmp_path, "0::/\n", "")
    assert KillCounter.of(7, proc) == KillCounter(None)
    assert KillCounter.of(8, proc) == KillCounter(None)
    assert KillCounter(None).read() == 0
    assert KillCounter.of().read() >= 0
