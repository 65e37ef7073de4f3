"""Run files of every format, as they were written: opened, upgraded, and reported as ever."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.conftest import GOLDEN
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.observation import FigureKind, Outcome
from tgi_bench.record.schema import FORMAT_VERSION
from tgi_bench.record.store import RunStore

KEPT = GOLDEN / "formats"
FORMS = {
    "1": ("json", "md"),
    "1-imported": ("json", "md"),
    "2": ("json", "md"),
    "3": ("json", "md", "csv"),
    "4": ("json", "md"),
    "4-direct": ("json", "md"),
    "5": ("json", "md", "csv", "rst"),
    "5-direct": ("json", "md", "csv"),
}
"""Each kept run, and the forms of its reports that are kept beside it."""
ALL_PAGES = ("5", "5-direct")
"""Of the others only the first page is kept."""


def copy_of(name: str, folder: Path) -> Path:
    """A folder of its own with a copy of the kept run.db."""
    run_dir = folder / name
    run_dir.mkdir()
    (run_dir / "run.db").write_bytes(gzip.decompress((KEPT / name / "run.db.gz").read_bytes()))
    return run_dir


def reported(tgi_bench: CommandLine, run_dir: Path, form: str) -> dict[str, str]:
    """The files that `report` writes of it, by name, in the order in which it names them."""
    output = run_dir.parent / f"{run_dir.name}-{form}"
    ended = tgi_bench("report", run_dir, "--format", form, "--output", output)
    assert (ended.code, ended.stderr) == (0, "")
    names = [Path(line).name for line in ended.stdout.splitlines()]
    assert sorted(names) == sorted(file.name for file in output.iterdir())
    return {name: (output / name).read_text(encoding="utf-8") for name in names}


def format_of(run_dir: Path) -> int:
    connection = sqlite3.connect(run_dir / "run.db")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return int(version)


CASES = [(name, form) for name, forms in FORMS.items() for form in forms]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_its_reports_are_the_kept_ones(
    tgi_bench: CommandLine,
    tmp_path: Path,
    golden: Callable[[str, str], None],
    name: str,
    form: str,
) -> None:
    run_dir = copy_of(name, tmp_path)
    before = (run_dir / "run.db").read_bytes()
    pages = reported(tgi_bench, run_dir, form)
    for page, text in pages.items():
        if name in ALL_PAGES or page in ("report.md", "report.json") or form == "csv":
            golden(f"formats/{name}/{page}", text)
    # Whoever reads a run leaves it as it is.
    assert (run_dir / "run.db").read_bytes() == before
    assert [file.name for file in run_dir.iterdir()] == ["run.db"]


@pytest.mark.parametrize("name", FORMS)
def test_no_file_lies_beside_it_that_is_not_compared(
    tgi_bench: CommandLine, tmp_path: Path, name: str
) -> None:
    run_dir = copy_of(name, tmp_path)
    pages = [page for form in FORMS[name] for page in reported(tgi_bench, run_dir, form)]
    if name not in ALL_PAGES:
        pages = [page for page in pages if not page.startswith("num_shard-")]
    assert sorted([*pages, "run.db.gz"]) == sorted(file.name for file in (KEPT / name).iterdir())


@pytest.mark.parametrize("name", FORMS)
def test_an_upgraded_copy_gives_the_same(tgi_bench: CommandLine, tmp_path: Path, name: str) -> None:
    run_dir = copy_of(name, tmp_path)
    assert format_of(run_dir) == int(name[0])
    with RunStore.open(run_dir, writable=True) as store:
        header = store.header()
    assert format_of(run_dir) == FORMAT_VERSION
    with RunStore.open(run_dir, writable=False) as store:
        assert store.header() == header
    expected = (KEPT / name / "report.json").read_text(encoding="utf-8")
    assert reported(tgi_bench, run_dir, "json") == {"report.json": expected}


def test_every_format_is_kept() -> None:
    assert sorted(FORMS) == sorted(entry.name for entry in KEPT.iterdir())
    assert {int(name[0]) for name in FORMS} == set(range(1, FORMAT_VERSION + 1))


def test_the_newest_runs_have_everything_that_a_run_can_have() -> None:
    """What is new has its place in a golden too."""
    servers, direct, table = (
        json.loads((KEPT / name / "report.json").read_text(encoding="utf-8"))
        for name in ("5", "5-direct", "3")
    )
    ends = {each["outcome"] for each in (*servers["trials"], *servers["loads"])}
    assert ends == {*Outcome, None}
    stages = [stage for each in servers["loads"] for stage in each["stages"]]
    assert {name for stage in stages for name in stage["outcomes"]} == set(RequestOutcome)
    statuses = {check["status"] for check in servers["verdict"]["checks"]}
    assert statuses == {"passed", "failed", "not_checked"}
    assert any(stage["cut_off"] for stage in stages)
    assert all(servers[name] for name in ("telemetry", "estimates", "calibrations", "floors"))
    assert {each["outcome"] for each in direct["tasks"]} >= {"ok", "out_of_memory", None}
    assert direct["telemetry"]
    kinds = {value["kind"] for entry in table["entries"] for value in entry["values"]}
    assert kinds == set(FigureKind)
    assert all(run[key] for run in (servers, direct, table) for key in ("environment", "verdict"))
    # Each kind of thing that the document has is in one of the three.
    assert not [key for key in servers if not any((servers[key], direct[key], table[key]))]
