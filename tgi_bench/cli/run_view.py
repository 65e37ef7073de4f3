"""A run as this program shows it, and its reports as files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.run import Run
from tgi_bench.errors import not_written
from tgi_bench.kinds import KINDS as RUN_KINDS
from tgi_bench.kinds.run_of import run_of
from tgi_bench.published import page as published
from tgi_bench.report.source import COMMAND

KINDS = (*RUN_KINDS, published.KIND)
"""Of runs that were made and of tables that were imported."""


def load(path: Path) -> Run:
    """As `run_of`. Whoever typed options is told of options."""
    run = run_of(path, KINDS)
    if COMMAND not in dict(run.environment):
        return run
    from tgi_bench.cli.load_command import in_options

    checks = (replace(c, remedy=in_options(c.remedy)) for c in run.verdict.checks)
    return replace(run, verdict=Verdict.of(checks))


def write_documents(folder: Path, documents: Mapping[str, str]) -> None:
    """Write each text under its name; whoever reads one meanwhile sees the old or the new.

    The first one, which names the others, is written last. Raises ResultsError, where there is no
    room NotRecordedError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in reversed(tuple(documents.items())):
            part = folder / f".{name}.part"
            try:
                part.write_text(text, encoding="utf-8")
                os.replace(part, folder / name)
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(f"{folder}: reports cannot be written", error) from None
