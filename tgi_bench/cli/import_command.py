"""`tgi-bench import`: a published report into a run of its own."""

from __future__ import annotations

from pathlib import Path

from tgi_bench.cli.echo import echo
from tgi_bench.cli.experiment_file import read_text
from tgi_bench.cli.run_view import load, write_documents
from tgi_bench.errors import InputError, TableError
from tgi_bench.inert import one_line
from tgi_bench.plan.experiment import require_name
from tgi_bench.published.command import keep, read
from tgi_bench.published.page import imported_documents

_MOST_BYTES = 1 << 24


def run(file: Path, name: str | None, results: Path) -> None:
    """Read the file's tables, keep them as a run and write its reports; raises InputError."""
    if name is not None:
        require_name(name, "--name")
    text = read_text(file, "report", _MOST_BYTES)
    try:
        found = read(text, name or file.name)
    except TableError as error:
        place = str(file) if error.line is None else f"{file}:{error.line}"
        raise InputError(one_line(f"{place}: {error.what}")) from None
    run_dir = keep(found, _shown(file), results)
    write_documents(run_dir, imported_documents(load(run_dir)))
    echo(f"imported {found.counts} with figures from {file}")
    echo(f"report   {run_dir / 'report.md'}")


def _shown(file: Path) -> str:
    """The file as somebody else could name it: below the working folder, else its name."""
    return file.name if file.is_absolute() or ".." in file.parts else str(file)
