"""One concept, one place: what a stranger adds, and that nothing else has to know of it.

Each addition is made to a copy of the package, as a stranger would make it, in one file.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Added:
    """One Column, in one line of one file, and where it is to be found.

    run, page, table: whose documents are looked at. cell, short, number: of its first row, as the
    page, the screen and the data have it.
    """

    file: str
    tuple_of: str
    column: str
    run: str
    page: str
    table: str
    key: str
    title: str
    screen: str
    cell: str
    short: str
    number: float


FIGURES = (
    Added(
        "batch/columns",
        "OF_A_TRIAL",
        'Column("steps", lambda t: t.runs * 2.5, "Steps taken", units.RATE, "Steps")',
        "tests.report.example.simulated_run",
        "num_shard-1.md",
        "as_csv",
        "steps",
        "Steps taken",
        "Steps",
        "7.50",
        "7.5",
        7.5,
    ),
    Added(
        "load/columns",
        "RATES",
        'Column("events_per_s", lambda s: s.events / 4, "Events (1/s)", units.RATE, "Events/s")',
        "tests.report.load_example.load_run",
        "num_shard-1.md",
        "loads_csv",
        "events_per_s",
        "Events (1/s)",
        "Events/s",
        "774.00",
        "774.0",
        774.0,
    ),
    Added(
        "direct/columns",
        "BESIDE",
        'Column("wait", lambda f: f.runs * 4e6, "Wait", units.MS, "Waited")',
        "tests.analysis.task_samples.whole_run",
        "report.md",
        "tasks_csv",
        "wait_ns",
        "Wait",
        "Waited",
        "12.00 ms",
        "12.0 ms",
        12e6,
    ),
)
_SHOW = """
import importlib, io, json, sys
from rich.console import Console
from tgi_bench.cli.summary_table import print_summary
from tgi_bench.kinds import documents
from tgi_bench.kinds.json_document import as_json
found = {}
for name, table in json.loads(sys.argv[1]):
    module, _, function = name.rpartition(".")
    run = getattr(importlib.import_module(module), function)()
    screen = io.StringIO()
    print_summary(Console(file=screen, width=240), run)
    found[name] = {
        "pages": documents.documents(run),
        "json": json.loads(as_json(run)),
        "csv": getattr(documents, table)(run),
        "screen": screen.getvalue(),
    }
print(json.dumps(found))
"""
Shown = dict[str, dict[str, object]]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """What is made of each run by a package that has a Column more in each kind of figures."""
    home = tmp_path_factory.mktemp("stranger")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tgi_bench", home / "tgi_bench", ignore=ignore)
    for figure in FIGURES:
        path = home / "tgi_bench" / "kinds" / f"{figure.file}.py"
        before, head, rest = path.read_text(encoding="utf-8").partition(f"\n{figure.tuple_of}: ")
        declared, begins, columns = rest.partition(" = (\n")
        assert head
        assert begins
        added = f"{before}{head}{declared}{begins}    {figure.column},\n{columns}"
        path.write_text(added, encoding="utf-8")
    asked = json.dumps([(figure.run, figure.table) for figure in FIGURES])
    path_of = os.pathsep.join((str(home), str(ROOT)))
    made = subprocess.run(
        [sys.executable, "-c", _SHOW, asked],
        env={**os.environ, "PYTHONPATH": path_of},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    found: Shown = json.loads(made.stdout)
    return found


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.file)
class TestAFigure:
    """A Column in one tuple: it is on the page, in CSV, in JSON and on the screen."""

    def test_on_the_page(self, figure: Added, shown: Shown) -> None:
        pages = shown[figure.run]["pages"]
        assert isinstance(pages, dict)
        cells = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in pages[figure.page].splitlines()
            if line.startswith("|")
        ]
        heads = [row for row in cells if figure.title in row]
        assert heads
        row = cells[cells.index(heads[0]) + 2]
        assert row[heads[0].index(figure.title)] == figure.cell

    def test_in_csv(self, figure: Added, shown: Shown) -> None:
        rows = list(csv.DictReader(io.StringIO(str(shown[figure.run]["csv"]))))
        assert float(rows[0][figure.key]) == figure.number

    def test_in_json(self, figure: Added, shown: Shown) -> None:
        assert (figure.key, figure.number) in _pairs(shown[figure.run]["json"])

    def test_on_the_screen(self, figure: Added, shown: Shown) -> None:
        lines = str(shown[figure.run]["screen"]).splitlines()
        (head,) = (line for line in lines if figure.screen in line.split())
        ends = head.index(figure.screen) + len(figure.screen)
        assert lines[lines.index(head) + 1][:ends].endswith(f" {figure.short}")


def _pairs(document: object) -> list[tuple[str, object]]:
    """Every key of it with a value that is no part of its own."""
    found: list[tuple[str, object]] = []
    if isinstance(document, dict):
        for key, value in document.items():
            found += _pairs(value) if isinstance(value, dict | list) else [(key, value)]
    if isinstance(document, list):
        for value in document:
            found += _pairs(value)
    return found
