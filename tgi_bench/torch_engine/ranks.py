"""The processes of a tensor-parallel model meet, as those that torchrun starts do."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
from torch import distributed

from tgi_bench.torch_engine.spec import Rank

_MEETING = timedelta(minutes=10)
"""How long a rank waits for the others, at the start and in a step."""

_HOST = "127.0.0.1"


def meet(rank: Rank, device: torch.device) -> None:
    """Returns when every rank has called it; raises RuntimeError where one does not come."""
    # transformers reads these, as torchrun sets them.
    os.environ.update(
        RANK=str(rank.shard_rank),
        LOCAL_RANK=str(rank.shard_rank),
        WORLD_SIZE=str(rank.num_shard),
        MASTER_ADDR=_HOST,
        MASTER_PORT=str(rank.master_port),
    )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        backend="nccl" if device.type == "cuda" else "gloo",
        rank=rank.shard_rank,
        world_size=rank.num_shard,
        timeout=_MEETING,
    )


def from_first(text: str) -> str:
    """What rank 0 says, on every rank."""
    told = [text]
    distributed.broadcast_object_list(told, src=0)
    return told[0]


def wait_for_all() -> None:
    """Returns when every rank has called it."""
    distributed.barrier()
