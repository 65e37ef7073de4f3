"""Imported tables in the layout that they had, without its slips."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.run import TableLayout
from tgi_bench.observation import FigureKind, Outcome, PublishedEntry, PublishedMetric
from tgi_bench.published import bigcode, h2ogpt
from tgi_bench.published.bigcode_layout import bigcode_page
from tgi_bench.published.h2ogpt_layout import h2ogpt_page
from tgi_bench.report.markdown_page import begins_line
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.torchcap_layout import Comparison, Figures, comparison_markdown
from tgi_bench.report.words import UNDEFINED, cell_word

Entries = Sequence[PublishedEntry]

WHO_ESTIMATED = "Estimated by TorchCAP, not by tgi-bench.\n"


def tables(layout: TableLayout, entries: Entries) -> str:
    """The tables of a report, each under its headings."""
    match layout:
        case TableLayout.H2OGPT if _has(entries, PublishedMetric.NEW_TOKENS_PER_S):
            return h2ogpt_page(entries)
        case TableLayout.BIGCODE if _has(entries, PublishedMetric.MS_PER_DECODE_STEP):
            return bigcode_page(entries)
        case TableLayout.H2OGPT:
            return h2ogpt_tables(entries)
        case TableLayout.BIGCODE:
            return bigcode_tables(entries)
        case TableLayout.TORCHCAP:
            return torchcap_tables(entries)


def _has(entries: Entries, metric: PublishedMetric) -> bool:
    """Whether tgi-bench measured the table: no other has that metric there."""
    return any(value.metric is metric for entry in entries for value in entry.values)


def h2ogpt_tables(entries: Entries) -> str:
    """One table for each model and number of GPUs."""
    parts = ["## Backend: transformers\n"]
    groups: dict[str, dict[int, list[PublishedEntry]]] = {}
    for entry in entries:
        groups.setdefault(entry.model, {}).setdefault(entry.devices, []).append(entry)
    for model, by_devices in groups.items():
        parts.append(f"### Model: {model}\n")
        for devices, group in by_devices.items():
            rows = tuple(_h2ogpt_row(entry) for entry in group)
            table = markdown(Table(h2ogpt.HEADERS, rows, frozenset({0, 2, 3})))
            parts.append(f"### Number of GPUs: {devices}\n\n{table}")
    return "\n".join(parts)


def _h2ogpt_row(entry: PublishedEntry) -> tuple[str, ...]:
    metrics = (PublishedMetric.SUMMARIZE_S, PublishedMetric.QUARTER_CHARACTERS_PER_S)
    figures = (entry.value(metric) for metric in metrics)
    return (
        h2ogpt.BITS.get(entry.quantize, UNDEFINED),
        f"{entry.devices} x {entry.accelerator}",
        *(cell_word(entry.end) if value is None else _exact(value, 0) for value in figures),
    )


def bigcode_tables(entries: Entries) -> str:
    """Rates and ms per token in one table, seconds of a whole generate in the other."""
    columns = list(dict.fromkeys(_column(entry) for entry in entries))
    sizes = list(dict.fromkeys(entry.batch_size for entry in entries))
    by_place = {(entry.batch_size, _column(entry)): entry for entry in entries}
    new_tokens = bigcode.NEW_TOKENS

    def table(seconds: bool) -> str:
        rows = tuple(
            (
                str(size),
                *(_bigcode_cell(by_place.get((size, c)), seconds) for c in columns),
            )
            for size in sizes
        )
        return markdown(
            Table((bigcode.FIRST_HEADER, *columns), rows, frozenset(range(len(columns) + 1)))
        )

    return (
        "# bigcode-inference-benchmark\n\n"
        f"{begins_line(entries[0].model)}, randomly initialised\\\n"
        "transformers, without accelerate\\\n"
        f"{begins_line(entries[0].accelerator)}\n\n"
        f"{bigcode.RATE_CAPTION}{bigcode.OUR_CAPTION}\n\n"
        f"{table(False)}\n"
        f"{bigcode.TIME_CAPTION} (one generate of {new_tokens} new tokens a sequence)\n\n"
        f"{table(True)}"
    )


def _column(entry: PublishedEntry) -> str:
    known = {weights: header for header, weights in bigcode.WEIGHTS.items()}
    other = " ".join(filter(None, (entry.dtype, entry.quantize))) or UNDEFINED
    return known.get((entry.dtype, entry.quantize), other)


def _bigcode_cell(entry: PublishedEntry | None, seconds: bool) -> str:
    if entry is None or entry.end is None:
        return ""
    if entry.end.outcome is not Outcome.OK:
        return cell_word(entry.end).lower()
    if seconds:
        metrics: tuple[PublishedMetric, ...] = (PublishedMetric.GENERATE_S,)
    else:
        metrics = (PublishedMetric.NEW_TOKENS_PER_S, PublishedMetric.MS_PER_NEW_TOKEN)
    figures = (entry.value(metric) for metric in metrics)
    return " | ".join(UNDEFINED if value is None else _exact(value, 2) for value in figures)


def torchcap_tables(entries: Entries) -> str:
    """Estimated, Measured and Error of each configuration; see torchcap_layout."""
    return f"{input_size(entries)}\n{comparison_markdown(comparisons(entries))}\n{WHO_ESTIMATED}"


def input_size(entries: Entries) -> str:
    """A line with batch size and prompt tokens, which are those of every entry."""
    return f"Input Sequence Size = {entries[0].batch_size} x {entries[0].prompt_tokens}\n"


def comparisons(entries: Entries) -> tuple[Comparison, ...]:
    """Entries with the estimates that their own table gives."""
    return tuple(
        Comparison(
            model=entry.model,
            accelerator=entry.accelerator,
            num_shard=entry.devices,
            estimated=_figures(entry, FigureKind.ESTIMATED),
            measured=_figures(entry, FigureKind.MEASURED),
        )
        for entry in entries
    )


def _figures(entry: PublishedEntry, kind: FigureKind) -> Figures:
    return Figures(
        runtime_ms=entry.value(PublishedMetric.FORWARD_MS, kind),
        memory_gib=entry.value(PublishedMetric.MEMORY_GIB, kind),
        energy_j_per_token=entry.value(PublishedMetric.ENERGY_J_PER_TOKEN, kind),
        tokens_per_s=entry.value(PublishedMetric.PROMPT_TOKENS_PER_S, kind),
    )


def _exact(value: float, least: int) -> str:
    """At least that many decimals, and as many as read back as the same value."""
    text = f"{value:.{least}f}"
    return text if float(text) == value else repr(value)
