"""Whether a window is one state of the server, and its prompts came from no unnamed cache."""

from __future__ import annotations

from tgi_bench.analysis.rules import Rule, Seen
from tgi_bench.kinds.load.figures import LoadRow, Part, StageSummary, time_text
from tgi_bench.kinds.load.metrics import closed_loop, constant_rate
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


MOST_SHIFT = 0.10
MOST_SHIFT_OF_MIDDLE = 0.25
"""A third that is so much slower makes a tenth of the whole, as a half above MOST_SHIFT does; the
ends of a closed loop, where fewer are in flight, are faster than its middle by some percent."""
MOST_DEVIATIONS = 3.5
"""Of the rank sum: chance is beyond in 1 of 2,000."""
MOST_DEVIATIONS_OPEN = 5.0
"""The same of an open loop, where requests that come in a burst are slow together."""
MOST_TOKENS_WIDTH = 0.05
LEAST_ANSWERS_LONG = 20
"""Median E2E that a window lasts at least for its tokens/s to be judged: ten blocks of two."""
MOST_HELD_UP = 0.01
"""Of the requests: with more, their p99 is of those that a standstill held up."""
_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def _same_load(row: LoadRow) -> bool:
    """Whether one concurrency or rate was asked for all the time."""
    return closed_loop(row.load.trial) or constant_rate(row.load.trial)


def _shift(row: LoadRow, part: Part) -> Seen | None:
    """The metric that is the furthest off; bad where that is more than chance makes of it."""
    if not _same_load(row):
        return None
    most = MOST_SHIFT if part is Part.SECOND_HALF else MOST_SHIFT_OF_MIDDLE
    chance = MOST_DEVIATIONS if closed_loop(row.load.trial) else MOST_DEVIATIONS_OPEN
    found = [
        Seen(
            abs(shift.share) > most and abs(shift.deviations) > chance,
            abs(shift.share),
            f"median {_NAMES[shift.metric]} {shift.share:+.1%} in the {part}, "
            f"{abs(shift.deviations):.1f} deviations of its rank sum",
        )
        for shift in row.stage.steadiness.shifts
        if shift.part is part
    ]
    return max(found, key=lambda seen: (seen.bad, seen.measure), default=None)


def _begin(row: LoadRow) -> Seen | None:
    """A median is beyond the p90 of others by chance in less than 1 of 100: of five requests three
    would have to be."""
    begin = row.stage.steadiness.begin
    if begin is None or begin.later_ns <= 0 or not _same_load(row):
        return None
    text = (
        f"median TTFT {time_text(begin.first_ns)} in the first tenth, p90 "
        f"{time_text(begin.later_ns)} in the second half"
    )
    slow = begin.first_ns > (1 + MOST_SHIFT) * begin.later_ns
    return Seen(slow, begin.first_ns / begin.later_ns, text)


def _tokens(row: LoadRow) -> Seen | None:
    """Not of an open loop, whose tokens/s is what its schedule asks for, nor where users think."""
    trial, stage = row.load.trial, row.stage
    turns = trial.workload.turns
    if not closed_loop(trial) or (turns is not None and turns.think_ns > 0):
        return None
    rate, unit, e2e = stage.output_tokens_per_s, "tokens", stage.e2e
    if stage.event_gap is None:
        # All tokens of an answer arrive at once: whole rounds fall into one block or another.
        rate, unit = stage.requests_per_s, "answers"
    width = None if rate is None else rate.half_width
    span_ns = stage.window.end_ns - stage.window.begin_ns
    if rate is None or width is None or e2e is None:
        return None
    if span_ns < LEAST_ANSWERS_LONG * e2e.p50.value:
        return None
    text = f"{rate.value:.4g} {unit}/s within {width:.1%}"
    return Seen(width > MOST_TOKENS_WIDTH, width, text)


def _silences(row: LoadRow) -> Seen | None:
    found = row.stage.steadiness.silences
    if found is None or not row.stage.requests:
        return None
    if not found.count:
        return Seen(False, 0.0, f"no silence above {time_text(found.limit_ns)}")
    share = found.held / row.stage.requests
    times = "once" if found.count == 1 else f"{found.count} times"
    text = (
        f"{times} no request in flight got a token, for at most {time_text(found.longest_ns)}: "
        f"that held up {share:.1%} of {row.stage.requests} requests"
    )
    return Seen(share > MOST_HELD_UP, share, text)


HALVES: Rule[LoadRow] = Rule(
    "the halves of a load agree",
    lambda row: _shift(row, Part.SECOND_HALF),
    "no load at one concurrency or rate has enough requests in both halves",
    "raise load.warmup, and load.duration where it is short against E2E, with a load.cooldown "
    "above the longest; where latencies grow all the time the server does not keep up: lower "
    "load.rate",
)
MIDDLE: Rule[LoadRow] = Rule(
    "the middle of a load is like its ends",
    lambda row: _shift(row, Part.MIDDLE),
    "no load at one concurrency or rate has enough requests in the middle and outside it",
    "see what else the server's machine did meanwhile (its log, its clocks and temperature, other "
    "programs), then measure again",
)
BEGIN = Rule(
    "the first requests are as fast as later ones",
    _begin,
    "no load at one concurrency or rate has enough first requests",
    "raise load.warmup: the first requests waited for what a server does once, or for each other",
)
TOKENS = Rule(
    f"output tokens/s of closed loops is known within {MOST_TOKENS_WIDTH:.0%}",
    _tokens,
    f"no closed loop without think time lasted {LEAST_ANSWERS_LONG} times its median E2E",
    "see whether the server was slower for a time, and why (its log, its machine); where lengths "
    "differ widely raise load.duration",
)
SILENCES = Rule(
    "the server did not stand still",
    _silences,
    "no answer came in several events",
    "see what stopped the server then (its log, its machine's memory and disk, its network), and "
    "measure again",
)
STEADY = (BEGIN, HALVES, MIDDLE, TOKENS, SILENCES)
