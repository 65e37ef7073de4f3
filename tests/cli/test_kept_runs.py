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
from tgi_bench.errors import ResultsError
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.observation import TABLES, FigureKind, Outcome, ServerFacts
from tgi_bench.record.formats import FORMAT_VERSION
from tgi_bench.record.store import RunStore
from tgi_bench.task_observation import DirectFacts

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
    "6": ("json",),
    "6-direct": ("json",),
}
"""Each kept run, and the forms of its reports that are kept beside it."""
SAME = {"6": "5", "6-direct": "5-direct"}
"""Runs that another has too, whose reports are kept there: `written_again` has made them of it."""
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


def expected(name: str) -> str:
    """The JSON of a kept run."""
    return (KEPT / SAME.get(name, name) / "report.json").read_text(encoding="utf-8")


def written_again(run_dir: Path, folder: Path) -> None:
    """Whatever a run has, as a sweep writes it now.

    A kept run of this format is `gzip -n` of what this makes of the format before.
    """
    kept = RunStore.open(run_dir, writable=False)
    with kept as old, RunStore.create(folder, old.header()) as new:
        plan, ends = old.header().plan, old.ends()
        hosts: list[tuple[str, type]] = [(d.deployment_id, ServerFacts) for d in plan.deployments]
        for host_id, kind in [*hosts, *((m.model_id, DirectFacts) for m in plan.direct_models)]:
            if (facts := old.facts(host_id, kind)) is not None:
                new.started(host_id, facts)
            if failure := old.failure(host_id):
                new.failed(host_id, failure)
        kinds: list[type[object]] = [kind for kind, table in TABLES.items() if not table.of_run]
        ids = [t.trial_id for t in plan.trials]
        ids += [*(t.trial_id for t in plan.load_trials), *(t.trial_id for t in plan.task_trials)]
        for trial_id in ids:
            seen = [one for kind in kinds for one in old.seen(trial_id, kind)]
            if seen or trial_id in ends:
                attempt = new.begin(trial_id)
                new.add(attempt, seen)
                if trial_id in ends:
                    new.end(attempt, ends[trial_id])
        for kind in (kind for kind, table in TABLES.items() if table.of_run):
            new.add_to_run(old.of_run(kind))
        if old.finished():
            new.finish()


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
            golden(f"formats/{SAME.get(name, name)}/{page}", text)
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
    pages = [] if name in SAME else pages
    assert sorted([*pages, "run.db.gz"]) == sorted(file.name for file in (KEPT / name).iterdir())


@pytest.mark.parametrize("name", FORMS)
def test_an_upgraded_copy_gives_the_same(tgi_bench: CommandLine, tmp_path: Path, name: str) -> None:
    run_dir = copy_of(name, tmp_path)
    assert format_of(run_dir) == int(name[0])
    with (
        RunStore.open(run_dir, writable=False) as store,
        pytest.raises(ResultsError, match="readonly"),
    ):
        store.finish()
    with RunStore.open(run_dir, writable=True) as store:
        header = store.header()
    assert format_of(run_dir) == FORMAT_VERSION
    with RunStore.open(run_dir, writable=False) as store:
        assert store.header() == header
    assert reported(tgi_bench, run_dir, "json") == {"report.json": expected(name)}


@pytest.mark.parametrize("name", FORMS)
def test_written_again_it_gives_the_same(tgi_bench: CommandLine, tmp_path: Path, name: str) -> None:
    again = tmp_path / "again"
    again.mkdir()
    written_again(copy_of(name, tmp_path), again)
    assert reported(tgi_bench, again, "json") == {"report.json": expected(name)}


@pytest.mark.parametrize("name", SAME)
def test_a_file_of_this_format_is_written_as_it_was(tmp_path: Path, name: str) -> None:
    """Another one is of another format, once this one has been released."""
    again = tmp_path / "again"
    again.mkdir()
    written_again(copy_of(SAME[name], tmp_path), again)
    files = [folder / "run.db" for folder in (again, copy_of(name, tmp_path))]
    now, kept = (list(sqlite3.connect(file).iterdump()) for file in files)
    assert now == kept


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
