"""`tgi-bench report`: the reports of a run, made again from its run.db; `import`, `selfcheck`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.analysis.run import Run
from tgi_bench.cli.files import read_text
from tgi_bench.cli.output import FAILED, echo
from tgi_bench.cli.run_view import KINDS, load, write_documents
from tgi_bench.cli.tables import print_folded, say, standard_output
from tgi_bench.errors import InputError, TableError
from tgi_bench.inert import one_line
from tgi_bench.kinds.documents import documents, rst_page, tables
from tgi_bench.kinds.json_document import as_json
from tgi_bench.plan.experiment import require_name
from tgi_bench.published.bigcode import bigcode_layout
from tgi_bench.published.command import keep, read
from tgi_bench.published.h2ogpt import h2ogpt_layout
from tgi_bench.published.torchcap import rst_tables
from tgi_bench.report.markdown_page import page
from tgi_bench.selfcheck import report as selfcheck_report
from tgi_bench.selfcheck.loads import RunLoad
from tgi_bench.selfcheck.report import SelfcheckOptions

_ESTIMATES = "estimates.csv"
_SLOS = "slos.csv"
_MOST_TABLE_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """form: md, json, csv or rst. layout: of a published table, or None. output: a folder.

    beside: another run, to lay side by side with the one; None: its own reports.
    """

    form: str
    layout: str | None
    output: Path | None
    beside: Path | None = None


def run(paths: Sequence[Path], options: ReportOptions) -> int:
    """Print the reports, or write them into a folder; returns the exit code.

    Raises InputError where several runs are given without a layout that compares them.
    """
    output = options.output
    if options.layout is not None and options.beside is not None:
        raise InputError("--layout and --beside make different pages: leave one of them out")
    if options.layout is not None:
        texts = _layout([load(path) for path in paths], options)
    elif len(paths) > 1:
        raise InputError("several runs share a table only in a layout: add --layout bigcode")
    elif options.beside is not None:
        texts = _beside(paths[0], options.form, options.beside)
    else:
        texts = _texts(load(paths[0]), options.form)
    if output is None:
        # Its columns are others: one stream of CSV has one header.
        for name in (_ESTIMATES, _SLOS):
            texts.pop(name, None)
        echo("\n".join(texts.values()), nl=False)
    else:
        write_documents(output, texts)
        for name in texts:
            echo(str(output / name))
    return 0


def selfcheck(options: SelfcheckOptions, run_load: RunLoad) -> int:
    """Print the load client's error; 0, or 1 where client and null server do not tell the same."""
    found = selfcheck_report.measure(options, run_load)
    if options.form == "json":
        echo(selfcheck_report.as_json(found), nl=False)
        return 0 if found.agrees else FAILED
    console = standard_output()
    print_folded(console, selfcheck_report.as_table(found), 1)
    console.print()
    for line in selfcheck_report.notes(found):
        say(console, line)
    return 0 if found.agrees else FAILED


def _layout(runs: Sequence[Run], options: ReportOptions) -> dict[str, str]:
    if options.form != "md":
        raise InputError(f"--layout is Markdown: leave --format {options.form} out")
    if options.layout == "h2ogpt":
        return {"h2ogpt.md": page(h2ogpt_layout(runs))}
    return {"bigcode.md": page(bigcode_layout(runs))}


def _beside(path: Path, form: str, beside: Path) -> dict[str, str]:
    from tgi_bench.published.beside import FILE_NAME, side_by_side

    if form != "md":
        raise InputError(f"--beside makes a page of Markdown; --format {form} is not one")
    return {FILE_NAME: page(side_by_side(load(path), load(beside)))}


def _texts(run: Run, form: str) -> dict[str, str]:
    match form:
        case "json":
            return {"report.json": as_json(run, KINDS)}
        case "csv":
            return tables(run, KINDS)
        case "rst":
            return {"report.rst": rst_page(run, rst_tables(run))}
        case _:
            return documents(run, KINDS)


def import_tables(file: Path, name: str | None, results: Path) -> None:
    """Read the file's tables, keep them as a run and write its reports; raises InputError."""
    if name is not None:
        require_name(name, "--name")
    text = read_text(file, "report", _MOST_TABLE_BYTES)
    try:
        found = read(text, name or file.name)
    except TableError as error:
        place = str(file) if error.line is None else f"{file}:{error.line}"
        raise InputError(one_line(f"{place}: {error.what}")) from None
    run_dir = keep(found, _shown(file), results)
    write_documents(run_dir, documents(load(run_dir), KINDS))
    echo(f"imported {found.counts} with figures from {file}")
    echo(f"report   {run_dir / 'report.md'}")


def _shown(file: Path) -> str:
    """The file as somebody else could name it: below the working folder, else its name."""
    return file.name if file.is_absolute() or ".." in file.parts else str(file)
