"""Processes of direct mode: what they answer, and how each way to fail is told and survived."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from array import array
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.torch_engine.needs_torch import needs_torch
from tests.torch_engine.tiny import write_config
from tgi_bench.drive import channel as d
from tgi_bench.drive.direct import DirectHost
from tgi_bench.errors import StepError
from tgi_bench.observation import Outcome
from tgi_bench.task_observation import DirectFacts, TaskCall, TaskPart, TaskRun
from tgi_bench.trials.direct import DirectModel, Dtype, GenerateTask, SummarizeTask, TaskDevice


def tiny(folder: Path, family: str = "llama", **changes: object) -> Path:
    return write_config(folder / family, family, **changes)


def direct_model(model: Path | str, *, limit_bytes: int | None = None) -> DirectModel:
    return DirectModel(
        model_id="fp32",
        model=str(model),
        random_weights=True,
        weights_seed=0,
        dtype=Dtype.FP32,
        device=TaskDevice.CPU,
        num_shard=1,
        layer_split=1,
        memory_limit_bytes=limit_bytes,
        load_timeout_s=60.0,
    )


GENERATE = GenerateTask(7, 5, None, None)
SUMMARIZE = SummarizeTask(50, None, 20, 3, 8, 10)


def ask(task: GenerateTask | SummarizeTask = GENERATE, batch_size: int = 1) -> d.RunAsk:
    return d.RunAsk(task, batch_size, 0, 0, False, 0)


def children() -> list[int]:
    """Living processes of direct mode that this one started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"direct_child" in command:
            found.append(int(stat.parent.name))
    return found


def test_messages_come_back_equal() -> None:
    call = TaskCall(TaskPart.MAP, 7, 5, 10, array("q", [12, 15]))
    values: tuple[object, ...] = (
        d.LoadAsk(direct_model("org/model", limit_bytes=5), 1, 1234),
        d.RunAsk(SUMMARIZE, 3, 2, 1, True, 9),
        d.RunAsk(GenerateTask(7, 5, 3, None), 3, 2, 1, True, 9),
        DirectFacts("cpu", 1, None, True, "float32", 10, 40, "T", 5, (("torch", "2"),)),
        TaskRun(3, 2, 1, True, 10, 20, None, (call,), Outcome.OK, ""),
        (Outcome.OUT_OF_MEMORY, "why"),
    )
    for value in values:
        message = d.told("kind", value)
        assert (message[0], d.of(type(value), message)) == ("kind", value)
    with pytest.raises(TypeError, match="TaskRun was to come, and tuple came"):
        d.of(TaskRun, message)


@needs_torch
def test_tasks_have_the_asked_lengths(tmp_path: Path) -> None:
    model = direct_model(tiny(tmp_path, "gpt2"))
    with DirectHost(model, tmp_path / "launch" / "fp32.log") as host:
        facts = host.load()
        assert (facts.dtype, facts.on_cpu, facts.devices) == ("float32", True, 1)
        assert facts.parameters > 0
        assert facts.weights_bytes >= 4 * facts.parameters
        assert "torch" in dict(facts.details)
        run = host.run(ask(batch_size=3), 60.0)
        (call,) = run.calls
        assert (run.batch_size, run.outcome, run.peak_bytes is not None) == (3, Outcome.OK, True)
        assert (call.part, call.prompt_tokens, call.new_tokens) == (TaskPart.GENERATE, 21, 15)
        assert len(call.step_ends_ns) == 5
        assert all(a < b for a, b in pairwise([call.began_ns, *call.step_ends_ns]))
        assert (run.began_ns, run.ended_ns) == (call.began_ns, call.step_ends_ns[-1])
        # 20, 20 and 10 tokens; answers of 8 join two by two below 20; two answers of 10 then.
        summary = host.run(ask(SUMMARIZE), 60.0)
        assert [(c.part, c.prompt_tokens, c.new_tokens) for c in summary.calls] == [
            (TaskPart.MAP, 23, 8),
            (TaskPart.MAP, 23, 8),
            (TaskPart.MAP, 13, 8),
            (TaskPart.REDUCE, 19, 10),
            (TaskPart.REDUCE, 11, 10),
            (TaskPart.REDUCE, 23, 10),
        ]
        assert summary.began_ns < summary.calls[0].began_ns
        assert summary.ended_ns > summary.calls[-1].ended_ns
        text = tmp_path / "text.txt"
        text.write_text("one two three four five", encoding="utf-8")
        of_file = host.run(ask(SummarizeTask(None, str(text), 20, 0, 4, 4)), 60.0)
        assert [c.prompt_tokens for c in of_file.calls] == [5, 4]
        # More than the model's positions: an error of its own, which the process outlives.
        with pytest.raises(StepError, match="96") as long:
            host.run(ask(GenerateTask(90, 20, None, None)), 60.0)
        assert long.value.outcome is Outcome.FAILED
        with pytest.raises(StepError, match="cannot be read") as missing:
            host.run(ask(SummarizeTask(None, str(tmp_path / "none"), 20, 0, 4, 4)), 60.0)
        assert missing.value.outcome is Outcome.REFUSED
        # Nothing that failed is left in it.
        assert host.run(ask(batch_size=3), 60.0).calls[0].new_tokens == 15
    assert children() == []


