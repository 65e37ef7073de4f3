"""What differs between versions of text-generation-inference, as far as a client can see.

Each property names the first version that shows it. Source: the public repository
huggingface/text-generation-inference, read at its tags.
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
class Behaviour:
    """The behaviours of one version."""

    version: Version

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
    def sends_durations(self) -> bool:
        """forward_ns, decode_ns and total_ns in step replies."""
        return self.version >= (1, 3, 3)

    @property
    def sends_current_tokens(self) -> bool:
        """CachedBatch.current_tokens."""
        return self.version >= (2, 4, 0)

    @property
    def flash_shares_by_id(self) -> bool:
        """A flash rank answers for the request ids that are its own modulo the ranks. Before, as
        in all padded classes, it is their place in the batch."""
        return self.version >= (2, 4, 0)

    @property
    def warms_up(self) -> bool:
        """The Warmup RPC."""
        return self.version >= (0, 9, 0)

    @property
    def pretty_args_line(self) -> bool:
        """The `Args {` log line on many lines instead of one."""
        return self.version >= (2, 0, 2)

    @property
    def sse_prefix(self) -> bytes:
        """What stands before an event's JSON."""
        return b"data: " if self.version >= (2, 1, 0) else b"data:"

    @property
    def stream_index(self) -> bool:
        """`index` in the events of /generate_stream."""
        return self.version >= (1, 4, 0)

    @property
    def input_length_in_details(self) -> bool:
        """`input_length` in the details of a stream's last event."""
        return self.version >= (2, 3, 0)

    @property
    def token_count_headers(self) -> bool:
        """x-prompt-tokens and x-generated-tokens on /generate."""
        return self.version >= (1, 4, 0)

    @property
    def tokenize_route(self) -> bool:
        """POST /tokenize."""
        return self.version >= (1, 4, 0)

    @property
    def chat_route(self) -> bool:
        """POST /v1/chat/completions."""
        return self.version >= (1, 4, 0)

    @property
    def completions_route(self) -> bool:
        """POST /v1/completions."""
        return self.version >= (1, 4, 5)

    @property
    def models_route(self) -> bool:
        """GET /v1/models."""
        return self.version >= (2, 3, 0)

    @property
    def openai_says_stop(self) -> bool:
        """The OpenAI routes call an end of sequence "stop" instead of "eos_token", but not in
        streams of completions."""
        return self.version >= (2, 3, 0)

    @property
    def chat_has_its_object(self) -> bool:
        """`object` of chat is "chat.completion", or its chunk; "text_completion" before."""
        return self.version >= (2, 1, 0)

    @property
    def openai_streams_say_done(self) -> bool:
        """Streams of the OpenAI routes end with [DONE]."""
        return self.version >= (2, 2, 0)

    @property
    def openai_streams_tell_usage(self) -> bool:
        """Chat chunks have `usage`; the last one of a completion has it, and why it ended."""
        return self.version >= (2, 3, 0)

    @property
    def chat_tokenize_route(self) -> bool:
        """POST /chat_tokenize."""
        return self.version >= (2, 2, 0)

    @property
    def always_tells_prefill(self) -> bool:
        """decoder_input_details needs no --enable-prefill-logprobs."""
        return self.version < (3, 0, 0)

    @property
    def openai_stream_errors_are_objects(self) -> bool:
        """Errors of the OpenAI routes' streams as {"error": {"message", "http_status_code"}}."""
        return self.version >= (2, 4, 1)

    @property
    def info_names_limits(self) -> bool:
        """/info carries max_batch_total_tokens and its like."""
        return self.version < (2, 3, 0)

    @property
    def says_max_input_tokens(self) -> bool:
        """`max_input_tokens` is /info's name of what was `max_input_length`."""
        return self.version >= (2, 1, 0)

    @property
    def info_names_client_batch(self) -> bool:
        """/info carries max_client_batch_size."""
        return self.version >= (2, 0, 1)

    @property
    def info_names_router(self) -> bool:
        """/info carries router."""
        return self.version >= (2, 0, 3)

    @property
    def total_tokens_metric(self) -> bool:
        """The gauge tgi_batch_max_total_tokens."""
        return self.version >= (3, 0, 0)

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
    def filters_batches(self) -> bool:
        """The RPCs FilterBatch and Health."""
        return self.version >= (0, 7, 0)

    @property
    def receive_limit_bytes(self) -> int | None:
        """The largest message a shard takes; None: no limit. gRPC's default before 2.1.0."""
        return 4 * 2**20 if self.version < (2, 1, 0) else None

    @property
    def names_attention(self) -> bool:
        """attention_impl and block_size in the Info reply."""
        return self.version >= (2, 4, 0)

    @property
    def has_kv_pool(self) -> bool:
        """Flash models keep their KV cache in blocks that the warm-up allocates."""
        return self.version >= KV_POOL_SINCE

    @property
    def checks_cache_blocks(self) -> bool:
        """A flash shard counts free blocks itself; later its router hands blocks out."""
        return self.version < (2, 1, 0)

    @property
    def out_of_blocks_is_runtime_error(self) -> bool:
        """Too few free blocks is a RuntimeError (2.0); an AssertionError before."""
        return self.version >= (2, 0, 0)

    @property
    def names_process_in_out_of_memory(self) -> bool:
        """torch 2.1's wording of an out of memory, with the process; torch 2.0's before.

        The first version with it is a reading of its dependencies, not of a log.
        """
        return self.version >= (1, 2, 0)

    @property
    def explains_temperature(self) -> bool:
        """The wording of transformers 4.33, the first that tells why a temperature of 0 is
        refused: its locked dependencies have it from this tag on."""
        return self.version >= (1, 1, 0)

    @property
    def names_limits_in_warmup(self) -> bool:
        """max_input_tokens and max_total_tokens in the Warmup reply."""
        return self.version >= (3, 0, 0)

    @property
    def names_model_in_download_lines(self) -> bool:
        """ "Starting check and download process for M" instead of "Starting download process."

        Seen in logs of 2.2 and later and not in 0.9; the first tag is taken to be 2.1.0.
        """
        return self.version >= (2, 1, 0)

    @property
    def always_sends_prefill_tokens(self) -> bool:
        """Every prompt token's log probability, asked for or not."""
        return self.version < PROMPT_LOGPROBS_UNTIL
