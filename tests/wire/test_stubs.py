"""The committed stubs are what `make stubs` writes from the committed .proto files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
WIRE = Path("tgi_bench") / "wire"
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    protos = sorted(str(path.relative_to(ROOT)) for path in (ROOT / WIRE).glob("*.proto"))
    assert len(protos) == 3
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", *outputs, *protos],
        cwd=ROOT,
        check=True,
    )
    return folder / WIRE


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_stubs_are_current(fresh: Path, version: int, suffix: str) -> None:
    name = f"generate_v{version}{suffix}"
    committed = (ROOT / WIRE / name).read_text(encoding="utf-8")
    assert committed == (fresh / name).read_text(encoding="utf-8"), f"{name}: run `make stubs`"


def test_no_stub_without_a_proto(fresh: Path) -> None:
    committed = {path.name for path in (ROOT / WIRE).glob("*_pb2*")}
    assert committed == {path.name for path in fresh.iterdir()}, "run `make stubs`"
