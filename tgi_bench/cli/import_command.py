"""`tgi-bench import`: a published report into a run of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tgi_bench.cli.durations import counted
from tgi_bench.cli.echo import echo
from tgi_bench.cli.experiment_file import read_text
from tgi_bench.cli.run_view import load, write_documents
from tgi_bench.errors import TableError
from tgi_bench.inert import one_line
from tgi_bench.observation import PublishedEntry
from tgi_bench.plan.experiment import require_name
from tgi_bench.plan.plan import Plan
from tgi_bench.published.import_any import read_table
from tgi_bench.published.imported_table import table_plan
from tgi_bench.published.page import imported_documents
from tgi_bench.published.tgi import parse
from tgi_bench.published.tgi_notes import tgi_notes
from tgi_bench.published.tgi_run import Imported, to_run_parts, written_by
from tgi_bench.record.environment import capture
from tgi_bench.record.runs import new_run_dir
from tgi_bench.record.store import RunHeader, RunStore

_MOST_BYTES = 1 << 24
_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a file holds: either entries of a table, or trials with their figures."""

    plan: Plan
    facts: tuple[tuple[str, str], ...]
    entries: tuple[PublishedEntry, ...]
    imported: Imported

    @property
    def counts(self) -> str:
        """ "31 of 36 trials", "30 of 30 entries"."""
        if self.entries:
            ended = sum(bool(entry.values) for entry in self.entries)
            return f"{ended} of {len(self.entries)} entries"
        ended = sum(bool(figures) for _, figures in self.imported.values())
        return f"{ended} of {counted(len(self.plan.trials), 'trial')}"


def run(file: Path, name: str | None, results: Path) -> None:
    """Read the file's tables, keep them as a run and write its reports; raises InputError."""
    if name is not None:
        require_name(name, "--name")
    text = read_text(file, "report", _MOST_BYTES)
    try:
        found = _read(text, name or file.name)
    except TableError as error:
        raise TableError(_located(file, str(error))) from None
    run_dir = new_run_dir(results, found.plan.experiment, found.plan.digest)
    _store(run_dir, found, (("imported from", _shown(file)), *found.facts))
    write_documents(run_dir, imported_documents(load(run_dir)))
    echo(f"imported {found.counts} with figures from {file}")
    echo(f"report   {run_dir / 'report.md'}")


def _read(text: str, file_name: str) -> _Found:
    """Whichever known table the text holds; raises TableError."""
    table = read_table(text)
    if table is not None:
        return _Found(table_plan(table, file_name), table.facts, table.entries, {})
    report = parse(text)
    plan, imported = to_run_parts(report, file_name)
    facts = (written_by(report), *tgi_notes(report, plan, imported))
    return _Found(plan, facts, (), imported)


def _located(file: Path, message: str) -> str:
    """ "line 3: ..." of a parser that knows no file as "file:3: ..."."""
    found = _LINE.fullmatch(message)
    place = f"{file}:{found[1]}" if found else str(file)
    return one_line(f"{place}: {found[2] if found else message}")


def _shown(file: Path) -> str:
    """The file as somebody else could name it: below the working folder, else its name."""
    return file.name if file.is_absolute() or ".." in file.parts else str(file)


def _store(run_dir: Path, found: _Found, source: tuple[tuple[str, str], ...]) -> None:
    header = RunHeader(
        run_id=run_dir.name,
        experiment_json="",
        plan=found.plan,
        origin="imported",
        environment=(*source, *_importer()),
        created_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    with RunStore.create(run_dir, header) as store:
        store.add_entries(found.entries)
        for trial in found.plan.trials:
            end, figures = found.imported[trial.trial_id]
            store.add_published(trial.trial_id, figures)
            store.end_unstarted(trial.trial_id, end)
        store.finish()


def _importer() -> tuple[tuple[str, str], ...]:
    """Only our own version: the machine that reads a report did not measure it."""
    return tuple((name, value) for name, value in capture() if name == "tgi-bench")
