"""`tgi-bench report`: the reports of a run, made again from its run.db."""

from __future__ import annotations

from pathlib import Path

import click

from tgi_bench.analysis.run import Run
from tgi_bench.cli.run_view import load, write_documents
from tgi_bench.report.documents import as_csv, documents, entries_csv, loads_csv, rst_page
from tgi_bench.report.json_document import as_json


def run(path: Path, form: str, output: Path | None) -> int:
    """Print the reports, or write them into a folder; returns the exit code."""
    texts = _texts(load(path), form)
    if output is None:
        click.echo("\n".join(texts.values()), nl=False)
    else:
        write_documents(output, texts)
        for name in texts:
            click.echo(str(output / name))
    return 0


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
    """run.csv of batches and loads.csv of loads; an empty table only where there is no other."""
    if run.entries:
        return {"entries.csv": entries_csv(run)}
    loads = {"loads.csv": loads_csv(run)} if run.loads else {}
    batches = {"run.csv": as_csv(run)} if run.trials or not loads else {}
    return batches | loads
