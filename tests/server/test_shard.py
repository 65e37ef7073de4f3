"""A rank driven with the generated stubs of every protocol version, over a real socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import grpc
import pytest

from tests.server.configs import FLASH, PADDED, engine_config, server_config
from tests.server.ranks import ROOT, RankProcess, command, served
from tgi_bench.server.config import EngineConfig, Version
from tgi_bench.wire import (
    generate_v1_pb2,
    generate_v1_pb2_grpc,
    generate_v2_pb2,
    generate_v2_pb2_grpc,
    generate_v3_pb2,
    generate_v3_pb2_grpc,
)

V1 = (generate_v1_pb2, generate_v1_pb2_grpc)
V2 = (generate_v2_pb2, generate_v2_pb2_grpc)
V3 = (generate_v3_pb2, generate_v3_pb2_grpc)
SMALL = engine_config(PADDED, accelerator="T4", memory_fraction=0.4)
pytestmark = pytest.mark.xdist_group("one rank of each version")


def protocol_of(version: Version) -> tuple[ModuleType, ModuleType]:
    if version < (1, 3, 0):
        return V1
    return V2 if version < (2, 1, 0) else V3


@dataclass
class Served:
    """A rank, its messages and a stub on it."""

    rank: RankProcess
    pb: ModuleType

    def stub(self, modules: tuple[ModuleType, ModuleType] | None = None):  # type: ignore[no-untyped-def]
        module = modules[1] if modules else protocol_of_module(self.pb)
        return module.TextGenerationServiceStub(self.rank.channel)

    def batch(self, batch_id: int, *sizes: tuple[int, int], size: int | None = None):  # type: ignore[no-untyped-def]
        """A batch of one request for each (prompt words, new tokens)."""
        result = self.pb.Batch(id=batch_id, size=len(sizes) if size is None else size)
        for place, (words, new) in enumerate(sizes):
            asked = result.requests.add(id=batch_id * 100 + place, truncate=words)
            text = " ".join(f"w{place}x{i}" for i in range(words))
            if self.pb is generate_v3_pb2:
                asked.input_chunks.chunks.add().text = text
            else:
                asked.inputs = text
            chosen = asked.parameters
            chosen.temperature = chosen.top_p = chosen.typical_p = chosen.repetition_penalty = 1.0
            asked.stopping_parameters.max_new_tokens = new
            asked.stopping_parameters.ignore_eos_token = True
        return result


def protocol_of_module(pb: ModuleType) -> ModuleType:
    return next(grpc_module for module, grpc_module in (V1, V2, V3) if module is pb)


@contextmanager
def one_rank(
    version: Version, engine: EngineConfig | None = None, shard_rank: int = 0
) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="tgi", dir="/tmp") as folder:
        config = server_config(version, f"{folder}/s", engine)
        with served(config, shard_rank) as (rank,):
            yield Served(rank, protocol_of(version)[0])


@pytest.fixture(scope="module", params=[(0, 9, 4), (1, 4, 5), (2, 0, 4), (2, 3, 0), (3, 3, 7)])
def rank(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A padded model, one rank, each version; tests leave it as they found it."""
    with one_rank(request.param) as one:
        yield one


def code_of(error: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, str]:
    call = error.value
    assert isinstance(call, grpc.Call)
    return call.code(), call.details() or ""


def test_discovery_info_health(rank: Served) -> None:
    stub, pb = rank.stub(), rank.pb
    assert list(stub.ServiceDiscovery(pb.ServiceDiscoveryRequest()).urls) == [
        f"unix://{rank.rank.path}"
    ]
    info = stub.Info(pb.InfoRequest())
    assert (info.requires_padding, info.device_type) == (True, "simulated")
    assert info.dtype == "torch.float16"
    stub.Health(pb.HealthRequest())


