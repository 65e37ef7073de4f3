"""How a request's tokens are chosen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; None is "not given" and sent as the neutral value."""

    do_sample: bool
    temperature: float | None
    top_k: int | None
    top_p: float | None
    typical_p: float | None
    repetition_penalty: float | None
    watermark: bool
