"""Whether to believe an imported table that is not of TGI's steps."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.rules import Check, Verdict, failed, listed, passed, unmade
from tgi_bench.kinds.batch.rules import LEAST_RUNS, MOST_SPREAD
from tgi_bench.observation import Outcome, PublishedEntry, PublishedMetric

Entries = Sequence[PublishedEntry]


def judge_entries(entries: Entries) -> Verdict:
    """Every check that a table without samples allows."""
    return Verdict(
        (
            _figures(entries),
            _as_printed(entries),
            _configurations(entries),
            _runs(entries),
            _lengths(entries),
            _repeats(entries),
        )
    )


def _figures(entries: Entries) -> Check:
    name = "the table has figures"
    count = sum(len(entry.values) for entry in entries)
    if not count:
        return failed(name, "no entry has a figure", "import the whole table")
    memory = sum(e.end is not None and e.end.outcome is Outcome.OUT_OF_MEMORY for e in entries)
    blank = sum(e.end is None for e in entries)
    finding = f"{count} in {len(entries)} entries; {memory} out of memory, {blank} left blank"
    return passed(name, finding)


def _as_printed(entries: Entries) -> Check:
    name = "figures are what the table says"
    count = sum(len(entry.values) for entry in entries)
    reasons = [value.reason for entry in entries for value in entry.values if value.reason]
    if not reasons:
        return passed(name, f"all {count} as printed")
    finding = f"{len(reasons)} of {count} figures are corrected or in doubt"
    remedy = "use the figures of this report, not the printed ones, and read the reasons"
    return failed(name, finding, remedy)


def _configurations(entries: Entries) -> Check:
    name = "configurations are as stated"
    doubted = [entry.entry_id for entry in entries if entry.doubts and entry.values]
    if not doubted:
        return passed(name, "nothing speaks against them")
    remedy = "read the doubts before these entries are compared with others"
    return failed(name, f"{len(doubted)} in doubt: {listed(doubted)}", remedy)


def _runs(entries: Entries) -> Check:
    name = f"at least {LEAST_RUNS} runs"
    known = sorted({e.runs for e in entries if e.runs is not None and e.values})
    if not known:
        return unmade(name, "the table does not say how many")
    with_figures = [entry for entry in entries if entry.values]
    few = [e for e in with_figures if e.runs is not None and e.runs < LEAST_RUNS]
    if few:
        remedy = "the table has no more; do not compare by its figures alone"
        finding = f"{known[0]} for {len(few)} of {len(with_figures)} entries with figures"
        return failed(name, finding, remedy)
    return passed(name, f"{known[0]} for each figure")


def _lengths(entries: Entries) -> Check:
    name = "prompt and new tokens are known"
    unknown = [
        entry.entry_id
        for entry in entries
        if entry.values and None in (entry.batch_size, entry.prompt_tokens, entry.new_tokens)
    ]
    if unknown:
        remedy = "do not compare seconds of entries whose work may differ"
        return failed(name, f"not for {len(unknown)} entries", remedy)
    return passed(name, "for every entry")


def _repeats(entries: Entries) -> Check:
    """(highest - lowest) / mean of each figure of one configuration that stands twice."""
    name = f"entries of one configuration agree within {MOST_SPREAD:.0%}"
    groups: dict[tuple[object, ...], list[PublishedEntry]] = {}
    for entry in entries:
        groups.setdefault(_configuration(entry), []).append(entry)
    spreads = [
        (spread, group[0].entry_id)
        for group in groups.values()
        for metric in PublishedMetric
        if (spread := _spread([v for e in group if (v := e.value(metric)) is not None])) is not None
    ]
    if not spreads:
        return unmade(name, "none stands twice")
    worst = max(spreads)
    if worst[0] > MOST_SPREAD:
        remedy = "take the differences of other entries for noise up to that"
        return failed(name, f"{worst[1]} differs by {worst[0]:.1%}", remedy)
    return passed(name, f"by at most {worst[0]:.1%}")


def _configuration(entry: PublishedEntry) -> tuple[object, ...]:
    return (
        entry.model,
        entry.accelerator,
        entry.devices,
        entry.parallelism,
        entry.dtype,
        entry.quantize,
        entry.batch_size,
        entry.prompt_tokens,
        entry.new_tokens,
    )


def _spread(values: Sequence[float]) -> float | None:
    """None with fewer than two values."""
    if len(values) < 2:
        return None
    return (max(values) - min(values)) * len(values) / sum(values)
