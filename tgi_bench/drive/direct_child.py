"""A process of direct mode: `python -m tgi_bench.drive.direct_child FD`, started by `direct`.

It loads one model, or one rank of it, and runs tasks on it. What fails here poisons no other
process: after a failure whoever started it ends it and starts another.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

from tgi_bench.drive import direct_messages as d
from tgi_bench.drive.channel import Channel, Message
from tgi_bench.errors import InputError
from tgi_bench.inert import one_line
from tgi_bench.observation import Outcome
from tgi_bench.plan.task_trial import DirectModel
from tgi_bench.task_observation import DirectFacts

if TYPE_CHECKING:
    from tgi_bench.torch_engine.model import LoadedModel

_LONGEST_REASON = 2000


def main() -> None:
    """Answer what is asked until the other end closes the channel."""
    began_ns = time.monotonic_ns()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides what Ctrl-C means
    sock = socket.socket(fileno=int(sys.argv[1]))
    _end_with(sock)
    channel = Channel(sock)
    model: LoadedModel | None = None
    while not channel.closed:
        select.select([channel], [], [])
        for message in channel.receive():
            model, answer = _answer(message, model, began_ns)
            channel.send(answer)
            while channel.pending and not channel.closed:
                select.select([], [channel], [])
                channel.flush()


def _end_with(sock: socket.socket) -> None:
    """End at once where the other end is gone, even in the middle of a step."""

    def wait() -> None:
        poll = select.poll()
        poll.register(sock.fileno(), 0)  # a hang-up is told always
        poll.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _answer(
    message: Message, model: LoadedModel | None, began_ns: int
) -> tuple[LoadedModel | None, Message]:
    """The model from now on, and what is said."""
    try:
        if message[0] == d.LOAD:
            model, facts = _load(d.LoadAsk.of(message), began_ns)
            return model, d.loaded(facts)
        if model is None:
            raise InputError("no model was loaded before a task was asked")
        from tgi_bench.drive.direct_tasks import run_task

        return model, d.ran(run_task(model, d.RunAsk.of(message)))
    except MemoryError as error:
        outcome, reason = Outcome.OUT_OF_MEMORY, str(error) or "CPU out of memory"
    except InputError as error:
        outcome, reason = Outcome.REFUSED, str(error)
    except Exception as error:  # noqa: BLE001 - any failure of a model is an observation
        outcome, reason = _failure(error)
    # The frames of the failed step, and the tensors in them, are gone by now.
    gc.collect()
    return model, d.failed(outcome, one_line(reason)[:_LONGEST_REASON])


def _failure(error: Exception) -> tuple[Outcome, str]:
    from tgi_bench.torch_engine.memory import OutOfMemory

    if isinstance(error, OutOfMemory):
        return Outcome.OUT_OF_MEMORY, str(error)
    first = str(error).strip().splitlines() or [""]
    return Outcome.FAILED, f"{type(error).__name__}: {first[0]}"


def _load(ask: d.LoadAsk, began_ns: int) -> tuple[LoadedModel, DirectFacts]:
    """Raises InputError, OutOfMemory, or whatever a model's own code raises."""
    from tgi_bench.torch_engine.spec import require_extra

    require_extra()
    import torch

    from tgi_bench.torch_engine.loading import load
    from tgi_bench.torch_engine.spec import DeviceChoice, ModelSpec, Rank, Weights, WeightType

    model = ask.model
    found = torch.cuda.device_count()
    if model.layer_split > 1 and found < model.layer_split:
        raise InputError(
            f"transformers.layer_split {model.layer_split} needs as many CUDA devices: {found} here"
        )
    if model.memory_limit_bytes is not None:
        # The hard limit too: the engine sets the soft one to what it finds available.
        limit = (model.memory_limit_bytes, model.memory_limit_bytes)
        resource.setrlimit(resource.RLIMIT_DATA, limit)
    rank = None
    if model.num_shard > 1:
        rank = Rank(ask.shard_rank, model.num_shard, ask.master_port)
    weights = Weights(WeightType.from_text(model.dtype), model.random_weights, model.weights_seed)
    spec = ModelSpec(
        model=model.model,
        weights=weights,
        device=DeviceChoice(model.device.value),
        layer_split=model.layer_split > 1,
        num_shard=model.num_shard,
    )
    made = load(spec, rank)
    return made, _facts(made, model, time.monotonic_ns() - began_ns)


def _facts(made: LoadedModel, model: DirectModel, load_ns: int) -> DirectFacts:
    import torch

    on_cpu = made.device_name == "cpu"
    if on_cpu:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        memory = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return DirectFacts(
        device=made.device_name,
        devices=model.devices,
        memory_bytes=memory,
        on_cpu=on_cpu,
        dtype=made.weight_type.value,
        parameters=made.parameters,
        weights_bytes=made.weights_bytes,
        tokenizer=type(made.tokenizer).__name__,
        load_ns=load_ns,
        details=(("architecture", made.architecture), *made.versions),
    )


if __name__ == "__main__":
    main()