def test_only_one_protocol_is_answered(rank: Served) -> None:
    for modules in (V1, V2, V3):
        pb = modules[0]
        if pb is rank.pb:
            continue
        with pytest.raises(grpc.RpcError) as error:
            rank.stub(modules).Info(pb.InfoRequest())
        assert code_of(error) == (grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


def test_prefill_and_decode_to_the_end(rank: Served) -> None:
    stub, pb = rank.stub(), rank.pb
    reply = stub.Prefill(pb.PrefillRequest(batch=rank.batch(1, (8, 4), (5, 4))))
    steps = 0
    while reply.HasField("batch"):
        assert list(reply.batch.request_ids) == [100, 101]
        reply = stub.Decode(pb.DecodeRequest(batches=[reply.batch]))
        steps += 1
    assert steps == 3
    assert [g.generated_text.generated_tokens for g in reply.generations] == [4, 4]
    if pb is generate_v1_pb2:
        assert all(g.generated_text.text.endswith(g.token_text) for g in reply.generations)
    else:
        assert reply.total_ns >= reply.forward_ns + reply.decode_ns > 0


def test_join_filter_clear(rank: Served) -> None:
    stub, pb = rank.stub(), rank.pb
    first = stub.Prefill(pb.PrefillRequest(batch=rank.batch(1, (8, 9)))).batch
    second = stub.Prefill(pb.PrefillRequest(batch=rank.batch(2, (4, 9), (4, 9)))).batch
    joined = stub.Decode(pb.DecodeRequest(batches=[first, second]))
    assert joined.batch.id == 1
    assert list(joined.batch.request_ids) == [100, 200, 201]
    if pb is not generate_v1_pb2:
        assert joined.HasField("concat_ns")
    kept = stub.FilterBatch(pb.FilterBatchRequest(batch_id=1, request_ids=[201, 100])).batch
    assert list(kept.request_ids) == [201, 100]
    stub.ClearCache(pb.ClearCacheRequest(id=1))
    with pytest.raises(grpc.RpcError) as error:
        stub.Decode(pb.DecodeRequest(batches=[kept]))
    assert code_of(error) == (grpc.StatusCode.INTERNAL, "Batch ID 1 not found in cache.")


@pytest.mark.parametrize(
    ("version", "model", "first", "filtered"),
    [
        ((0, 9, 4), PADDED, ([100, 102], [101]), ([101], [102])),
        ((3, 3, 7), PADDED, ([100, 102], [101]), ([101], [102])),
        ((2, 3, 0), FLASH, ([100, 102], [101]), ([101], [102])),
        ((2, 4, 0), FLASH, ([100, 102], [101]), ([102], [101])),
    ],
)
def test_a_rank_answers_for_its_own_share(
    version: Version, model: str, first: tuple[list[int], ...], filtered: tuple[list[int], ...]
) -> None:
    """By place in the batch as it is, or, in the flash class from 2.4.0 on, by id."""
    for shard_rank in range(2):
        with one_rank(version, engine_config(model, num_shard=2), shard_rank) as one:
            stub, pb = one.stub(), one.pb
            if model == FLASH:
                stub.Warmup(pb.WarmupRequest(batch=one.batch(0, (64, 2)), max_prefill_tokens=128))
            reply = stub.Prefill(pb.PrefillRequest(batch=one.batch(1, (8, 9), (8, 9), (8, 9))))
            assert [g.request_id for g in reply.generations] == first[shard_rank]
            assert list(reply.batch.request_ids) == [100, 101, 102]
            stub.FilterBatch(pb.FilterBatchRequest(batch_id=1, request_ids=[101, 102]))
            reply = stub.Decode(pb.DecodeRequest(batches=[reply.batch]))
            assert [g.request_id for g in reply.generations] == filtered[shard_rank]
            assert list(reply.batch.request_ids) == [101, 102]


def test_errors_that_a_shard_survives(rank: Served) -> None:
    stub, pb = rank.stub(), rank.pb
    with pytest.raises(grpc.RpcError) as error:
        stub.Prefill(pb.PrefillRequest(batch=rank.batch(1)))
    assert code_of(error) == (grpc.StatusCode.INTERNAL, "list index out of range")
    with pytest.raises(grpc.RpcError) as error:
        stub.Decode(pb.DecodeRequest())
    assert code_of(error) == (grpc.StatusCode.INTERNAL, "Must provide at least one batch")
    cold = rank.batch(1, (4, 2))
    cold.requests[0].parameters.temperature = 0
    with pytest.raises(grpc.RpcError) as error:
        stub.Prefill(pb.PrefillRequest(batch=cold))
    assert "strictly positive float" in code_of(error)[1]
    stub.Health(pb.HealthRequest())


def test_bytes_that_are_no_message(rank: Served) -> None:
    package = rank.pb.DESCRIPTOR.package
    call = rank.rank.channel.unary_unary(f"/{package}.TextGenerationService/Prefill", bytes, bytes)
    with pytest.raises(grpc.RpcError) as error:
        call(b"\xff\xff\xff")
    assert code_of(error) == (grpc.StatusCode.INTERNAL, "Exception deserializing request!")


def test_receive_limit(rank: Served) -> None:
    stub, pb = rank.stub(), rank.pb
    large = rank.batch(1, (4, 1))
    text = " w" * 2_200_000
    if pb is generate_v3_pb2:
        large.requests[0].input_chunks.chunks[0].text = text
        assert not stub.Prefill(pb.PrefillRequest(batch=large)).HasField("batch")
        return
    large.requests[0].inputs = text
    with pytest.raises(grpc.RpcError) as error:
        stub.Prefill(pb.PrefillRequest(batch=large))
    assert code_of(error)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def too_much(one: Served) -> tuple[grpc.StatusCode, str]:
    """What a prefill that does not fit is answered."""
    big = one.batch(1, *[(1000, 2)] * 16)
    with pytest.raises(grpc.RpcError) as error:
        one.stub().Prefill(one.pb.PrefillRequest(batch=big))
    return code_of(error)


@pytest.mark.parametrize("version", [(0, 9, 4), (1, 4, 5)])
def test_out_of_memory_survived(version: Version) -> None:
    with one_rank(version, SMALL) as one:
        code, details = too_much(one)
        assert code is grpc.StatusCode.INTERNAL
        assert details.startswith("CUDA out of memory. Tried to allocate")
        one.stub().Health(one.pb.HealthRequest())
        assert one.rank.process.poll() is None


@pytest.mark.parametrize("version", [(2, 0, 4), (2, 3, 0)])
def test_out_of_memory_unanswered(version: Version) -> None:
    with one_rank(version, SMALL) as one:
        code, _ = too_much(one)
        assert code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert one.rank.process.wait(5) == 1
        with pytest.raises(grpc.RpcError) as error:
            one.stub().Health(one.pb.HealthRequest())
        assert code_of(error)[0] is grpc.StatusCode.UNAVAILABLE


def test_out_of_memory_answered_then_gone() -> None:
    with one_rank((3, 3, 7), SMALL) as one:
        code, details = too_much(one)
        assert code is grpc.StatusCode.INTERNAL
        assert details.startswith("CUDA out of memory. Tried to allocate")
        assert one.rank.process.wait(5) == 1
        assert not os.path.exists(one.rank.path)
        assert "Method Prefill encountered an error." in one.rank.logged()


def test_wrong_size_is_a_runtime_error() -> None:
    with one_rank((3, 3, 7)) as one:
        with pytest.raises(grpc.RpcError) as error:
            one.stub().Prefill(one.pb.PrefillRequest(batch=one.batch(1, (4, 2), size=3)))
        assert code_of(error)[0] is grpc.StatusCode.INTERNAL
        assert one.rank.process.wait(5) == 1


def test_flash_needs_and_answers_warmup() -> None:
    with one_rank((3, 3, 7), engine_config(FLASH)) as one:
        stub, pb = one.stub(), one.pb
        warmup = pb.WarmupRequest(
            batch=one.batch(0, (64, 2)),
            max_input_tokens=64,
            max_prefill_tokens=128,
            max_total_tokens=128,
        )
        reply = stub.Warmup(warmup)
        assert reply.max_supported_total_tokens > 100_000
        assert (reply.max_input_tokens, reply.max_total_tokens) == (64, 128)
        info = stub.Info(pb.InfoRequest())
        assert (info.attention_impl, info.block_size) == ("paged", 16)
        prefilled = stub.Prefill(pb.PrefillRequest(batch=one.batch(1, (64, 2))))
        assert prefilled.batch.current_tokens == 1
        assert prefilled.batch.max_tokens % 16 == 0


def test_terminated_rank_removes_its_socket() -> None:
    with one_rank((3, 3, 7)) as one:
        one.rank.process.send_signal(signal.SIGTERM)
        assert one.rank.process.wait(5) == 0
        assert not os.path.exists(one.rank.path)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_rank_ends_with_its_parent() -> None:
    with tempfile.TemporaryDirectory(prefix="tgi", dir="/tmp") as folder:
        config = server_config((3, 3, 7), f"{folder}/s")
        keeper = "import subprocess, sys; subprocess.run(sys.argv[1:])"
        with subprocess.Popen(
            [sys.executable, "-c", keeper, *command(config, 0)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as parent:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "ready\n"
            parent.kill()
            # The pipe ends when the rank, which inherited it, has ended.
            assert parent.stdout.read() == ""
        deadline = time.monotonic() + 5
        while os.path.exists(config.uds_path(0)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not os.path.exists(config.uds_path(0))
