"""What no plan may ask for: it would fill the client's memory before the first step."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.errors import ExperimentError, Problem

MOST_TRIALS = 100_000
MOST_BATCH_TOKENS = 2**26
"""Prompt tokens of one batch, whose texts take some hundred MB."""


def require_batch_within(key: str, batch_sizes: Sequence[int], lengths: Sequence[int]) -> None:
    """Raise ExperimentError at `key` where the largest batch has too many prompt tokens."""
    tokens = max(batch_sizes, default=0) * max(lengths, default=0)
    if tokens > MOST_BATCH_TOKENS:
        message = (
            f"asks for {tokens} prompt tokens in one batch, batch size x prompt length; "
            f"at most {MOST_BATCH_TOKENS} are taken"
        )
        raise ExperimentError(Problem(key, message))
