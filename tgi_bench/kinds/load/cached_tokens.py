"""How much of the prompts came from a server's cache, against what they share as was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tgi_bench.kinds.load.figures import CachedTokens
from tgi_bench.load_observation import RequestObservation, StageConditions
from tgi_bench.trials.load import FileKind, Workload

HEAD_SHARE = 0.1
"""Of a prompt: what a template may put before it, where nobody counted that."""

_Place = tuple[int, int]


def cached_tokens(
    workload: Workload, conditions: StageConditions, answered: Sequence[RequestObservation]
) -> CachedTokens:
    """answered: measured requests that ended well."""
    told = prompts = cached = beyond = 0
    asked = shared = 0.0
    ends = {(r.conversation, r.turn): _end(r) for r in answered}
    for seen in answered:
        size = _size(seen)
        allowed = min(size, _shared(seen, workload, conditions, ends))
        asked, shared = asked + size, shared + allowed
        if seen.cached_tokens is not None:
            told += 1
            prompts += max(size, seen.cached_tokens)
            cached += seen.cached_tokens
            beyond += max(0, seen.cached_tokens - round(allowed))
    return CachedTokens(told, prompts, cached, beyond, shared / asked if asked else 0.0)


def _size(seen: RequestObservation) -> int:
    said = seen.prompt_tokens_asked if seen.prompt_tokens is None else seen.prompt_tokens
    return said or 0


def _end(seen: RequestObservation) -> int:
    """Tokens that the next turn of its conversation begins with."""
    return _size(seen) + seen.output_tokens


def _shared(
    seen: RequestObservation,
    workload: Workload,
    conditions: StageConditions,
    ends: Mapping[_Place, int],
) -> float:
    """Of one prompt, the tokens that an honest server may have seen before."""
    size = _size(seen)
    kind = None if workload.file is None else workload.file.kind
    if workload.repeats or kind is FileKind.MOONCAKE:
        return size
    head: float = conditions.added_tokens + 1  # a BOS that nobody counts, as llama.cpp's
    if not conditions.words_by:
        head = max(head, HEAD_SHARE * size)
    if seen.turn:
        return head + ends.get((seen.conversation, seen.turn - 1), size)
    if workload.shared_prefix is not None:
        head += workload.shared_prefix.tokens
    if kind is FileKind.SHAREGPT and (texts := conditions.prompts) is not None and texts.sent:
        head += size * texts.shared_characters / max(1, texts.characters)
    return head
