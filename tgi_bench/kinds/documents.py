"""A run as files: Markdown, JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.run import CORRECTED, DOUBTFUL, Run
from tgi_bench.errors import InputError
from tgi_bench.kinds.batch.estimated import rst_section
from tgi_bench.kinds.batch.estimated_data import estimates_csv
from tgi_bench.kinds.index import index, shard_counts
from tgi_bench.kinds.kind import Kinds, views
from tgi_bench.kinds.per_shard import file_name, per_shard
from tgi_bench.report.markdown_page import page
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


def documents(run: Run, kinds: Kinds) -> dict[str, str]:
    """File name -> text: report.md, and one num_shard-N.md for each tensor-parallel degree."""
    shards = {file_name(n): per_shard(run, n, kinds) for n in shard_counts(run)}
    pages = {"report.md": index(run, kinds), **shards}
    return {name: page(text) for name, text in pages.items()}


def tables(run: Run, kinds: Kinds) -> dict[str, str]:
    """CSV by file name: those of each kind that the run has, last what is estimated of it."""
    of_run = views(run, kinds)
    made = {name: table(run) for view in of_run for name, table in view.tables.items()}
    made["estimates.csv"] = estimates_csv(run)
    return {name: text for name, text in made.items() if text}
