"""report.rst: estimates beside measurements, in reStructuredText."""

from __future__ import annotations

from tgi_bench.analysis.run import Run
from tgi_bench.errors import InputError
from tgi_bench.report.estimated_section import rst_section
from tgi_bench.report.imported_table import CORRECTED, DOUBTFUL, TableLayout, layout_of
from tgi_bench.report.rst_table import escaped, heading
from tgi_bench.report.table_layouts import WHO_ESTIMATED, comparisons, input_size
from tgi_bench.report.torchcap_layout import comparison_rst
from tgi_bench.report.words import origin_line


def rst_page(run: Run) -> str:
    """Estimates beside the run's figures, and an imported table that holds both itself.

    Raises InputError where nothing of the run is estimated.
    """
    estimated = rst_section(run)
    own = bool(run.entries) and layout_of(run.environment) is TableLayout.TORCHCAP
    if not estimated and not own:
        raise InputError(
            f"run {run.run_id}: nothing of it can be estimated, which reStructuredText is for; use "
            "--format md"
        )
    parts = [
        heading(f"{run.plan.experiment}: {run.plan.model}", "="),
        f"{_origin(run)} Verdict: **{run.verdict.word}**.\n",
    ]
    if own:
        parts += [
            input_size(run.entries),
            comparison_rst(comparisons(run.entries)),
            WHO_ESTIMATED,
        ]
    parts.append(estimated)
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
