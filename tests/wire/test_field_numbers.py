"""Names, numbers and types of the wire, written by hand from the public repository
huggingface/text-generation-inference: proto/generate.proto at its tags, proto/v3/generate.proto.

A wrong number does not fail: it reads another field's bytes. "?" marks an `optional` field,
"*" a repeated one.
"""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import FieldDescriptor, FileDescriptor

from tgi_bench.wire import generate_v1_pb2 as v1
from tgi_bench.wire import generate_v2_pb2 as v2
from tgi_bench.wire import generate_v3_pb2 as v3

FILES: dict[int, FileDescriptor] = {1: v1.DESCRIPTOR, 2: v2.DESCRIPTOR, 3: v3.DESCRIPTOR}
RPCS = (
    "Info",
    "ServiceDiscovery",
    "ClearCache",
    "FilterBatch",
    "Warmup",
    "Prefill",
    "Decode",
    "Health",
)

_TYPES = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_FLOAT: "float",
}

_CHOICE_V1 = (
    "1 float temperature, 2 uint32 top_k, 3 float top_p, 4 float typical_p, 5 bool do_sample, "
    "6 uint64 seed, 7 float repetition_penalty, 8 bool watermark"
)
_CHOICE = f"{_CHOICE_V1}, 9 float frequency_penalty, 10 string grammar, 11 GrammarType grammar_type"
_STOPPING = "1 uint32 max_new_tokens, 2 string* stop_sequences, 3 bool ignore_eos_token"
_REQUEST = (
    "1 uint64 id, 2 string inputs, 3 uint32 truncate, 4 NextTokenChooserParameters parameters, "
    "5 StoppingCriteriaParameters stopping_parameters, 6 bool prefill_logprobs, "
    "7 uint32 top_n_tokens"
)
_REQUEST_V3 = (
    f"{_REQUEST}, 8 Input input_chunks, 9 uint32* blocks, 10 uint32* slots, "
    "11 string? adapter_id, 12 uint32 cache_len, 13 bool add_special_tokens, 14 uint32? chunk_len"
)
_BATCH = "1 uint64 id, 2 Request* requests, 3 uint32 size, 4 uint32 max_tokens"
_CACHED = "1 uint64 id, 2 uint64* request_ids, 3 uint32 size, 4 uint32 max_tokens"
_TEXT = "1 string text, 2 uint32 generated_tokens, 3 FinishReason finish_reason, 4 uint64? seed"
_TOKENS = "1 uint32* ids, 2 float* logprobs, 3 string* texts, 4 bool* is_special"
_GENERATION = (
    "1 uint64 request_id, 2 Tokens prefill_tokens, 3 Tokens tokens, "
    "4 GeneratedText? generated_text, 5 Tokens* top_tokens"
)
_REPLY_V1 = "1 Generation* generations, 2 CachedBatch? batch"
_REPLY = f"{_REPLY_V1}, 3 uint64 forward_ns, 4 uint64 decode_ns, 5 uint64 total_ns"
_INFO_V1 = "1 bool requires_padding, 2 string dtype, 3 string device_type, 4 uint32? window_size"
_INFO_V3 = (
    f"{_INFO_V1}, 5 uint32 speculate, 6 bool support_chunking, 7 bool use_prefix_caching, "
    "8 string attention_impl, 9 uint32 block_size"
)

