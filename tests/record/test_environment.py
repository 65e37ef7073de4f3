"""What the environment says, and what it never says."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

import pytest

from tgi_bench import __version__
from tgi_bench.record import environment


def test_every_fact_has_a_value_on_one_line() -> None:
    facts = environment.capture()
    assert len(dict(facts)) == len(facts) == 11
    for name, value in facts:
        assert value.strip(), name
        assert "\n" not in value
    assert dict(facts)["tgi-bench"].startswith(f"{__version__}, ")
    assert platform.python_version() in dict(facts)["Python"]


def test_no_secret_and_no_name_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    told = " ".join(value for _, value in environment.capture())
    assert "hf_planted" not in told
    assert os.getcwd() not in told
    assert socket.gethostname() not in told.split()


def test_what_a_resumed_run_adds() -> None:
    with environment.asking() as questions:
        added = questions.resumed()
    assert [name for name, _ in added] == [
        "Resumed (UTC)",
        "Load average when resumed",
        "tgi-bench when resumed",
    ]
    assert not {name for name, _ in added} & {name for name, _ in environment.capture()}


def test_cpu_and_memory() -> None:
    cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC: 7B13\nprocessor\t: 1\nmodel name\t: Z\n"
    assert environment.cpu_model(cpuinfo) == "AMD EPYC: 7B13"
    assert environment.memory("MemTotal:       16384000 kB\n") == "15.6 GiB"
    for text in ("", "MemTotal:\n", "MemTotal: lots\n"):
        assert environment.memory(text) == "unknown"


_TWO = "NVIDIA A100-SXM4-40GB, 535.104, 40960 MiB; NVIDIA L4, 535.104, 23034 MiB"
_HEAD = "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2 |"


@pytest.mark.parametrize(
    ("script", "gpus", "cuda"),
    [
        (f"[ $# = 0 ] && echo '{_HEAD}' || echo '{_TWO}' | sed 's/; /\\n/'", _TWO, "12.2"),
        ("[ $# = 0 ] && echo something else", "not known: nvidia-smi exited with 1", "unknown"),
        ("true", "none found", "unknown"),
        ("exit 9", *["not known: nvidia-smi exited with 9"] * 2),
        (None, *["not known: nvidia-smi did not answer (PermissionError)"] * 2),
        ("", "none found", "none found"),
    ],
)
def test_gpus_and_cuda(tmp_path: Path, script: str | None, gpus: str, cuda: str) -> None:
    """script: of nvidia-smi; "": there is none, None: it is a folder."""
    command = tmp_path / "nvidia-smi"
    if script is None:
        command.mkdir()
    elif script:
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    facts = dict(environment.Questions(str(command)).facts())
    said = [facts[name].replace(f"{tmp_path}/", "") for name in ("GPUs", "CUDA")]
    assert said == [gpus, cuda]


def test_outside_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_PACKAGE", tmp_path)
    assert dict(environment.capture())["tgi-bench"] == f"{__version__}, no git commit known"
