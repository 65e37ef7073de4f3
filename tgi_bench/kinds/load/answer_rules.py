"""Whether answers are what was asked for, and came as they were made."""

from __future__ import annotations

from statistics import median

from tgi_bench.analysis.rules import Rule, Seen
from tgi_bench.kinds.load.figures import LoadRow, time_text
from tgi_bench.load_observation import ControlPair, TokenSource

LEAST_OF_ALONE = 0.5
"""Of the time that a token takes alone: under load none takes less but what was held back, and
came with others. Clocks that wake up, and speculation, make some 30 % of difference."""
MOST_LATER = 0.10
"""Of the time that the other tokens take: so much later than the whole of an answer of one token
may a first token come."""
MOST_LATER_OF_ONE = 0.50
"""The same where there was but one pair."""
LEAST_UNDER_LOAD = 0.75
"""Of what was seen alone: an answer, or a first token, that takes less under load says that the
control requests were disturbed."""
MOST_LATER_NS = MOST_EARLIER_NS = 4_000_000
"""What is less a busy machine makes."""
MOST_EARLIER = 0.5
"""Of the time to the token of an answer of one: a first token that comes so much earlier
is none."""


def alone_ns(pairs: tuple[ControlPair, ...]) -> float | None:
    """Of a token but the first, at least: from answers of one token to those of more; the fastest
    of each, which nothing disturbed. None where they do not differ."""
    if not pairs:
        return None
    took = min(pair.e2e_ns for pair in pairs) - min(pair.one_token_e2e_ns for pair in pairs)
    found = took / (max(pair.tokens for pair in pairs) - 1)
    return found if found > 0 else None


def later_ns(pairs: tuple[ControlPair, ...]) -> float:
    """How much later first tokens came than whole answers of one token: by their medians, and only
    where each did than every one of those; 0 where not."""
    if not pairs or min(p.first_ns for p in pairs) < max(p.one_token_e2e_ns for p in pairs):
        return 0.0
    return median(p.first_ns for p in pairs) - median(p.one_token_e2e_ns for p in pairs)


def earlier_ns(pairs: tuple[ControlPair, ...]) -> float:
    """How much earlier what was counted as a first token came than the token of an answer of one:
    by their medians, and only where each did than every one of those; 0 where not.

    Of one pair 0: what a server does once, as for a new length, comes before its first token.
    """
    if len(pairs) < 2 or max(p.first_ns for p in pairs) >= min(p.one_token_ns for p in pairs):
        return 0.0
    return median(p.one_token_ns for p in pairs) - median(p.first_ns for p in pairs)


def too_early(pairs: tuple[ControlPair, ...]) -> str:
    """What was seen of events that are counted as first tokens and are none; "" where nothing."""
    earlier = earlier_ns(pairs)
    if earlier <= MOST_EARLIER_NS:
        return ""
    one_ns = median(pair.one_token_ns for pair in pairs)
    if earlier <= MOST_EARLIER * one_ns:
        return ""
    return (
        "alone, what counts as the first of several tokens came after "
        f"{time_text(one_ns - earlier)}, the token of an answer of one after {time_text(one_ns)}"
    )


def _held(row: LoadRow) -> Seen | None:
    pairs, tpot = row.stage.stage.conditions.control, row.stage.tpot
    each_ns = alone_ns(pairs)
    if each_ns is None or not row.load.trial.stream or _disturbed(row, pairs):
        return None
    tokens, later = max(pair.tokens for pair in pairs), later_ns(pairs)
    limit = MOST_LATER if len(pairs) > 1 else MOST_LATER_OF_ONE
    share = later / (each_ns * (tokens - 1))
    if later > MOST_LATER_NS and share > limit:
        text = (
            f"alone, the first of {tokens} tokens came {time_text(later)} after the whole of an "
            f"answer of one, {share:.0%} of what the others take"
        )
        return Seen(True, 1 + share, text)
    text = f"a token alone takes {time_text(each_ns)}"
    if tpot is None:
        return Seen(False, 0.0, text)
    of_alone = tpot.p50.value / each_ns
    text += f", under load {time_text(tpot.p50.value)} (TPOT p50)"
    missed_ns = (each_ns - tpot.p50.value) * (tokens - 1)
    bad = of_alone < LEAST_OF_ALONE and missed_ns > MOST_LATER_NS
    return Seen(bad, 1 - of_alone, text)


