"""This process's memory and the limit to it; the limits themselves are put in nowhere here."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tgi_bench.torch_engine import memory

if not Path("/proc/self/status").exists():
    pytest.skip("limits of a process's memory are Linux's", allow_module_level=True)

NONE = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What was set, last one last; 1000 bytes are taken."""
    found = [(NONE, NONE)]
    monkeypatch.setattr(memory, "data_bytes", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: found.append(limit))
    return found


def test_a_limit_is_beside_what_is_taken(limits: list[tuple[int, int]]) -> None:
    memory.limit_data(500)
    assert limits[-1] == (1500, NONE)
    assert memory.data_limit_bytes() == 1500


def test_a_lower_limit_in_force_stays(limits: list[tuple[int, int]]) -> None:
    limits.append((1200, 1400))
    memory.limit_data(500)
    assert limits[-1] == (1200, 1400)


def test_no_limit(limits: list[tuple[int, int]]) -> None:
    assert memory.data_limit_bytes() is None


def test_a_system_that_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_STATUS", Path("/no/such/file"))
    monkeypatch.setattr(memory, "_MEMORY", Path("/no/such/file"))
    assert memory.available_bytes() is None
    assert memory.peak_bytes() is None
    with pytest.raises(RuntimeError, match="Linux does"):
        memory.limit_data(1)


@pytest.mark.parametrize(
    ("limit", "taken", "available"),
    [("max", "1", 2048 * 1024), ("1000000", "400000", 600_000), ("100", "400", 0)],
)
def test_a_cgroup_may_leave_less(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, taken: str, available: int
) -> None:
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text(taken + "\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:    2048 kB\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
    assert memory.available_bytes() == available


def test_this_process() -> None:
    peak, data = memory.peak_bytes(), memory.data_bytes()
    assert peak is not None
    assert data is not None
    assert min(peak, data) > 2**20
