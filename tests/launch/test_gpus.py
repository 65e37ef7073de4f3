"""Which GPUs a deployment gets: chosen, held, refused."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tgi_bench.errors import LaunchError
from tgi_bench.launch import gpus
from tgi_bench.launch.gpus import Gpus, HostGpu, held

HOST = tuple(HostGpu(str(i), f"GPU-{i}aaa") for i in range(4))


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_FOLDER", tmp_path)


@pytest.mark.parametrize(
    ("request_", "taken", "ids"),
    [
        ("all", (), ("0", "1", "2", "3")),
        ("2", (), ("0", "1")),
        ("2", ("0", "2"), ("1", "3")),
        ("0", (), ()),
        ("3,1", (), ("3", "1")),
        ("2,", (), ("2",)),
        ("GPU-2aaa,0", (), ("2", "0")),
        ("MIG-7,0", (), ("MIG-7", "0")),
        ("2", ("all",), ("0", "1")),
    ],
)
def test_which_are_chosen(request_: str, taken: Collection[str], ids: tuple[str, ...]) -> None:
    with held(request_, HOST, taken) as chosen:
        assert chosen == Gpus(ids, len(ids))
        assert chosen.label == ids


@pytest.mark.parametrize(
    ("request_", "taken", "message"),
    [
        ("5", (), "5 are needed and this host has 4$"),
        ("2", ("0", "1", "2"), "2 are needed and this host has 4, of which .* hold 3"),
        ("0,1", ("1",), "GPU 1 is held by another running deployment"),
        ("all", ("3",), "GPU 3 is held"),
        ("GPU-1aaa,0", ("1",), "GPU 1 is held"),
        ("0,9", (), "GPU 9 does not exist: this host has 0, 1, 2, 3"),
        ("0,GPU-0aaa", (), "names a GPU twice"),
    ],
)
def test_which_are_refused(request_: str, taken: Collection[str], message: str) -> None:
    with pytest.raises(LaunchError, match=message), held(request_, HOST, taken):
        raise AssertionError("it was given")
    with held("all", HOST, ()) as chosen:  # nothing stays locked
        assert chosen.count == 4


def test_two_deployments_never_share_one() -> None:
    with held("2", HOST, ()) as first, held("2", HOST, ()) as second:
        assert (first.ids, second.ids) == (("0", "1"), ("2", "3"))
        with pytest.raises(LaunchError, match="hold 4"), held("1", HOST, ()):
            raise AssertionError("it was given")
        with pytest.raises(LaunchError, match="GPU 1 is held"), held("1,3", HOST, ()):
            raise AssertionError("it was given")
    with held("1", HOST, ()) as third:
        assert third.ids == ("0",)


@pytest.mark.parametrize(("request_", "count"), [("2", 2), ("all", -1)])
def test_without_names_one_deployment_at_a_time(request_: str, count: int) -> None:
    with held(request_, (), ()) as chosen:
        assert chosen == Gpus((), count)
        assert chosen.label == ("all",)
        with pytest.raises(LaunchError, match="nobody can tell which"), held("1", (), ()):
            raise AssertionError("it was given")
    with pytest.raises(LaunchError, match="nobody can tell which"), held("1", (), ("3",)):
        raise AssertionError("it was given")


def test_another_machines_gpus_are_known_by_labels_alone(tmp_path: Path) -> None:
    with held("0,1", (), ("2",), locks=False) as chosen:
        assert chosen.ids == ("0", "1")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LaunchError, match="GPU 2 is held"), held("0,2", (), ("2",), locks=False):
        raise AssertionError("it was given")


def test_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, GPU-a'\necho '1, GPU-b'\necho nonsense\n")
    program.chmod(0o755)
    assert gpus.host_gpus() == (HostGpu("0", "GPU-a"), HostGpu("1", "GPU-b"))
    program.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert gpus.host_gpus() == ()
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.host_gpus() == ()
