"""`tgi-bench import` and `report` on every published table, whole and damaged."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.published.tables import APRIL_10, APRIL_13, GOLDEN

TGI = "tgi_bloomz-7b1-mt.md"
COUNTS = {
    "h2ogpt.md": "30 of 30 entries",
    "bigcode.md": "35 of 66 entries",
    APRIL_10: "8 of 12 entries",
    APRIL_13: "24 of 24 entries",
    TGI: "31 of 36 trials",
}


def _published(name: str) -> Path:
    return GOLDEN / f"published_{name}"


def _imported(tgi_bench: CommandLine, file: Path, results: Path) -> tuple[Path, str]:
    """The new run's folder, and what was printed."""
    before = set(results.glob("*/*"))
    ended = tgi_bench("import", file, "--results", results)
    assert (ended.code, ended.stderr) == (0, "")
    (run_dir,) = set(results.glob("*/*")) - before
    return run_dir, ended.stdout


@pytest.mark.parametrize("name", COUNTS)
def test_each_table_becomes_a_run_of_its_own(
    tgi_bench: CommandLine, tmp_path: Path, name: str
) -> None:
    run_dir, printed = _imported(tgi_bench, _published(name), tmp_path)
    assert f"imported {COUNTS[name]} with figures" in printed
    page = (run_dir / "report.md").read_text(encoding="utf-8")
    assert "**Imported.**" in page
    assert "Corrected: " in page
    assert "Doubtful: " in page
    whole = tgi_bench("report", run_dir)
    assert whole.code == 0
    assert whole.stdout.startswith(page)
    document = json.loads(tgi_bench("report", run_dir, "--format", "json").stdout)
    assert document["origin"] == "imported"
    assert bool(document["entries"]) is (name != TGI)
    rows = list(csv.DictReader(io.StringIO(tgi_bench("report", run_dir, "--format", "csv").stdout)))
    assert len(rows) >= 36


@pytest.mark.parametrize("name", COUNTS)
def test_a_report_is_not_imported(tgi_bench: CommandLine, tmp_path: Path, name: str) -> None:
    run_dir, _ = _imported(tgi_bench, _published(name), tmp_path)
    for page in run_dir.glob("*.md"):
        said = tgi_bench.refused("import", page, "--results", tmp_path)
        assert said == (
            f"tgi-bench: {page}:3: tgi-bench wrote this page of a run: its figures are in that "
            "run's run.db, of which `tgi-bench report` makes its pages again\n"
        )


@pytest.mark.parametrize("name", ["h2ogpt.md", TGI])
def test_every_table_is_estimated_in_restructured_text(
    tgi_bench: CommandLine, tmp_path: Path, name: str
) -> None:
    run_dir, _ = _imported(tgi_bench, _published(name), tmp_path)
    ended = tgi_bench("report", run_dir, "--format", "rst")
    assert ended.code == 0, ended
    assert "Estimated beside measured\n-------------------------\n" in ended.stdout


def test_a_run_that_nothing_is_estimated_of_has_no_restructured_text(
    tgi_bench: CommandLine, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    text = _published(TGI).read_text(encoding="utf-8")
    page.write_text(text.replace("bigscience/bloomz-7b1-mt", "org/unknown"), encoding="utf-8")
    run_dir, _ = _imported(tgi_bench, page, tmp_path)
    assert "use --format md" in tgi_bench.refused("report", run_dir, "--format", "rst")


def _last_table(text: str, columns: slice) -> str:
    """Only those columns of the last table."""
    lines = text.rstrip().splitlines()
    place = len(lines)
    while lines[place - 1].startswith(("|", "+")):
        place -= 1
        if lines[place].startswith("|"):
            lines[place] = f"|{'|'.join(lines[place].strip('|').split('|')[columns])}|"
    return "\n".join(lines)


def _short_row(text: str) -> str:
    """Without the last cell of the last row."""
    before, row, after = text.rpartition("\n| ")
    return before + row + after.replace("|", "", 1)


DAMAGES: dict[str, Callable[[str], str]] = {
    "cut off within a row": lambda text: text[: text.rindex("%" if "%" in text else ".")],
    "cut off within a header": lambda text: text[: text.index("|", 60)],
    "a cell of letters": lambda text: re.sub(r"\d+\.\d\d", "many", text, count=1),
    "a negative figure": lambda text: re.sub(r" (\d+\.\d\d)", r" -\1", text, count=1),
    "not a number": lambda text: re.sub(r"\d+\.\d\d", "inf", text, count=1),
    "zero": lambda text: re.sub(r"\d\d+\.\d\d+", "0.00", text, count=1),
    "the last column missing": lambda text: _last_table(text, slice(0, -1)),
    "the first column missing": lambda text: _last_table(text, slice(1, None)),
    "a row too short": _short_row,
    "a row without an end": lambda text: text.rstrip().rstrip("|+-\n").rstrip(),
    "letters for digits": lambda text: re.sub(r"\d", "x", text),
    "full-width digits": lambda text: re.sub(r"(\d+)\.\d\d", "\uff11.\uff12", text),
    "empty": lambda _: "",
    "no tables": lambda text: text.replace("|", " ").replace("+", " "),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", COUNTS)
def test_a_table_that_does_not_parse_is_one_sentence(
    tgi_bench: CommandLine, tmp_path: Path, name: str, damage: str
) -> None:
    text = _published(name).read_text(encoding="utf-8")
    damaged = DAMAGES[damage](text)
    assert damaged != text
    file = tmp_path / name
    file.write_text(damaged, encoding="utf-8")
    message = tgi_bench.refused("import", file, "--results", tmp_path / "results")
    assert re.match(rf"tgi-bench: {re.escape(str(file))}:\d+: \S", message), message
    assert message.count("\n") == 1
    assert not (tmp_path / "results").exists()
