"""What is known of TorchCAP's tables beyond their figures, as rows of a run's environment."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.run import CORRECTED, DOUBTFUL, LAYOUT, TableLayout
from tgi_bench.observation import PublishedEntry, PublishedMetric
from tgi_bench.published.torchcap_slips import Slips

Facts = tuple[tuple[str, str], ...]


def facts(slips: Slips, entries: Sequence[PublishedEntry]) -> Facts:
    """Every slip that was found, then what is in doubt."""
    writer = "TorchCAP's tables, laid out by tgi-bench" if slips.own else "TorchCAP, by hand"
    batch_size, prompt_tokens = entries[0].batch_size, entries[0].prompt_tokens
    workload = (
        f"one forward pass over {batch_size} x {prompt_tokens} random tokens in float16, language "
        "model head and cross-entropy loss included, no KV cache, no warm-up, one run"
    )
    found: list[tuple[str, str]] = [
        (LAYOUT, TableLayout.TORCHCAP.value),
        ("Tables written by", writer),
        ("Workload", workload),
    ]
    return (*found, *_corrections(slips), *_doubts(slips, entries))


def _corrections(slips: Slips) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if slips.swapped:
        found.append(
            (
                "headers",
                "Estimated and Measured were swapped: Error is relative to the column headed "
                "Measured, and the tool divides by its estimate; the authors mended it later",
            )
        )
    if slips.renamed:
        found.append(("model names", "AlCrossSim, with a small L, is AICrossSim"))
    if slips.gigabytes:
        found.append(("memory", "printed as GB, in GiB of 2^30 bytes: max_memory_allocated / 2^30"))
    if slips.time_per_token:
        found.append(
            (
                "throughput",
                "printed as tokens per second, in microseconds per token: here tokens / runtime",
            )
        )
    if slips.one_device_energy:
        found.append(
            ("energy", "rows of several devices had the power of one: here of all that are stated")
        )
    if slips.wrong_power:
        rows = ", ".join(dict.fromkeys(slips.wrong_power))
        found.append(("power", f"computed with another accelerator's rated power: {rows}"))
    if slips.mistyped:
        rows = ", ".join(slips.mistyped)
        found.append(("mistyped figures", f"as Error and an equal row have them: {rows}"))
    if not slips.own:
        found.append(
            (
                "error",
                "was relative to the estimate; here (estimated - measured) / measured",
            )
        )
    return [(CORRECTED + name, text) for name, text in found]


def _doubts(slips: Slips, entries: Sequence[PublishedEntry]) -> list[tuple[str, str]]:
    metrics = {value.metric for entry in entries for value in entry.values}
    found = [
        (
            "runtime",
            "the sum of kernels' times by torch.profiler, not the time that a user waits",
        ),
        (
            "estimates",
            "the tool's coefficients were set on the days of the table: its errors are in sample; "
            "its memory model of the RTX A5000 implies 1.37 TB/s, of a card with 0.768 TB/s",
        ),
    ]
    if PublishedMetric.ENERGY_J_PER_TOKEN in metrics:
        found.append(
            ("energy", "no energy was measured: rated power x time, so its error is runtime's")
        )
    if slips.contradicted:
        rows = ", ".join(slips.contradicted)
        found.append(("contradictions", f"Error is not that of its two figures: {rows}"))
    if slips.size_not_said:
        found.append(("input size", "not in the page; taken from the tool's script"))
    if any(entry.devices > 1 and entry.values for entry in entries):
        found.append(
            (
                "several devices",
                "MLPs alone are tensor-parallel and logits are returned, so memory grows; "
                "facebook/opt rows were measured before a change of the parallel code "
                "(2025-04-12), AICrossSim rows after it",
            )
        )
    return [(DOUBTFUL + name, text) for name, text in found]


def doubts(model: str, devices: int) -> tuple[str, ...]:
    """Of one row: whether its stated degree is the one it ran with."""
    if devices <= 2 or not model.startswith("AICrossSim/"):
        return ()
    return (
        f"{devices} devices are stated, but its memory and time fit 2: the memory saved is half of "
        "the MLPs, and the tool's script names two devices",
    )
