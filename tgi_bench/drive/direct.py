"""The processes that hold one model of direct mode: started, asked, heard and ended.

Whatever fails in them fails there only: the sweep ends them and starts others.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO, Self

from tgi_bench.drive import channel as d
from tgi_bench.drive.channel import Channel, Message
from tgi_bench.errors import StepError
from tgi_bench.memory_evidence import KillCounter, out_of_memory
from tgi_bench.observation import Outcome
from tgi_bench.task_observation import DirectFacts, TaskRun
from tgi_bench.trials.direct import DirectModel

_END_S = 10.0
_TAIL_BYTES = 1 << 14
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class DirectHost:
    """The living processes of one model: one, or one a rank. Use it as a context manager.

    log: what they print is added to it.
    """

    def __init__(self, model: DirectModel, log: Path) -> None:
        self.model = model
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("ab+")
        self._log_began = self._log.seek(0, os.SEEK_END)
        self._kills = KillCounter.of()
        self._kills_before = self._kills.read()
        self._processes: list[_Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def load(self) -> DirectFacts:
        """Start the processes and load the model. Raises StepError with the outcome."""
        port = _free_port() if self.model.num_shard > 1 else 0
        self._processes = [_Process(self.model, self._log) for _ in range(self.model.num_shard)]
        for rank, process in enumerate(self._processes):
            process.channel.send(d.told(d.LOAD, d.LoadAsk(self.model, rank, port)))
        answer = self._heard("loading the model", self.model.load_timeout_s)
        return d.of(DirectFacts, answer)

    def run(self, ask: d.RunAsk, timeout_s: float) -> TaskRun:
        """Run the task once. Raises StepError with the outcome; end the host after that."""
        for process in self._processes:
            process.channel.send(d.told(d.RUN, ask))
        return d.of(TaskRun, self._heard("a run", timeout_s))

    def end(self) -> None:
        """End the processes, which frees all that they hold."""
        for process in self._processes:
            process.channel.close()
        for process in self._processes:
            process.ended()
        self._processes = []
        self._log.close()

    def _heard(self, what: str, timeout_s: float) -> Message:
        """What rank 0 answers, once all have answered. Raises StepError where one does not."""
        deadline = time.monotonic() + timeout_s
        answers: dict[int, Message] = {}
        while len(answers) < len(self._processes):
            waiting = [(i, p) for i, p in enumerate(self._processes) if i not in answers]
            left = deadline - time.monotonic()
            if left <= 0:
                raise StepError(Outcome.TIMEOUT, f"{what} took longer than {timeout_s:g} s")
            select.select([p.channel for _, p in waiting], [], [], left)
            for index, process in waiting:
                for message in process.channel.receive():
                    if message[0] == d.FAILED:
                        outcome, reason = d.of(tuple, message)
                        raise StepError(outcome, reason)
                    answers[index] = message
                if process.channel.closed and index not in answers:
                    raise self._died(process, what)
        return answers[0]

    def _died(self, process: _Process, what: str) -> StepError:
        """Why a process ended without an answer, as far as its end and its log tell."""
        code = process.ended()
        lines = self._tail()
        how = f"ended with exit code {code}" if code >= 0 else f"was killed (signal {-code})"
        sentence = f"the process of the model {how} in {what}"
        if code == -signal.SIGKILL:
            if self._kills.read() > self._kills_before:
                reason = f"{sentence}: the kernel killed it for want of memory (oom_kill)"
                return StepError(Outcome.HOST_OUT_OF_MEMORY, reason)
            return StepError(Outcome.FAILED, sentence)
        for line in reversed(lines):
            if (memory := out_of_memory(line)) is not None:
                return StepError(memory, f"{sentence}: {line}")
        last = f": {lines[-1]}" if lines else ""
        return StepError(Outcome.FAILED, f"{sentence}{last}")

    def _tail(self) -> list[str]:
        """The last lines that this host's processes printed."""
        self._log.flush()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log_began, size - _TAIL_BYTES))
        text = self._log.read().decode("utf-8", "replace")
        return [line.strip() for line in text.splitlines() if line.strip()]


class _Process:
    """One process and our end of its channel."""

    def __init__(self, model: DirectModel, log: BinaryIO) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        with theirs:
            # -P: a file of the working folder must not stand in for a module.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tgi_bench.drive.direct_child", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environ(model),
                process_group=0,  # a terminal's signals are for the sweep alone
            )

    def ended(self) -> int:
        """Its exit code, once it has ended; it is killed where it does not end by itself."""
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _environ(model: DirectModel) -> dict[str, str]:
    """Layers are laid out over as many devices as are visible: no more than asked."""
    environ = dict(os.environ)
    if model.layer_split > 1:
        visible = environ.get(_VISIBLE, "")
        named = [name for name in visible.split(",") if name]
        names = named or [str(index) for index in range(model.layer_split)]
        environ[_VISIBLE] = ",".join(names[: model.layer_split])
    return environ


def _free_port() -> int:
    """Of 127.0.0.1, free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
