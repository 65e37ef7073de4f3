"""A run as files: Markdown, JSON and CSV."""

from __future__ import annotations

from tgi_bench.analysis.run import Run
from tgi_bench.report.batch_figures import as_csv
from tgi_bench.report.estimated_documents import estimates_csv
from tgi_bench.report.index import index, shard_counts
from tgi_bench.report.json_document import as_json
from tgi_bench.report.load_figures import loads_csv
from tgi_bench.report.load_goals import slos_csv
from tgi_bench.report.markdown_page import page
from tgi_bench.report.per_shard import file_name, per_shard
from tgi_bench.report.rst_page import rst_page
from tgi_bench.report.task_figures import tasks_csv
from tgi_bench.report.task_page import task_page

__all__ = [
    "as_csv",
    "as_json",
    "documents",
    "estimates_csv",
    "loads_csv",
    "rst_page",
    "slos_csv",
    "tasks_csv",
]


def documents(run: Run) -> dict[str, str]:
    """File name -> text: report.md, and one num_shard-N.md for each tensor-parallel degree."""
    if run.tasks:
        pages = {"report.md": task_page(run)}
    else:
        shards = {file_name(n): per_shard(run, n) for n in shard_counts(run)}
        pages = {"report.md": index(run), **shards}
    return {name: page(text) for name, text in pages.items()}
