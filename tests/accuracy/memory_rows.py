"""Which batch runs out of memory: every cell of the bigcode and the TGI table, by one rule.

The rule is memory.prefill_memory against what a process can allocate; no figure of it is fitted by
code, and TRANSIENT_UTILISATION was chosen after seeing the TGI table.
"""

from __future__ import annotations

from tests.accuracy.row import Row
from tests.accuracy.tables import SPLIT_DEVICES_OF_NUM_SHARD_1, TGI_DECODE_LENGTH, bigcode, tgi
from tgi_bench.estimate.memory import fits, prefill_memory
from tgi_bench.estimate.setup import Setup


def _fits(setup: Setup, batch_size: int, prompt_tokens: int, new_tokens: int) -> bool:
    return fits(setup, prefill_memory(setup, batch_size, prompt_tokens, new_tokens))


def _row(table: str, told: list[bool], best_known: str, reading: str) -> Row:
    right = sum(told)
    return Row(
        table=table,
        figure="which batch runs out of memory",
        split="cells told wrong, percent",
        points=len(told),
        best_known=best_known,
        goal=0,
        uncalibrated=None,
        ours=100 * (1 - right / len(told)),
        why=(
            f"{right} of {len(told)} cells told right. Nothing is held out: of the rule's figures "
            f"TRANSIENT_UTILISATION was chosen after seeing the TGI table.{reading}"
        ),
    )


def rows() -> list[Row]:
    generates = [
        _fits(row.setup, row.batch_size, row.sizes.prompt_tokens, row.sizes.new_tokens)
        == (row.tokens_per_s is not None)
        for row in bigcode()
    ]
    steps = [
        _fits(row.setup, row.batch_size, row.prompt_tokens, TGI_DECODE_LENGTH)
        == (row.prefill_s is not None)
        for row in tgi()
    ]
    reading = (
        " num_shard 1 is read as layers held in turn by "
        f"{SPLIT_DEVICES_OF_NUM_SHARD_1} devices (inferred)."
    )
    return [
        _row("bigcode", generates, "0 (44 of 44, in sample)", ""),
        _row("TGI", steps, "-", reading),
    ]
