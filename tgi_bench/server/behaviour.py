"""What differs between versions of text-generation-inference, as far as a client can see.

Each behaviour names the first version that shows it, or that shows it no more. Source: the public
repository huggingface/text-generation-inference, read at its tags.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tgi_bench.estimate.calibration import KV_POOL_SINCE, PROMPT_LOGPROBS_UNTIL
from tgi_bench.server.config import Version
from tgi_bench.wire.messages import Protocol


class OnRuntimeError(Enum):
    """What a shard does when a step raises RuntimeError, of which out of memory is one."""

    SURVIVE = "the caller gets INTERNAL with the message; the shard goes on"
    EXIT_UNANSWERED = "the shard exits at once; the caller gets CANCELLED or UNAVAILABLE"
    EXIT_ANSWERED = "the caller gets INTERNAL with the message; the shard exits within 0.5 s"


@dataclass(frozen=True, slots=True)
class _Since:
    """True from this version on."""

    first: tuple[int, ...]

    def __get__(self, at: Behaviour, _: type[Behaviour]) -> bool:
        return at.version >= self.first


@dataclass(frozen=True, slots=True)
class _Before:
    """True up to this version, which is not of them."""

    first: tuple[int, ...]

    def __get__(self, at: Behaviour, _: type[Behaviour]) -> bool:
        return at.version < self.first


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviours of one version."""

    version: Version

    sends_durations = _Since((1, 3, 3))
    """forward_ns, decode_ns and total_ns in step replies."""

    sends_current_tokens = _Since((2, 4, 0))
    """CachedBatch.current_tokens."""

    flash_shares_by_id = _Since((2, 4, 0))
    """A flash rank answers for the request ids that are its own modulo the ranks. Before, as
    in all padded classes, it is their place in the batch."""

    warms_up = _Since((0, 9, 0))
    """The Warmup RPC."""

    pretty_args_line = _Since((2, 0, 2))
    """The `Args {` log line on many lines instead of one."""

    stream_index = _Since((1, 4, 0))
    """`index` in the events of /generate_stream."""

    input_length_in_details = _Since((2, 3, 0))
    """`input_length` in the details of a stream's last event."""

    token_count_headers = _Since((1, 4, 0))
    """x-prompt-tokens and x-generated-tokens on /generate."""

    tokenize_route = _Since((1, 4, 0))
    """POST /tokenize."""

    chat_route = _Since((1, 4, 0))
    """POST /v1/chat/completions."""

    completions_route = _Since((1, 4, 5))
    """POST /v1/completions."""

    models_route = _Since((2, 3, 0))
    """GET /v1/models."""

    openai_says_stop = _Since((2, 3, 0))
    """The OpenAI routes call an end of sequence "stop" instead of "eos_token", but not in
    streams of completions."""

    chat_has_its_object = _Since((2, 1, 0))
    """`object` of chat is "chat.completion", or its chunk; "text_completion" before."""

    openai_streams_say_done = _Since((2, 2, 0))
    """Streams of the OpenAI routes end with [DONE]."""

    openai_streams_tell_usage = _Since((2, 3, 0))
    """Chat chunks have `usage`; the last one of a completion has it, and why it ended."""

    chat_tokenize_route = _Since((2, 2, 0))
    """POST /chat_tokenize."""

    always_tells_prefill = _Before((3, 0, 0))
    """decoder_input_details needs no --enable-prefill-logprobs."""

    openai_stream_errors_are_objects = _Since((2, 4, 1))
    """Errors of the OpenAI routes' streams as {"error": {"message", "http_status_code"}}."""

    info_names_limits = _Before((2, 3, 0))
    """/info carries max_batch_total_tokens and its like."""

    says_max_input_tokens = _Since((2, 1, 0))
    """`max_input_tokens` is /info's name of what was `max_input_length`."""

    info_names_client_batch = _Since((2, 0, 1))
    """/info carries max_client_batch_size."""

    info_names_router = _Since((2, 0, 3))
    """/info carries router."""

    total_tokens_metric = _Since((3, 0, 0))
    """The gauge tgi_batch_max_total_tokens."""

    filters_batches = _Since((0, 7, 0))
    """The RPCs FilterBatch and Health."""

    names_attention = _Since((2, 4, 0))
    """attention_impl and block_size in the Info reply."""

    has_kv_pool = _Since(KV_POOL_SINCE)
    """Flash models keep their KV cache in blocks that the warm-up allocates."""

    checks_cache_blocks = _Before((2, 1, 0))
    """A flash shard counts free blocks itself; later its router hands blocks out."""

    out_of_blocks_is_runtime_error = _Since((2, 0, 0))
    """Too few free blocks is a RuntimeError (2.0); an AssertionError before."""

    names_process_in_out_of_memory = _Since((1, 2, 0))
    """torch 2.1's wording of an out of memory, with the process; torch 2.0's before.

    The first version with it is a reading of its dependencies, not of a log.
    """

    explains_temperature = _Since((1, 1, 0))
    """The wording of transformers 4.33, the first that tells why a temperature of 0 is
    refused: its locked dependencies have it from this tag on."""

    names_limits_in_warmup = _Since((3, 0, 0))
    """max_input_tokens and max_total_tokens in the Warmup reply."""

    names_model_in_download_lines = _Since((2, 1, 0))
    """The line "Starting check and download process for M" instead of "Starting download process."

    Seen in logs of 2.2 and later and not in 0.9; the first tag is taken to be 2.1.0.
    """

    always_sends_prefill_tokens = _Before(PROMPT_LOGPROBS_UNTIL)
    """Every prompt token's log probability, asked for or not."""

    @property
    def protocol(self) -> Protocol:
        """The one version of the wire protocol that its shards answer."""
        if self.version < (1, 3, 0):
            return Protocol.V1
        return Protocol.V2 if self.version < (2, 1, 0) else Protocol.V3

    @property
    def on_runtime_error(self) -> OnRuntimeError:
        """How an out of memory shows."""
        if self.version < (2, 0, 0):
            return OnRuntimeError.SURVIVE
        if self.version < (2, 4, 0):
            return OnRuntimeError.EXIT_UNANSWERED
        return OnRuntimeError.EXIT_ANSWERED

    @property
    def sse_prefix(self) -> bytes:
        """What stands before an event's JSON."""
        return b"data: " if self.version >= (2, 1, 0) else b"data:"

    @property
    def default_max_new_tokens(self) -> int | None:
        """Of /generate. None: as many as max_total_tokens leaves room for."""
        if self.version < (1, 1, 0):
            return 20
        if self.version < (1, 3, 4):
            return None
        return 100 if self.version < (3, 0, 0) else None

    @property
    def most_new_tokens_said(self) -> int | None:
        """The most that a refusal says were asked for. None: as many as were."""
        return 1024 if self.version >= (3, 0, 0) else None

    @property
    def receive_limit_bytes(self) -> int | None:
        """The largest message a shard takes; None: no limit. gRPC's default before 2.1.0."""
        return 4 * 2**20 if self.version < (2, 1, 0) else None
