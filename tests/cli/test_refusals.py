"""Whatever is refused: each row of tests/golden/refusals.yaml is an input, and what is said of it.

A new row needs no `said`: `make golden` writes it, and what is no more said.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.refusals import Row, Table
from tests.conftest import GOLDEN
from tests.torch_engine.needs_torch import needs_torch
from tgi_bench.launch.left_behind import DOMAIN_MARK
from tgi_bench.record.database import FILE_NAME
from tgi_bench.record.formats import FORMAT_VERSION

FILE = GOLDEN / "refusals.yaml"
TABLE = Table.of(FILE.read_text(encoding="utf-8"))
RESULTS = Path(__file__).parents[2] / "results"
SIMULATED = RESULTS / "bloomz-7b1-mt/20261121T123246Z-584111"
RUNS = {
    "simulated": SIMULATED,
    "newer": SIMULATED,
    "direct": RESULTS / "local-cpu/20261121T184733Z-9192dc",
}
TABLES = ("published_*", "tasks_*")
IMPORTED = ("published_torchcap_2025-04-13.rst", "published_h2ogpt.md")
RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
KEPT_VARIABLES = {"PATH", "HOME", "TMPDIR", "PYTEST_CURRENT_TEST", DOMAIN_MARK}


@pytest.fixture(scope="module")
def update(request: pytest.FixtureRequest) -> Iterator[dict[str, Row] | None]:
    """Rows to write with what is said now; None where they are only compared."""
    if not request.config.getoption("--update-golden"):
        yield None
        return
    said: dict[str, Row] = {}
    yield said
    table = Table.of(FILE.read_text(encoding="utf-8")).with_rows(said.values())
    FILE.write_text(table.text(), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the rows' words name: good experiments, tables, runs, and things that are none."""
    folder = tmp_path_factory.mktemp("refusals")
    for name, text in TABLE.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    for table in (file for tables in TABLES for file in GOLDEN.glob(tables)):
        shutil.copy(table, folder)
    for name, run in RUNS.items():
        (folder / name).mkdir()
        shutil.copy(run / FILE_NAME, folder / name)
    for name in IMPORTED:
        _import(folder, name)
    for name, statement in (
        (f"newer/{FILE_NAME}", f"PRAGMA user_version = {FORMAT_VERSION + 1}"),
        ("foreign.db", "CREATE TABLE t (x)"),
    ):
        connection = sqlite3.connect(folder / name)
        connection.execute(statement)
        connection.commit()
        connection.close()
    whole = (folder / "simulated" / FILE_NAME).read_bytes()
    (folder / "cut.db").write_bytes(whole[: len(whole) // 2])
    (folder / "folder" / FILE_NAME).mkdir(parents=True)
    (folder / "empty").touch()
    (folder / "binary").write_bytes(b"\x00\xff\xfe\x80")
    (folder / "zero.yaml").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.yaml")
    with (folder / "long.yaml").open("wb") as stream:
        stream.truncate(1 << 25)
    with socket.socket(socket.AF_UNIX) as server:
        with contextlib.chdir(folder):  # the path of a socket may have 107 bytes
            server.bind("socket")
        yield folder


def _import(folder: Path, name: str) -> None:
    """The table as a run in a folder of its name without an ending."""
    words = ["import", name, "--name", "table", "--results", "imported"]
    command = [sys.executable, "-m", "tgi_bench.cli.main", *words]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (run,) = (folder / "imported" / "table").iterdir()
    run.rename(folder / Path(name).stem)
    shutil.rmtree(folder / "imported")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[needs_torch] if row.needs_torch else [])
        for name, row in TABLE.rows.items()
    ],
)
def test_what_is_said(
    tgi_bench: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    update: dict[str, Row] | None,
    name: str,
) -> None:
    row = TABLE.rows[name]
    for variable in os.environ.keys() - KEPT_VARIABLES:
        monkeypatch.delenv(variable)
    for variable, value in (row.env | {"COLUMNS": "80"}).items():
        monkeypatch.setenv(variable, value)
    for package in row.without:
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(folder)
    said = _refused(tgi_bench, row, folder)
    if update is not None:
        update[name] = said
    else:
        assert (said.said, said.code) == (row.said, row.code), name


def _refused(tgi_bench: CommandLine, row: Row, folder: Path) -> Row:
    """The row with what is said of it now; nothing else is printed, and nothing is left behind."""
    file = row.file(folder)
    kept = None if file is None or not file[0].exists() else file[0].read_bytes()
    if file is not None:
        file[0].write_text(file[1], encoding="utf-8")
    before = sorted(folder.rglob("*"))
    try:
        ended = tgi_bench(*row.words)
        after = sorted(folder.rglob("*"))
    finally:
        if kept is not None and file is not None:
            file[0].write_bytes(kept)
        elif file is not None:
            file[0].unlink()
    assert ended.code not in (0, None), f"{row.name}: is not refused"
    assert isinstance(ended.code, int)
    assert ended.stdout == "", row.name
    assert after == before, row.name
    assert str(folder) not in ended.stderr, f"{row.name}: names a folder of this machine"
    assert ended.stderr.endswith("\n")
    said = ended.stderr.removesuffix("\n")
    if said.startswith("Usage: "):
        said = said.partition("\n")[0]  # the rest is click's own, and of its version
    return replace(row, said=RUN_ID.sub("RUN", said), code=ended.code)


def test_the_rows_are_sorted_and_in_one_form() -> None:
    assert FILE.read_text(encoding="utf-8") == TABLE.text(), "mend it: make golden"


@pytest.mark.parametrize("name", [name for name in TABLE.files if name.endswith(".yaml")])
def test_what_the_rows_change_is_good(
    tgi_bench: CommandLine, monkeypatch: pytest.MonkeyPatch, folder: Path, name: str
) -> None:
    monkeypatch.chdir(folder)
    assert tgi_bench("plan", name).code == 0
