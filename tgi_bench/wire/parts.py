"""The messages inside messages: batches, requests, tokens, in all versions.

Used by `codec` only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from tgi_bench.wire import generate_v1_pb2 as v1
from tgi_bench.wire import generate_v2_pb2 as v2
from tgi_bench.wire import generate_v3_pb2 as v3
from tgi_bench.wire import messages as m

_BatchPb: TypeAlias = v1.Batch | v2.Batch | v3.Batch
_CachedPb: TypeAlias = v1.CachedBatch | v2.CachedBatch | v3.CachedBatch
_RequestPb: TypeAlias = v1.Request | v2.Request | v3.Request
_GenerationPb: TypeAlias = v1.Generation | v2.Generation | v3.Generation
_TokensPb: TypeAlias = (
    v1.PrefillTokens | v1.TopTokens | v2.Tokens | v3.Tokens  # one layout in four messages
)


def fill_batch(target: _BatchPb, batch: m.Batch) -> None:
    """Write a batch into its protobuf message."""
    target.id = batch.id
    target.size = batch.size
    target.max_tokens = batch.max_tokens
    for request in batch.requests:
        _fill_request(target.requests.add(), request)


def _fill_request(target: _RequestPb, request: m.Request) -> None:
    target.id = request.id
    target.truncate = request.truncate
    target.prefill_logprobs = request.prefill_logprobs
    target.top_n_tokens = request.top_n_tokens
    if isinstance(target, v3.Request):
        # v3 shards read the chunks and ignore `inputs`.
        target.input_chunks.chunks.add().text = request.text
        target.add_special_tokens = request.add_special_tokens
    else:
        target.inputs = request.text
    choice = target.parameters
    choice.temperature = request.choice.temperature
    choice.top_k = request.choice.top_k
    choice.top_p = request.choice.top_p
    choice.typical_p = request.choice.typical_p
    choice.do_sample = request.choice.do_sample
    choice.seed = request.choice.seed
    choice.repetition_penalty = request.choice.repetition_penalty
    choice.watermark = request.choice.watermark
    if not isinstance(choice, v1.NextTokenChooserParameters):
        choice.frequency_penalty = request.choice.frequency_penalty
    stopping = target.stopping_parameters
    stopping.max_new_tokens = request.stopping.max_new_tokens
    stopping.stop_sequences.extend(request.stopping.stop_sequences)
    stopping.ignore_eos_token = request.stopping.ignore_eos_token


def read_batch(batch: _BatchPb) -> m.Batch:
    """Read a batch from its protobuf message."""
    return m.Batch(
        id=batch.id,
        requests=tuple(_read_request(request) for request in batch.requests),
        max_tokens=batch.max_tokens,
        size=batch.size,
    )


def _read_request(request: _RequestPb) -> m.Request:
    choice = request.parameters
    stopping = request.stopping_parameters
    if isinstance(request, v3.Request):
        text = "".join(chunk.text for chunk in request.input_chunks.chunks)
        special = request.add_special_tokens
    else:
        text, special = request.inputs, True
    return m.Request(
        id=request.id,
        text=text,
        truncate=request.truncate,
        choice=m.TokenChoice(
            temperature=choice.temperature,
            top_k=choice.top_k,
            top_p=choice.top_p,
            typical_p=choice.typical_p,
            do_sample=choice.do_sample,
            seed=choice.seed,
            repetition_penalty=choice.repetition_penalty,
            frequency_penalty=(
                0.0
                if isinstance(choice, v1.NextTokenChooserParameters)
                else choice.frequency_penalty
            ),
            watermark=choice.watermark,
        ),
        stopping=m.Stopping(
            max_new_tokens=stopping.max_new_tokens,
            stop_sequences=tuple(stopping.stop_sequences),
            ignore_eos_token=stopping.ignore_eos_token,
        ),
        prefill_logprobs=request.prefill_logprobs,
        top_n_tokens=request.top_n_tokens,
        add_special_tokens=special,
    )


def fill_cached(target: _CachedPb, batch: m.CachedBatch) -> None:
    """Write a cached batch; before v3 current_tokens is dropped."""
    target.id = batch.id
    target.request_ids.extend(batch.request_ids)
    target.size = batch.size
    target.max_tokens = batch.max_tokens
    if isinstance(target, v3.CachedBatch) and batch.current_tokens is not None:
        target.current_tokens = batch.current_tokens


def read_cached(batch: _CachedPb) -> m.CachedBatch:
    """Read a cached batch."""
    return m.CachedBatch(
        id=batch.id,
        request_ids=tuple(batch.request_ids),
        size=batch.size,
        max_tokens=batch.max_tokens,
        # 0 is "not sent": a batch that is held holds at least a token.
        current_tokens=(batch.current_tokens or None)
        if isinstance(batch, v3.CachedBatch)
        else None,
    )


def fill_generation(target: _GenerationPb, generation: m.Generation) -> None:
    """Write one request's share of a step; v1 carries its first token only."""
    target.request_id = generation.request_id
    if generation.prefill_tokens:
        _fill_tokens(target.prefill_tokens, generation.prefill_tokens)
    if isinstance(target, v1.Generation):
        token = generation.tokens[0]
        target.token_id, target.token_logprob = token.id, token.logprob
        target.token_text, target.token_is_special = token.text, token.special
        if generation.top_tokens:
            _fill_tokens(target.top_tokens, generation.top_tokens[0])
    else:
        _fill_tokens(target.tokens, generation.tokens)
        for alternatives in generation.top_tokens:
            _fill_tokens(target.top_tokens.add(), alternatives)
    text = generation.generated_text
    if text is not None:
        target.generated_text.text = text.text
        target.generated_text.generated_tokens = text.generated_tokens
        # protobuf's stubs want their own enum type; the numbers are the same.
        target.generated_text.finish_reason = text.finish_reason.value  # type: ignore[assignment]
        if text.seed is not None:
            target.generated_text.seed = text.seed


