"""What real shards of TGI answered, read by the embedded server's router."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.drive.test_transcripts import as_said
from tests.transcripts.grpc_replay import Call, Transcript, replaying, transcripts
from tgi_bench.server.router.body import ShardCallError
from tgi_bench.server.router.shard_client import ShardClient
from tgi_bench.wire import codec
from tgi_bench.wire.messages import Protocol

READ = [
    transcript
    for name in ("batch_*", "mixed_lengths", "concat", "filter_batch", "error_*_*", "fatal_*")
    for transcript in transcripts(name)
    if transcript.name != "error_wrong_proto"
]


async def again(client: ShardClient, protocol: Protocol, calls: Sequence[Call]) -> None:
    """Make one round of calls and compare what is read with what was recorded."""
    method, request = calls[0].method, calls[0].request
    match method:
        case "Prefill":
            reply = await client.prefill(codec.decode_prefill(protocol, request))
        case "Decode":
            reply = await client.decode(codec.decode_decode(protocol, request))
        case "FilterBatch":
            kept = await client.filter_batch(*codec.decode_filter(protocol, request))
            assert codec.encode_filter_reply(protocol, kept) == calls[0].reply
            return
        case "ClearCache":
            await client.clear_cache(codec.decode_clear_cache(protocol, request))
            return
        case "Health":
            await client.health()
            return
        case _:
            assert method == "Info"
            await client.info()
            return
    said = dict(calls[0].said)
    if any("generations" in call.said for call in calls):
        said["generations"] = [g for call in calls for g in call.said.get("generations", ())]
    assert as_said(reply, protocol) == said


async def play(transcript: Transcript, socket: Path) -> None:
    protocol = Protocol(transcript.package)
    client = await ShardClient.connect(protocol, str(socket))
    try:
        for calls in transcript.rounds():
            failed = [call.details for call in calls if call.said is None]
            if not failed:
                await again(client, protocol, calls)
                continue
            with pytest.raises(ShardCallError) as caught:
                await again(client, protocol, calls)
            assert str(caught.value) in failed
    finally:
        await client.close()


@pytest.mark.parametrize("transcript", READ, ids=str)
def test_the_router_joins_what_all_ranks_answer(transcript: Transcript) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="tgi-") as folder,
        replaying(transcript, Path(folder)) as replayed,
    ):
        asyncio.run(play(transcript, replayed[0].sockets[0]))
