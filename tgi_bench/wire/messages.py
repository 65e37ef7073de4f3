"""What a shard is told and answers, whatever the version of the wire protocol.

`codec` turns these into the bytes of generate.v1, v2 and v3 and back. A field that a
version lacks is dropped on the way out and is None (or its neutral value) on the way in.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Protocol(StrEnum):
    """The package of the gRPC service: v1 to 1.2.0, v2 from 1.3.0, v3 from 2.1.0."""

    V1 = "generate.v1"
    V2 = "generate.v2"
    V3 = "generate.v3"

    def method(self, rpc: str) -> str:
        """The HTTP/2 path of an RPC: "/generate.v3.TextGenerationService/Prefill"."""
        return f"/{self.value}.TextGenerationService/{rpc}"


class FinishReason(IntEnum):
    """Why a request ended; the numbers are the wire's."""

    LENGTH = 0
    EOS_TOKEN = 1
    STOP_SEQUENCE = 2


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """How the next token is chosen. The defaults are the neutral values: the wire's zeros
    are refused by a shard (temperature 0) or skew its output (repetition_penalty 0)."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0
    do_sample: bool = False
    seed: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    watermark: bool = False


@dataclass(frozen=True, slots=True)
class Stopping:
    """When a request ends: after max_new_tokens, or earlier."""

    max_new_tokens: int
    stop_sequences: tuple[str, ...] = ()
    ignore_eos_token: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a batch. truncate: prompt tokens kept, counted from the end."""

    id: int
    text: str
    truncate: int
    choice: TokenChoice
    stopping: Stopping
    prefill_logprobs: bool = False
    top_n_tokens: int = 0
    add_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to prefill. max_tokens: prompt and new tokens, summed over the requests."""

    id: int
    requests: tuple[Request, ...]
    max_tokens: int
    size: int
    """What the sender says; a shard fails where it is not len(requests)."""


@dataclass(frozen=True, slots=True)
class CachedBatch:
    """A batch that a shard holds between steps.

    current_tokens: tokens that the next step takes in, summed over the requests: one each
        once their prompts are prefilled; None before 2.4.0.
    """

    id: int
    request_ids: tuple[int, ...]
    size: int
    max_tokens: int
    current_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """One token. logprob: natural logarithm; NaN for the first prompt token."""

    id: int
    logprob: float
    text: str
    special: bool


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """The whole answer to one request, with its last token."""

    text: str
    generated_tokens: int
    finish_reason: FinishReason
    seed: int | None


@dataclass(frozen=True, slots=True)
class Generation:
    """One request's share of a step.

    tokens: new ones, one unless the server speculates (v1: always one). prefill_tokens:
    the prompt's, only where prefill_logprobs asked for them. top_tokens: for each new
    token, its alternatives.
    """

    request_id: int
    tokens: tuple[Token, ...]
    generated_text: GeneratedText | None = None
    prefill_tokens: tuple[Token, ...] = ()
    top_tokens: tuple[tuple[Token, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Durations:
    """A shard's own time for a step, in ns. concat_ns: joining batches; None where none were."""

    forward_ns: int
    decode_ns: int
    total_ns: int
    concat_ns: int | None = None


@dataclass(frozen=True, slots=True)
class StepReply:
    """The answer to Prefill or Decode.

    cached: what to decode next; None when every request of the batch has ended.
    durations: None before 1.3.3.
    """

    generations: tuple[Generation, ...]
    cached: CachedBatch | None
    durations: Durations | None


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """What a shard says of itself. None: the version does not say."""

    requires_padding: bool
    dtype: str
    device_type: str
    window_size: int | None = None
    speculate: int | None = None
    support_chunking: bool | None = None
    use_prefix_caching: bool | None = None
    attention_impl: str | None = None
    block_size: int | None = None


@dataclass(frozen=True, slots=True)
class Warmup:
    """The router's request for one prefill as large as will ever be sent."""

    batch: Batch
    max_input_tokens: int | None
    max_prefill_tokens: int
    max_total_tokens: int | None


@dataclass(frozen=True, slots=True)
class WarmupReply:
    """max_supported_total_tokens: room of the KV cache; None for padded models."""

    max_supported_total_tokens: int | None
    max_input_tokens: int | None = None
    max_total_tokens: int | None = None