FIELDS: dict[tuple[int, str], str] = {
    (1, "Generation"): (
        "1 uint64 request_id, 2 PrefillTokens prefill_tokens, 3 uint32 token_id, "
        "4 float token_logprob, 5 string token_text, 6 bool token_is_special, "
        "7 GeneratedText? generated_text, 8 TopTokens top_tokens"
    ),
    (2, "Generation"): _GENERATION,
    (3, "Generation"): _GENERATION,
    (1, "PrefillTokens"): "1 uint32* ids, 2 float* logprobs, 3 string* texts",
    (1, "TopTokens"): "1 uint32* ids, 2 float* logprobs, 3 string* texts, 6 bool* is_special",
    (2, "Tokens"): _TOKENS,
    (3, "Tokens"): _TOKENS,
    (1, "NextTokenChooserParameters"): _CHOICE_V1,
    (2, "NextTokenChooserParameters"): _CHOICE,
    (3, "NextTokenChooserParameters"): _CHOICE,
    (1, "StoppingCriteriaParameters"): _STOPPING,
    (2, "StoppingCriteriaParameters"): _STOPPING,
    (3, "StoppingCriteriaParameters"): _STOPPING,
    (1, "Request"): _REQUEST,
    (2, "Request"): _REQUEST,
    (3, "Request"): _REQUEST_V3,
    (1, "Batch"): _BATCH,
    (2, "Batch"): _BATCH,
    (3, "Batch"): f"{_BATCH}, 5 uint32 max_blocks",
    (1, "CachedBatch"): _CACHED,
    (2, "CachedBatch"): _CACHED,
    (3, "CachedBatch"): f"{_CACHED}, 5 uint32 current_tokens",
    (1, "GeneratedText"): _TEXT,
    (2, "GeneratedText"): _TEXT,
    (3, "GeneratedText"): _TEXT,
    (1, "PrefillResponse"): _REPLY_V1,
    (1, "DecodeResponse"): _REPLY_V1,
    (2, "PrefillResponse"): _REPLY,
    (2, "DecodeResponse"): f"{_REPLY}, 6 uint64? concat_ns",
    (3, "PrefillResponse"): f"{_REPLY}, 6 uint64? concat_ns",
    (3, "DecodeResponse"): f"{_REPLY}, 6 uint64? concat_ns",
    (1, "PrefillRequest"): "1 Batch batch",
    (2, "PrefillRequest"): "1 Batch batch",
    (3, "PrefillRequest"): "1 Batch batch, 2 CachedBatch cached_batch",
    (1, "DecodeRequest"): "1 CachedBatch* batches",
    (2, "DecodeRequest"): "1 CachedBatch* batches",
    (3, "DecodeRequest"): "1 CachedBatch* batches",
    (1, "InfoResponse"): _INFO_V1,
    (2, "InfoResponse"): f"{_INFO_V1}, 5 uint32 speculate",
    (3, "InfoResponse"): _INFO_V3,
    (1, "WarmupRequest"): "1 Batch batch",
    (2, "WarmupRequest"): (
        "1 Batch batch, 2 uint32 max_input_length, 3 uint32 max_prefill_tokens, "
        "4 uint32 max_total_tokens"
    ),
    (3, "WarmupRequest"): (
        "1 Batch batch, 2 uint32? max_input_tokens, 3 uint32 max_prefill_tokens, "
        "4 uint32? max_total_tokens"
    ),
    (1, "WarmupResponse"): "1 uint32? max_supported_total_tokens",
    (2, "WarmupResponse"): "1 uint32? max_supported_total_tokens",
    (3, "WarmupResponse"): (
        "1 uint32? max_supported_total_tokens, 2 uint32 max_input_tokens, 3 uint32 max_total_tokens"
    ),
    (1, "ClearCacheRequest"): "1 uint64? id",
    (2, "ClearCacheRequest"): "1 uint64? id",
    (3, "ClearCacheRequest"): "1 uint64? id",
    (1, "FilterBatchRequest"): "1 uint64 batch_id, 2 uint64* request_ids",
    (2, "FilterBatchRequest"): "1 uint64 batch_id, 2 uint64* request_ids",
    (3, "FilterBatchRequest"): "1 uint64 batch_id, 2 uint64* request_ids",
    (1, "ServiceDiscoveryResponse"): "1 string* urls",
    (2, "ServiceDiscoveryResponse"): "1 string* urls",
    (3, "ServiceDiscoveryResponse"): "1 string* urls",
    (3, "InputChunk"): "1 string text, 2 Image image",
    (3, "Input"): "1 InputChunk* chunks",
    (3, "Image"): "1 bytes data, 2 string mimetype",
}


def described(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        kind = field.message_type.name
    elif field.enum_type is not None:
        kind = field.enum_type.name
    else:
        kind = _TYPES[field.type]
    optional = field.has_presence and (
        field.containing_oneof is not None and field.containing_oneof.name == f"_{field.name}"
    )
    mark = "*" if field.is_repeated else "?" if optional else ""
    return f"{field.number} {kind}{mark} {field.name}"


@pytest.mark.parametrize(("version", "message"), sorted(FIELDS))
def test_fields(version: int, message: str) -> None:
    descriptor = FILES[version].message_types_by_name[message]
    assert ", ".join(map(described, descriptor.fields)) == FIELDS[version, message]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_service(version: int) -> None:
    service = FILES[version].services_by_name["TextGenerationService"]
    assert service.full_name == f"generate.v{version}.TextGenerationService"
    assert tuple(method.name for method in service.methods) == RPCS
    for method in service.methods:
        assert method.input_type.name == f"{method.name}Request"
        assert method.output_type.name == f"{method.name}Response"
        assert not method.client_streaming
        assert not method.server_streaming


@pytest.mark.parametrize("version", [1, 2, 3])
def test_finish_reasons(version: int) -> None:
    values = FILES[version].enum_types_by_name["FinishReason"].values
    assert [(v.name.removeprefix("FINISH_REASON_"), v.number) for v in values] == [
        ("LENGTH", 0),
        ("EOS_TOKEN", 1),
        ("STOP_SEQUENCE", 2),
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_grammar_types(version: int) -> None:
    values = FILES[version].enum_types_by_name["GrammarType"].values
    assert [(v.name.removeprefix("GRAMMAR_TYPE_"), v.number) for v in values] == [
        ("NONE", 0),
        ("JSON", 1),
        ("REGEX", 2),
    ]


@pytest.mark.parametrize(
    ("version", "message"),
    [(1, "Tokens"), (2, "PrefillTokens"), (1, "Input"), (2, "Input"), (1, "Image"), (2, "Image")],
)
def test_a_version_has_no_message_of_another(version: int, message: str) -> None:
    assert message not in FILES[version].message_types_by_name
