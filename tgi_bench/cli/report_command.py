"""`tgi-bench report`: the reports of a run, made again from its run.db."""

from __future__ import annotations

from pathlib import Path

import click

from tgi_bench.analysis.run import Run
from tgi_bench.cli.run_view import load, write_documents
from tgi_bench.errors import InputError
from tgi_bench.report.documents import (
    as_csv,
    documents,
    entries_csv,
    estimates_csv,
    loads_csv,
    rst_page,
)
from tgi_bench.report.json_document import as_json

_ESTIMATES = "estimates.csv"


def run(path: Path, form: str, output: Path | None, beside: Path | None = None) -> int:
    """Print the reports, or write them into a folder; returns the exit code.

    beside: another run, to lay side by side with this one instead.
    """
    texts = _texts(load(path), form) if beside is None else _beside(path, form, beside)
    if output is None:
        # Its columns are others: one stream of CSV has one header.
        texts.pop(_ESTIMATES, None)
        click.echo("\n".join(texts.values()), nl=False)
    else:
        write_documents(output, texts)
        for name in texts:
            click.echo(str(output / name))
    return 0


def _beside(path: Path, form: str, beside: Path) -> dict[str, str]:
    from tgi_bench.report.side_by_side import FILE_NAME, side_by_side

    if form != "md":
        raise InputError(f"--beside makes a page of Markdown; --format {form} is not one")
    return {FILE_NAME: side_by_side(load(path), load(beside))}


def _texts(run: Run, form: str) -> dict[str, str]:
    match form:
        case "json":
            return {"report.json": as_json(run)}
        case "csv":
            return _tables(run)
        case "rst":
            return {"report.rst": rst_page(run)}
        case _:
            return documents(run)


def _tables(run: Run) -> dict[str, str]:
    """run.csv of batches, loads.csv of loads, estimates.csv of what is estimated of batches.

    An empty table only where there is no other.
    """
    text = estimates_csv(run)
    estimates = {_ESTIMATES: text} if text else {}
    if run.entries:
        return {"entries.csv": entries_csv(run)} | estimates
    loads = {"loads.csv": loads_csv(run)} if run.loads else {}
    batches = {"run.csv": as_csv(run)} if run.trials or not loads else {}
    return batches | loads | estimates
