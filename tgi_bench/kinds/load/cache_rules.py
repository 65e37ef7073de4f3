"""Whether prompts came from a cache that the experiment does not name."""

from __future__ import annotations

from tgi_bench.analysis.rules import Rule, Seen
from tgi_bench.kinds.load.figures import StageSummary
from tgi_bench.kinds.load.rows import LoadRow
from tgi_bench.load_observation import PromptTexts
from tgi_bench.trials.load import FileKind, Workload

MOST_CACHED = 0.01
"""Of the tokens of all prompts, above what they share as was asked."""
MOST_ALIKE = 0.01
"""Of the characters of all texts: of heads that others had before, or of repeated texts."""
MOST_REPEATED = 0.05
"""Of the texts: of a file with real questions a few short ones repeat."""
LEAST_CORRELATION = 0.2
QUIET_CONCURRENCY = 2.0
"""Up to so many in flight a first token waits for its own prompt more than for other requests."""
_SHARED_ON_PURPOSE = (FileKind.MOONCAKE, FileKind.SHAREGPT)


def _cached(row: LoadRow) -> Seen | None:
    """By what the server said; where it said nothing by TTFT, where prompts vary and few requests
    are in flight."""
    said = (*_by_usage(row.stage), *_by_counters(row.stage))
    if said:
        return max(said, key=lambda seen: seen.measure)
    if _shares_prefixes(row.load.trial.workload):
        return None
    correlation, in_flight = row.stage.prefix_suspicion, row.stage.concurrency
    if correlation is None or in_flight is None or in_flight > QUIET_CONCURRENCY:
        return None
    text = f"rank correlation of TTFT and prompt length {correlation:.2f}"
    return Seen(correlation < LEAST_CORRELATION, -correlation, text)


def _by_usage(stage: StageSummary) -> tuple[Seen, ...]:
    found = stage.cached
    if found is None or not found.told or not found.prompt_tokens:
        return ()
    beyond = found.beyond_tokens / found.prompt_tokens
    text = _text(stage, found.cached_tokens, found.prompt_tokens, "as answers say")
    return (Seen(beyond > MOST_CACHED, beyond, text),)


def _by_counters(stage: StageSummary) -> tuple[Seen, ...]:
    found = stage.stage.conditions.cache
    if found is None or not found.prompt_tokens:
        return ()
    shared = 0.0 if stage.cached is None else stage.cached.shared_share
    beyond = found.cached_tokens / found.prompt_tokens - shared
    text = _text(stage, found.cached_tokens, found.prompt_tokens, f"by {found.source}")
    return (Seen(beyond > MOST_CACHED, max(0.0, beyond), text),)


def cached_texts(stage: StageSummary) -> tuple[str, ...]:
    """What its server said, in answers and in /metrics: "1,761 of 2,692 prompt tokens ..."."""
    return tuple(seen.text for seen in (*_by_usage(stage), *_by_counters(stage)))


def _text(stage: StageSummary, cached: int, prompts: int, source: str) -> str:
    text = f"{cached:,} of {prompts:,} prompt tokens were cached ({cached / prompts:.1%}), {source}"
    if stage.cached is not None and cached:
        text += f"; up to {stage.cached.shared_share:.1%} may be shared"
    return text


def _texts(row: LoadRow) -> Seen | None:
    """As the client counted them: a server need not say that it has a cache."""
    found, workload = row.stage.stage.conditions.prompts, row.load.trial.workload
    if found is None or not found.sent:
        return None
    blocks = workload.file is not None and workload.file.kind is FileKind.MOONCAKE
    whole = max(
        found.repeated_characters / max(1, found.characters),
        found.repeated / found.sent * MOST_ALIKE / MOST_REPEATED,
    )
    heads = found.shared_characters / max(1, found.characters)
    undeclared = 0.0 if workload.repeats or blocks else whole
    if not (workload.repeats or _shares_prefixes(workload)):
        undeclared = max(undeclared, heads)
    text = texts_text(found)
    if undeclared <= MOST_ALIKE < max(whole, heads):
        text += ", as the workload says"
    return Seen(undeclared > MOST_ALIKE, max(whole, heads), text)


def texts_text(found: PromptTexts) -> str:
    """ "40 of 60 texts had been sent before; 3 more begin alike (12.5% of all characters)"."""
    text = f"{found.repeated:,} of {found.sent:,} texts had been sent before"
    if found.shared_heads:
        share = found.shared_characters / found.characters
        text += f"; {found.shared_heads:,} more begin as one before ({share:.1%} of all characters)"
    return text


def _shares_prefixes(workload: Workload) -> bool:
    by_file = workload.file is not None and workload.file.kind in _SHARED_ON_PURPOSE
    return workload.shared_prefix is not None or workload.turns is not None or by_file


CACHED = Rule(
    "prompts were not cached",
    _cached,
    "no server said what was cached, and prompts share heads, do not vary enough, or too many "
    "requests wait for each other, to tell it by TTFT",
    "turn off the server's prefix cache (TGI: PREFIX_CACHING=0; vLLM: --no-enable-prefix-caching; "
    "SGLang: --disable-radix-cache), leave load.workload.seed out, or say the common part in "
    "load.workload.shared_prefix, of a file in load.workload.repeats: true",
)
TEXTS = Rule(
    "texts were sent once",
    _texts,
    "no text was counted as it was sent",
    "give load.workload.file more texts than all loads of a server send, each with another head, "
    "or say that a cache may answer them, as it may in production: load.workload.repeats: true",
)
CACHE_RULES = (CACHED, TEXTS)
