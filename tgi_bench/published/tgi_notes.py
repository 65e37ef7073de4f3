"""What is wrong or in doubt in an imported report of TGI's steps, as rows of its environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from tgi_bench.observation import Outcome, PublishedFigures
from tgi_bench.plan.plan import Plan
from tgi_bench.published.facts import Facts, known
from tgi_bench.published.tgi import PublishedReport
from tgi_bench.published.tgi_run import Imported, value_of

_FIRST_DIGITS = 8
"""Of a fingerprint, by which facts.yaml knows a report."""


def tgi_notes(report: PublishedReport, plan: Plan, found: Imported) -> Facts:
    """Rows of the run's environment: who wrote the tables, then what speaks against them."""
    words = {
        "rates": _rates(report, plan, found),
        "blanks": _blanks(found),
        "disordered": _disordered_rows(found),
        "passed_limits": _passed_limits(report, plan),
        **_lengths(report, plan),
        # A row of facts.yaml may be of this report alone.
        fingerprint(report)[:_FIRST_DIGITS]: "this report",
    }
    return known("tgi").facts(**{word: text for word, text in words.items() if text})


def fingerprint(report: PublishedReport) -> str:
    """SHA-256 (hex) of every latency of the report, which no other report has."""
    cells = [
        [b.num_shard, r.step, r.batch_size, *r.cells] for b in report.blocks for r in b.latency
    ]
    return sha256(json.dumps(cells).encode()).hexdigest()


def _rates(report: PublishedReport, plan: Plan, found: Imported) -> str:
    """How many prefill rates were multiplied by the sequence length; "" for none, as below."""
    lengths = {trial.trial_id: trial.sequence_length for trial in plan.trials}
    printed = {
        rate.cells[0]
        for block in report.blocks
        for rate in block.throughput
        if rate.step == "Prefill"
    }
    count = sum(
        figures.mean_tokens_per_s not in printed
        for trial_id, (_, rows) in found.items()
        if lengths[trial_id] > 1
        for figures in rows
        if figures.step == "prefill" and figures.mean_tokens_per_s is not None
    )
    return str(count or "")


def _blanks(found: Imported) -> str:
    return str(sum(end.outcome is Outcome.OUT_OF_MEMORY for end, _ in found.values()) or "")


def _disordered_rows(found: Imported) -> str:
    rows = [row for _, figures in found.values() for row in figures]
    given = [row for row in rows if row.p50_ns is not None]
    count = sum(_disordered(row) for row in given)
    return f"{count} of {len(given)}" if count else ""


def _disordered(row: PublishedFigures) -> bool:
    return row.p50_ns is not None and row.p90_ns is not None and row.p90_ns < row.p50_ns


def _lengths(report: PublishedReport, plan: Plan) -> dict[str, str]:
    """Sequence lengths of the parameter table, and those of tables that are not among them."""
    said = dict(report.parameters).get("Sequence Length", "")
    known_ones = said.split(", ")
    others = sorted(
        {t.sequence_length for t in plan.trials if str(t.sequence_length) not in known_ones}
    )
    return {
        "said_lengths": said,
        "other_lengths": ", ".join(map(str, others)) if said else "",
    }


def _passed_limits(report: PublishedReport, plan: Plan) -> str:
    """Limits that the router keeps and that batches to the shards pass by."""
    arguments = dict(report.arguments)
    most_input, most_batch = (
        _whole(arguments, name) for name in ("max_input_length", "max_batch_total_tokens")
    )
    longest = max(t.sequence_length for t in plan.trials)
    largest = max(t.batch_size * (t.sequence_length + t.decode_length) for t in plan.trials)
    passed = []
    if most_input is not None and longest > most_input:
        passed.append(f"max_input_length {most_input} by prompts of {longest} tokens")
    if most_batch is not None and largest > most_batch:
        passed.append(f"max_batch_total_tokens {most_batch} by batches of {largest} tokens")
    return " and ".join(passed)


def _whole(arguments: Mapping[str, str], name: str) -> int | None:
    value = value_of(arguments.get(name, "None"))
    return value if isinstance(value, int) and not isinstance(value, bool) else None