def _disturbed(row: LoadRow, pairs: tuple[ControlPair, ...]) -> bool:
    """Whether the load's answers were faster than those of the control requests, which were alone
    and no longer."""
    e2e, ttft = row.stage.e2e, row.stage.service_ttft
    alone = (min(p.e2e_ns for p in pairs), min(p.first_ns for p in pairs))
    return any(
        found is not None and found.p50.value < LEAST_UNDER_LOAD * least
        for found, least in zip((e2e, ttft), alone, strict=True)
    )


HELD = Rule(
    "answers come as they are made",
    _held,
    "nothing was streamed, answers are too short, or requests before the load were not answered, "
    "or took longer than those of the load",
    "turn off response buffering in the proxy before the server, or name the server's own address "
    "in server.url: answers are held back, so that TTFT is too late and ITL too short",
)


MOST_EARLY = 0.05
MOST_WRONG = 0.01
CUT_PROMPTS = 0.75
"""Prompts of less than this share of the tokens asked were cut, not counted otherwise."""
MOST_UNTOLD = 0.01
MOST_COUNTED_WRONG = 0.01
_EACH_A_TOKEN = ("tgi", "vllm")
"""Engines of which each event is a token, so that a sum of tokens is a number of events."""


def _early(row: LoadRow) -> Seen | None:
    lengths = row.stage.lengths
    if not lengths.requests:
        return None
    share = lengths.early / lengths.requests
    return Seen(share > MOST_EARLY, share, f"{lengths.early} of {lengths.requests}")


def _outputs(row: LoadRow) -> Seen | None:
    lengths = row.stage.lengths
    if not lengths.requests:
        return None
    share = lengths.short_or_long / lengths.requests
    text = f"{lengths.short_or_long} of {lengths.requests} are longer or shorter for no reason said"
    events = TokenSource.EVENTS.value in row.stage.counted_by
    return Seen(share > MOST_WRONG, share, text, _COUNT_OUTPUTS if events else "")


def _prompts(row: LoadRow) -> Seen | None:
    lengths = row.stage.lengths
    if not lengths.prompts_said:
        return None
    share = lengths.wrong_prompts / lengths.prompts_said
    text = f"{lengths.wrong_prompts} of {lengths.prompts_said} have another"
    if lengths.prompts_off is not None:
        text += f", together {lengths.prompts_off:.0%} of the tokens asked"
    return Seen(share > MOST_WRONG, share, text, _prompts_remedy(row))


def _prompts_remedy(row: LoadRow) -> str:
    """What is much shorter was cut; else nobody counted words, or not as the server does."""
    off, counted = row.stage.lengths.prompts_off, row.stage.stage.conditions.words_by
    if off is not None and off < CUT_PROMPTS:
        return _CUT
    if row.load.trial.tokenizer is not None:
        return _NOT_ITS_TOKENIZER
    return _OTHER_TEMPLATE if counted else ""


def _first_told(row: LoadRow) -> Seen | None:
    lengths = row.stage.lengths
    if not row.load.trial.stream or not lengths.requests:
        return None
    if text := too_early(row.stage.stage.conditions.control):
        return Seen(True, 1.0, text, _NO_TOKEN)
    share = lengths.first_untold / lengths.requests
    text = f"{lengths.first_untold} of {lengths.requests} begin with what may be a token or none"
    return Seen(share > MOST_UNTOLD, share, text)


def _counts(row: LoadRow) -> Seen | None:
    """By a tokenizer; without one a sum that differs from the events is said, for it may be right:
    vLLM joins tokens to one event where it is busy."""
    lengths = row.stage.lengths
    if lengths.text_counted:
        share = lengths.text_differs / lengths.text_counted
        text = f"{lengths.text_differs} of {lengths.text_counted} have another number in their text"
        return Seen(share > MOST_COUNTED_WRONG, share, text)
    engine = row.stage.stage.conditions.engine
    if engine not in _EACH_A_TOKEN or not lengths.spread:
        return None
    share = lengths.spread / lengths.requests
    text = (
        f"{lengths.spread} of {lengths.requests} have more or fewer tokens than events, of which "
        f"{engine} sends one a token; the tokenizer in load.tokenizer would tell which is right"
    )
    return Seen(False, share, text)