def _fill_tokens(target: _TokensPb, tokens: tuple[m.Token, ...]) -> None:
    target.ids.extend(t.id for t in tokens)
    target.logprobs.extend(t.logprob for t in tokens)
    target.texts.extend(t.text for t in tokens)
    if not isinstance(target, v1.PrefillTokens):
        target.is_special.extend(t.special for t in tokens)


def _read_tokens(tokens: _TokensPb) -> tuple[m.Token, ...]:
    unsaid = [False] * len(tokens.ids)
    special: Iterable[bool] = (
        # A shard leaves is_special empty for the prompt's tokens, in every version.
        unsaid if isinstance(tokens, v1.PrefillTokens) else tokens.is_special or unsaid
    )
    return tuple(
        m.Token(*fields)
        for fields in zip(tokens.ids, tokens.logprobs, tokens.texts, special, strict=True)
    )


def _read_text(generation: _GenerationPb) -> m.GeneratedText | None:
    if not generation.HasField("generated_text"):
        return None
    text = generation.generated_text
    return m.GeneratedText(
        text=text.text,
        generated_tokens=text.generated_tokens,
        finish_reason=m.FinishReason(text.finish_reason),
        seed=text.seed if text.HasField("seed") else None,
    )


def read_generation_v1(generation: v1.Generation) -> m.Generation:
    """Read one request's share of a step of v1."""
    token = m.Token(
        generation.token_id,
        generation.token_logprob,
        generation.token_text,
        generation.token_is_special,
    )
    top = (_read_tokens(generation.top_tokens),) if generation.HasField("top_tokens") else ()
    return m.Generation(
        request_id=generation.request_id,
        tokens=(token,),
        generated_text=_read_text(generation),
        prefill_tokens=_read_tokens(generation.prefill_tokens),
        top_tokens=top,
    )


def read_step_reply(response: v2.DecodeResponse | v3.DecodeResponse) -> m.StepReply:
    """Read the answer to Prefill or Decode of v2 or v3."""
    durations = None
    if response.total_ns:  # 0 is "not sent": before 1.3.3
        durations = m.Durations(
            response.forward_ns,
            response.decode_ns,
            response.total_ns,
            response.concat_ns if response.HasField("concat_ns") else None,
        )
    return m.StepReply(
        generations=tuple(
            m.Generation(
                request_id=g.request_id,
                tokens=_read_tokens(g.tokens),
                generated_text=_read_text(g),
                prefill_tokens=_read_tokens(g.prefill_tokens),
                top_tokens=tuple(_read_tokens(t) for t in g.top_tokens),
            )
            for g in response.generations
        ),
        cached=read_cached(response.batch) if response.HasField("batch") else None,
        durations=durations,
    )
