"""What a rank holds between steps: batches of sequences, and their sizes in tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from tgi_bench.wire.messages import FinishReason, GeneratedText, Request

BLOCK_TOKENS = 16
"""Tokens of one block of the flash class's KV pool (paged attention)."""


@dataclass(slots=True)
class Sequence:
    """One request that is being answered.

    prompt_tokens: after truncation. key: what its tokens depend on (`choice.request_key`).
    finish_reason: None while it goes on.
    """

    request: Request
    prompt_tokens: int
    key: int
    generated_tokens: int = 0
    finish_reason: FinishReason | None = None
    _texts: list[str] = field(default_factory=list)

    @property
    def context_tokens(self) -> int:
        """Tokens that the next decode step attends to: prompt and generated ones."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def blocks(self) -> int:
        """KV blocks reserved from prefill on: the last new token is never cached."""
        most = self.prompt_tokens + max(1, self.request.stopping.max_new_tokens) - 1
        return -(-most // BLOCK_TOKENS)

    def append(self, text: str) -> None:
        """Take the next token; length ends a request before a stop sequence does."""
        self._texts.append(text)
        self.generated_tokens += 1
        stopping = self.request.stopping
        if self.generated_tokens >= stopping.max_new_tokens:
            self.finish_reason = FinishReason.LENGTH
        elif stopping.stop_sequences and "".join(self._texts).endswith(stopping.stop_sequences):
            self.finish_reason = FinishReason.STOP_SEQUENCE

    def generated_text(self) -> GeneratedText | None:
        """The whole answer; None while the request goes on."""
        if self.finish_reason is None:
            return None
        sampling = self.request.choice
        return GeneratedText(
            text="".join(self._texts),
            generated_tokens=self.generated_tokens,
            finish_reason=self.finish_reason,
            seed=sampling.seed if sampling.do_sample else None,
        )


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """Sequences that are decoded together, in the order of their replies. Never empty.

    padded_room: tokens set aside where its class pads (`padded_room`).
    """

    id: int
    sequences: tuple[Sequence, ...]
    padded_room: int

    @property
    def contexts(self) -> tuple[int, ...]:
        """Tokens that the next decode step attends to, for each sequence."""
        return tuple(sequence.context_tokens for sequence in self.sequences)

    @property
    def left(self) -> tuple[int, ...]:
        """New tokens that are still to come, for each sequence; below 0 for one that has ended
        and was not filtered out."""
        return tuple(s.request.stopping.max_new_tokens - s.generated_tokens for s in self.sequences)

    @property
    def blocks(self) -> int:
        """KV blocks of the flash class."""
        return sum(sequence.blocks for sequence in self.sequences)

    @property
    def current_tokens(self) -> int:
        """Tokens that the next decode step takes in: the newest of each sequence."""
        return len(self.sequences)

    def max_tokens(self, padded: bool) -> int:
        """Room set aside; of a flash class its blocks."""
        return self.padded_room if padded else self.blocks * BLOCK_TOKENS
