"""report.rst: estimates beside measurements, in reStructuredText."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.run import CORRECTED, DOUBTFUL, Run
from tgi_bench.errors import InputError
from tgi_bench.report.estimated_section import rst_section
from tgi_bench.report.rst_table import escaped, heading
from tgi_bench.report.words import origin_line


def rst_page(run: Run, tables: Sequence[str] = ()) -> str:
    """Estimates beside the run's figures. tables: those of a run that holds both itself.

    Raises InputError where nothing of the run is estimated.
    """
    estimated = rst_section(run)
    if not estimated and not tables:
        raise InputError(
            f"run {run.run_id}: nothing of it can be estimated, which reStructuredText is for; use "
            "--format md"
        )
    parts = [
        heading(f"{run.plan.experiment}: {run.plan.model}", "="),
        f"{_origin(run)} Verdict: **{run.verdict.word}**.\n",
        *tables,
        estimated,
    ]
    notes = "".join(
        f"- {escaped(f'{name}: {value}')}\n"
        for name, value in run.environment
        if name.startswith((CORRECTED, DOUBTFUL))
    )
    if notes:
        parts.append(f"Notes\n-----\n\n{notes}")
    return "\n".join(part for part in parts if part)


def _origin(run: Run) -> str:
    """The line of the Markdown page, whose bold first word is bold here too."""
    _, word, sentence = origin_line(run).split("**", 2)
    return f"**{word}** {escaped(sentence)}"
