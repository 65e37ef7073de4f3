"""What is wrong or in doubt in an imported report of TGI's steps, as rows of its environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from tgi_bench.analysis.run import CORRECTED, DOUBTFUL
from tgi_bench.observation import Outcome, PublishedFigures
from tgi_bench.plan.plan import Plan
from tgi_bench.published.tgi import PublishedReport
from tgi_bench.published.tgi_run import Imported, value_of

Rows = tuple[tuple[str, str], ...]

_KNOWN = "d4024aa8"
"""First digits of `fingerprint` of the report on bigscience/bloomz-7b1-mt of June 2023."""

_OF_THE_KNOWN = (
    (
        CORRECTED + "headings",
        "`Argumetns` is Arguments; `--num-shard 1` in the first line is the first of 1, 2, 4 and 8",
    ),
    (
        DOUBTFUL + "accelerator",
        "not stated; 8 x A100-SXM4-40GB fits the throughput, the scaling and which batches ran "
        "out of memory (inferred)",
    ),
    (
        DOUBTFUL + "num_shard 1",
        "ran another code path than the others: transformers' model, on all visible devices by "
        "device_map; its ratio to num_shard 2 is no parallel speed-up",
    ),
    (
        DOUBTFUL + "num_shard 8, batch size 16",
        "its prefill takes 3.3 times that of batch size 8: memory was short (inferred)",
    ),
    (
        DOUBTFUL + "prefill",
        "a Prefill call includes logits and text of every prompt token, as TGI then did by default",
    ),
    (
        DOUBTFUL + "context",
        "8 new tokens: decode steps are known at 1025 to 1031 tokens of context only",
    ),
)


def tgi_notes(report: PublishedReport, plan: Plan, found: Imported) -> Rows:
    """Rows for a report that text-generation-benchmark wrote; () for one of tgi-bench."""
    if report.own_definitions or report.engine is not None:
        return ()
    rows = (
        *_rates(report, plan, found),
        *_blanks(found),
        *_percentiles(found),
        *_headings(report, plan),
        *_limits(report, plan),
    )
    known = _OF_THE_KNOWN if fingerprint(report).startswith(_KNOWN) else ()
    return (*rows, *known)


def fingerprint(report: PublishedReport) -> str:
    """SHA-256 (hex) of every latency of the report, which no other report has."""
    cells = [
        [b.num_shard, r.step, r.batch_size, *r.cells] for b in report.blocks for r in b.latency
    ]
    return sha256(json.dumps(cells).encode()).hexdigest()


def _rates(report: PublishedReport, plan: Plan, found: Imported) -> Rows:
    """Prefill rates that were multiplied by the sequence length."""
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
    if not count:
        return ()
    text = (
        f"{count} rates were printed as tokens/secs and are sequences per second: here multiplied "
        "by the sequence length"
    )
    return ((CORRECTED + "prefill throughput", text),)


def _blanks(found: Imported) -> Rows:
    ends = [end for end, _ in found.values()]
    count = sum(end.outcome is Outcome.OUT_OF_MEMORY for end in ends)
    if not count:
        return ()
    text = (
        f"{count} trials have NaN, which the tool prints for no runs, or a blank below one, which "
        "repeats the cell above: read as out of memory (inferred)"
    )
    return ((DOUBTFUL + "out of memory", text),)


def _percentiles(found: Imported) -> Rows:
    rows = [row for _, figures in found.values() for row in figures]
    given = [row for row in rows if row.p50_ns is not None]
    if not given or not any(_disordered(row) for row in given):
        return ()
    count = sum(_disordered(row) for row in given)
    text = f"{count} of {len(given)} rows have p90 below p50: the tool indexes an unsorted vector"
    return ((DOUBTFUL + "percentiles", text),)


def _disordered(row: PublishedFigures) -> bool:
    return row.p50_ns is not None and row.p90_ns is not None and row.p90_ns < row.p50_ns


def _headings(report: PublishedReport, plan: Plan) -> Rows:
    """Tables of another sequence length than the parameter table's."""
    said = dict(report.parameters).get("Sequence Length", "")
    known = said.split(", ")
    others = sorted({t.sequence_length for t in plan.trials if str(t.sequence_length) not in known})
    if not said or not others:
        return ()
    text = (
        f"the parameter table says {said}; tables of {', '.join(map(str, others))} have it from "
        "their own heading"
    )
    return ((CORRECTED + "sequence length", text),)


def _limits(report: PublishedReport, plan: Plan) -> Rows:
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
    if not passed:
        return ()
    text = f"{' and '.join(passed)}: batches went to the shards, past the router that keeps them"
    return ((DOUBTFUL + "limits", f"exceeded: {text}"),)


def _whole(arguments: Mapping[str, str], name: str) -> int | None:
    value = value_of(arguments.get(name, "None"))
    return value if isinstance(value, int) and not isinstance(value, bool) else None
