"""What the engines behind OpenAI's API do otherwise than it says, and than each other: a table.

What they do was seen on real ones, see tests/transcripts: TGI and vLLM send an event for a token
whatever its text, as for a character cut in the middle, and so does SGLang, whose last event is
none; llama.cpp and transformers hold such tokens back until there is text; proxies send events of
their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TOKENIZE_PATH = "/tokenize"
"""Of all engines that count a text's tokens."""


@dataclass(frozen=True, slots=True)
class Ways:
    """One engine.

    model: the name that requests must have; "": one of those that it lists.
    sampling: the body's names of sampling keys beyond temperature and top_p; sampling_of: the
        same in one dialect alone, by its name.
    refuses_top_p_1: it takes no top_p of 1, which stands for none.
    counts_each: the body's key that makes each event say how many tokens there were until then:
        "continuous_usage_stats" (in stream_options), "timings_per_token"; None where it has none.
    truncates: it may cut a prompt to an asked number of tokens. takes_ignore_eos: False where it
        takes no such key and ignores it without a word.
    event_each_token: each event carries at least one token, with or without text. reason_apart: of
        such: why it ended is said in an event of its own.
    counted_by_events: where it says no count, its events are the server's own, a token each.
    role_in_each: each event names the role. ends_unnamed: "" is its finish_reason of a whole
        answer (completions of TGI to 2.x).
    tokenizes: keys of the body of TOKENIZE_PATH, beside `model`: of the text, and those that make
        the tokens count that are added to prompts.
    """

    model: str = ""
    sampling: Mapping[str, str] = field(default_factory=dict)
    sampling_of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    refuses_top_p_1: bool = False
    counts_each: str | None = "continuous_usage_stats"
    truncates: bool = False
    takes_ignore_eos: bool = True
    event_each_token: bool = False
    counted_by_events: bool = False
    reason_apart: bool = False
    role_in_each: bool = False
    ends_unnamed: bool = False
    tokenizes: tuple[str, ...] = ("inputs", "model", "prompt", "content", "add_special")


_ANY = Ways()
_WAYS = {
    "": Ways(truncates=True),
    "tgi": Ways(
        model="tgi",
        sampling_of={"completions": {"repetition_penalty": "repetition_penalty"}},
        refuses_top_p_1=True,
        counts_each=None,
        takes_ignore_eos=False,
        event_each_token=True,
        counted_by_events=True,
        role_in_each=True,
        ends_unnamed=True,
        tokenizes=("inputs",),
    ),
    "vllm": Ways(
        sampling={"top_k": "top_k", "repetition_penalty": "repetition_penalty"},
        truncates=True,
        event_each_token=True,
        tokenizes=("model", "prompt"),
    ),
    "sglang": Ways(
        sampling={"top_k": "top_k", "repetition_penalty": "repetition_penalty"},
        event_each_token=True,
        reason_apart=True,
        tokenizes=("model", "prompt"),
    ),
    "llamacpp": Ways(
        sampling={
            "top_k": "top_k",
            "typical_p": "typical_p",
            "repetition_penalty": "repeat_penalty",
        },
        counts_each="timings_per_token",
        tokenizes=("content", "add_special"),
    ),
}


def ways_of(engine: str) -> Ways:
    """engine: as Abilities has it; of one that is not in the table, what OpenAI's API says."""
    return _WAYS.get(engine, _ANY)
