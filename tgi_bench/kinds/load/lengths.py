"""Tokens of a load's requests against those asked, and what TTFT says about prompt lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tgi_bench.analysis.bootstrap import Floats
from tgi_bench.kinds.load.figures import Lengths
from tgi_bench.kinds.load.metrics import ttft_ns
from tgi_bench.load_observation import RequestObservation, TokenSource

CACHED_SHARE = 0.1
"""Of a prompt: with less cached, as with a chat template's first words, it is not counted."""
MORE_SHARE, MORE_TOKENS = 0.05, 2
FEWER_SHARE, FEWER_TOKENS = 0.10, 4
"""How many tokens more, or fewer, than its text has a server may count: both together."""
LEAST_PROMPTS = 30
WIDE_RATIO = 4
WIDE_TOKENS = 500
"""Prompts vary widely where p90 is at least WIDE_RATIO times p10 and WIDE_TOKENS above it."""


def lengths(answered: Sequence[RequestObservation]) -> Lengths:
    """answered: measured requests that ended well."""
    said = [r for r in answered if r.prompt_tokens is not None]
    short = [
        r
        for r in answered
        if r.output_tokens_asked is not None and r.output_tokens != r.output_tokens_asked
    ]
    wrong = [
        (r.prompt_tokens or 0, r.prompt_tokens_asked)
        for r in said
        if r.prompt_tokens_asked is not None and r.prompt_tokens != r.prompt_tokens_asked
    ]
    asked = sum(tokens for _, tokens in wrong)
    early = sum(1 for r in short if _ended_early(r))
    return Lengths(
        requests=len(answered),
        prompts_said=len(said),
        wrong_prompts=len(wrong),
        early=early,
        short_or_long=len(short) - early,
        cached=sum(1 for r in answered if _cached(r)),
        prompt_tokens=sum(r.prompt_tokens or 0 for r in said),
        output_tokens=sum(r.output_tokens for r in answered),
        first_untold=sum(1 for r in answered if not r.first_told),
        text_counted=sum(1 for r in answered if _counted_beside(r)),
        text_differs=sum(1 for r in answered if _text_differs(r)),
        spread=sum(1 for r in answered if not r.tokens_told),
        prompts_off=sum(tokens for tokens, _ in wrong) / asked if asked else None,
    )


def _text_differs(seen: RequestObservation) -> bool:
    """Whether a server's count is another than that of its text, beyond what honest ones show.

    A tokenizer reads a model's own text back within one token, whatever its length, and a server
    counts the end of the sequence, which has no text. Text of random weights is read back as some
    tokens more than were drawn: measured with a bytewise tokenizer, and a character that was cut
    counted once, 1 of 2,000 answers of 8 to 512 tokens is beyond these limits.
    """
    text = seen.text_tokens
    if text is None or not _counted_beside(seen):
        return False
    more, fewer = seen.output_tokens - text, text - seen.output_tokens
    return more > MORE_SHARE * text + MORE_TOKENS or fewer > FEWER_SHARE * text + FEWER_TOKENS


def _counted_beside(seen: RequestObservation) -> bool:
    return seen.text_tokens is not None and seen.counted_by is not TokenSource.TOKENIZER


def _ended_early(seen: RequestObservation) -> bool:
    """Fewer tokens than asked, with a finish_reason that is another than length."""
    fewer = seen.output_tokens_asked is not None and seen.output_tokens < seen.output_tokens_asked
    return fewer and seen.finish_reason not in (None, "length")


def _cached(seen: RequestObservation) -> bool:
    if not seen.cached_tokens:
        return False
    return seen.prompt_tokens is None or seen.cached_tokens > CACHED_SHARE * seen.prompt_tokens


def prefix_suspicion(answered: Sequence[RequestObservation]) -> float | None:
    """Spearman's rank correlation of TTFT and prompt tokens, as said or else as asked.

    About 0 where prompts vary and the first token does not wait for them: they may be cached.
    None with fewer than LEAST_PROMPTS requests, and where prompts do not vary widely.
    """
    known = [
        (tokens, ttft)
        for seen in answered
        if (tokens := _prompt_tokens(seen)) is not None and (ttft := ttft_ns(seen)) is not None
    ]
    if len(known) < LEAST_PROMPTS:
        return None
    values = np.array(known, dtype=np.float64)
    low, high = np.percentile(values[:, 0], [10, 90], method="inverted_cdf")
    if high < WIDE_RATIO * low or high - low < WIDE_TOKENS:
        return None
    return spearman(values[:, 0], values[:, 1])


def _prompt_tokens(seen: RequestObservation) -> int | None:
    return seen.prompt_tokens_asked if seen.prompt_tokens is None else seen.prompt_tokens


def spearman(first: Floats, second: Floats) -> float | None:
    """Pearson's correlation of ranks, equal values having their mean rank; None without spread."""
    one, other = ranks(first), ranks(second)
    one, other = one - one.mean(), other - other.mean()
    scale = float(np.sqrt(np.sum(one**2) * np.sum(other**2)))
    return None if scale == 0 else float(np.sum(one * other)) / scale


def ranks(values: Floats) -> Floats:
    """From 1, in ascending order; equal values have their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    upto = np.cumsum(counts)
    mean_ranks: Floats = (upto - (counts - 1) / 2).astype(np.float64)
    return mean_ranks[places]
