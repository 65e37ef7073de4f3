"""report.rst: an imported table of estimates beside measurements, in reStructuredText."""

from __future__ import annotations

from tgi_bench.analysis.run import Run
from tgi_bench.errors import InputError
from tgi_bench.report.imported_table import CORRECTED, DOUBTFUL, TableLayout, layout_of
from tgi_bench.report.table_layouts import WHO_ESTIMATED, comparisons, input_size
from tgi_bench.report.torchcap_layout import comparison_rst, escaped
from tgi_bench.report.words import origin_line


def rst_page(run: Run) -> str:
    """Its tables and what was corrected or is in doubt.

    Raises InputError where the run holds no table of estimates and measurements.
    """
    if layout_of(run.environment) is not TableLayout.TORCHCAP or not run.entries:
        raise InputError(
            f"run {run.run_id}: holds no table of estimates beside measurements, which "
            "reStructuredText is for; use --format md"
        )
    title = escaped(f"{run.plan.experiment}: {run.plan.model}")
    notes = "".join(
        f"- {escaped(f'{name}: {value}')}\n"
        for name, value in run.environment
        if name.startswith((CORRECTED, DOUBTFUL))
    )
    return "\n".join(
        (
            f"{title}\n{'=' * len(title)}\n",
            f"{_origin(run)} Verdict: **{run.verdict.word}**.\n",
            input_size(run.entries),
            comparison_rst(comparisons(run.entries)),
            WHO_ESTIMATED,
            f"Notes\n-----\n\n{notes}",
        )
    )


def _origin(run: Run) -> str:
    """The line of the Markdown page, whose bold first word is bold here too."""
    _, word, sentence = origin_line(run).split("**", 2)
    return f"**{word}** {escaped(sentence)}"