@needs_torch
def test_running_out_of_memory_is_told_and_another_process_goes_on(tmp_path: Path) -> None:
    """RLIMIT_DATA of 1.5 GiB: a batch whose logits alone are 4 GiB does not fit."""
    folder = tiny(tmp_path, vocab_size=65_536)
    model = direct_model(folder, limit_bytes=3 << 29)
    log = tmp_path / "fp32.log"
    with DirectHost(model, log) as host:
        host.load()
        assert host.run(ask(), 60.0).outcome is Outcome.OK
        with pytest.raises(StepError, match="out of memory") as caught:
            host.run(ask(batch_size=16_384), 60.0)
        assert caught.value.outcome is Outcome.OUT_OF_MEMORY
    with DirectHost(model, log) as host:
        host.load()
        assert host.run(ask(), 60.0).outcome is Outcome.OK


@needs_torch
def test_weights_that_do_not_fit_and_models_that_are_none(tmp_path: Path) -> None:
    large = tiny(tmp_path, "gpt2", vocab_size=8_000_000)  # 1.5 GB of embeddings
    limited = direct_model(large, limit_bytes=1 << 30)
    with DirectHost(limited, tmp_path / "a.log") as host, pytest.raises(StepError) as memory:
        host.load()
    assert memory.value.outcome is Outcome.OUT_OF_MEMORY
    with DirectHost(direct_model("no/such/row"), tmp_path / "b.log") as host:
        with pytest.raises(StepError) as unknown:
            host.load()
        assert unknown.value.outcome is Outcome.REFUSED
    assert "no/such/row" in str(unknown.value)


@needs_torch
def test_a_process_that_dies_and_one_that_takes_too_long(tmp_path: Path) -> None:
    model = direct_model(tiny(tmp_path))
    with DirectHost(model, tmp_path / "a.log") as host:
        host.load()
        (child,) = children()
        os.kill(child, signal.SIGSEGV)
        with pytest.raises(StepError, match=r"was killed \(signal 11\) in a run") as died:
            host.run(ask(), 60.0)
        assert died.value.outcome is Outcome.FAILED
    with DirectHost(model, tmp_path / "b.log") as host:
        host.load()
        with pytest.raises(StepError, match=r"longer than 0\.05 s") as slow:
            host.run(ask(GenerateTask(8, 80, None, None), 2048), 0.05)
        assert slow.value.outcome is Outcome.TIMEOUT
    assert children() == []


@needs_torch
def test_two_ranks_answer_as_one(tmp_path: Path) -> None:
    model = replace(direct_model(tiny(tmp_path)), num_shard=2, model_id="fp32+num_shard-2")
    with DirectHost(model, tmp_path / "a.log") as host:
        assert host.load().devices == 2
        assert len(children()) == 2
        assert host.run(ask(batch_size=2), 60.0).calls[0].new_tokens == 10
        os.kill(children()[1], signal.SIGKILL)
        with pytest.raises(StepError, match=r"was killed \(signal 9\) in a run$") as died:
            host.run(ask(), 60.0)
        assert died.value.outcome is Outcome.FAILED
    assert children() == []


_OWNER = """
import sys, time
from pathlib import Path
from tests.drive.test_direct import children, direct_model
from tgi_bench.drive.direct import DirectHost
host = DirectHost(direct_model(sys.argv[1]), Path(sys.argv[2]))
host.load()
print(*children(), flush=True)
time.sleep(60)
"""


@needs_torch
def test_the_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    words = [sys.executable, "-c", _OWNER, str(tiny(tmp_path)), str(tmp_path / "a.log")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=root) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        owner.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
