"""One request of a workload, before a dialect makes bytes of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """What one request asks.

    conversation, turn: 0-based; requests of one conversation follow each other, each waiting
        think_ns after the answer before (0 for turn 0).
    text: the new prompt, or the new user message of a conversation: at least prompt_tokens words,
        so that a server that truncates to prompt_tokens sees that many; a file's own text as it is.
    parts: of how many of the text's words, and tokens, each part of it is that other requests may
        share: a shared head and the rest, blocks of a trace; () where it is of one piece.
    messages: a file's own (role, text) list instead of text; () where there is none.
    prompt_tokens: None where a file's text is sent as it is.
    at_ns: its time in a trace, from the first one's; None elsewhere.
    """

    conversation: int
    turn: int
    text: str
    messages: tuple[tuple[str, str], ...]
    prompt_tokens: int | None
    output_tokens: int
    think_ns: int
    at_ns: int | None
    parts: tuple[int, ...] = ()
