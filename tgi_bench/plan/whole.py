"""What holds of any plan: how much it may ask for, and its digest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.plan.plan import BatchTrial
from tgi_bench.trials.direct import TaskTrial
from tgi_bench.trials.load import FileKind, LoadTrial

MOST_TRIALS = 100_000
"""Its own size would fill the client's memory before the first step."""
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


def require_trials_within(key: str, count: int) -> None:
    """Raise ExperimentError at `key` where so many trials are too many."""
    if count > MOST_TRIALS:
        message = f"gives {count} trials; at most {MOST_TRIALS} are taken"
        raise ExperimentError(Problem(key, message))


def digest_of(**measured: object) -> str:
    """SHA-256 (hex) of the canonical JSON of what a plan measures, which its overrides are not."""
    return sha256(json.dumps(measured, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def digested(trial: BatchTrial | LoadTrial | TaskTrial) -> dict[str, Any]:
    """Its fields, as they were before values of a union held their kind."""
    return asdict(trial, dict_factory=_untold)


def _untold(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if name != "kind" or isinstance(value, FileKind)}