def _model(row: LoadRow) -> Seen | None:
    """A server's own name or path for the model is fine, whatever was asked for."""
    said = row.stage.stage.conditions
    if not said.answered_by:
        return None
    named = sum(count for _, count in said.answered_by)
    strange = [(n, c) for n, c in said.answered_by if n not in (said.asked_model, *said.own_names)]
    wanted = said.asked_model or "the server's own"
    if strange:
        count = sum(count for _, count in strange)
        names = ", ".join(name for name, _ in strange)
        text = f"{count} of {named} answers name {names}, where {wanted} was asked for"
        return Seen(True, count / named, text, _OTHER_MODEL)
    if len(said.answered_by) > 1 or said.two_models:
        names = ", ".join(f"{name} ({count})" for name, count in said.answered_by)
        text = f"answers name {names}, {said.two_models} of them two"
        return Seen(True, 1 - said.answered_by[0][1] / named, text, _SEVERAL_MODELS)
    text = f"{named} answers name {said.answered_by[0][0]}"
    if said.in_place_of:
        text += f", the only model that the server lists, sent in the place of {said.in_place_of}"
    return Seen(False, 0.0, text)


_OTHER_MODEL = (
    "name the model in `model` (`tgi-bench load`: --model) as the server calls it, and see where "
    "it, or the proxy before it, sends requests for that name"
)
_SEVERAL_MODELS = (
    "name one server's own address in server.url, or make the proxy there send every request to "
    "one model: figures of several models are of none of them"
)
_NO_TOKEN = (
    "name the server's own address in server.url, or the engine in server.engine if it is another: "
    "an event without text before the first token, as of a proxy, is counted as that token"
)
_COUNT_OUTPUTS = (
    "let tokens be counted by the model's tokenizer in load.tokenizer: the server tells no count, "
    "and an event may have more tokens than one"
)
_CUT = (
    "keep load.workload.prompt_tokens within what the server takes (TGI: --max-input-tokens; "
    "llama.cpp: --ctx-size, shared by its slots): it cuts longer prompts"
)
_NOT_ITS_TOKENIZER = (
    "name the served model's own tokenizer in load.tokenizer, and use load.api: completions where "
    "its chat template joins words: the server counts other tokens"
)
_OTHER_TEMPLATE = (
    "use load.api: completions, to which no chat template adds tokens: the server counted the "
    "words itself, and sees another number in a prompt"
)

EARLY = Rule(
    f"at most {MOST_EARLY:.0%} of the answers ended early",
    _early,
    "no answer was as long as asked or shorter",
    "use a server and load.api that go on to the asked length (ignore_eos or min_tokens), or lower "
    "load.workload.output_tokens; E2E and throughput are of the tokens that came",
)
OUTPUTS = Rule(
    "outputs have the asked length",
    _outputs,
    "no answer came",
    "keep prompt and output together within the server's limit (max_total_tokens, --ctx-size, "
    "--max-model-len), and see in its log why it ended answers",
)
PROMPTS = Rule(
    "prompts of loads have the asked length",
    _prompts,
    "no server told how many tokens a prompt had",
    "name the model's tokenizer in load.tokenizer: nobody counted the words of the prompts",
)
FIRST_TOLD = Rule(
    "first tokens can be told",
    _first_told,
    "no streamed answer came",
    "name the engine in server.engine where its events without text are tokens (vllm, sglang), or "
    "have the server tell the tokens of each event (token ids, logprobs, continuous_usage_stats): "
    "TTFT is that of the first text until then",
)
COUNTS = Rule(
    "the server's count is that of the text that it sends",
    _counts,
    "no tokenizer in load.tokenizer counted the text beside it",
    "see what the server counts: a usage that is filled up to what was asked, tokens that are not "
    "sent, as hidden reasoning, or another model than the tokenizer's; rates and TPOT are of what "
    "it counts",
)
MODEL = Rule(
    "answers come from the model that was asked for",
    _model,
    "no answer names its model",
    _OTHER_MODEL,
)
LENGTH_RULES = (EARLY, OUTPUTS, PROMPTS)
ANSWER_RULES = (FIRST_TOLD, COUNTS, MODEL, HELD)
