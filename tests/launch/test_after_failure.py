"""Deaths by their evidence, and what a failed trial says of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.launch import servers
from tests.launch.test_launcher_transcripts import read
from tests.launch.test_process import wait_for
from tgi_bench.launch import cause
from tgi_bench.launch.cause import KILLED, death_of, end_of_load, explained, usable
from tgi_bench.launch.child import ServerProcess
from tgi_bench.launch.launcher import Death, Endpoint
from tgi_bench.memory_evidence import KillCounter
from tgi_bench.observation import Outcome, ServerFacts, TrialEnd

DIED, DEVICE, HOST = Outcome.SERVER_DIED, Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY
SIGKILL_3 = read("tgi-3.3.7/launcher-shard-sigkill-num_shard-2")
SIGKILL_2 = read("tgi-2.0.4/launcher-shard-sigkill-num_shard-1")
FACTS = ServerFacts((), None, None, None, "", False, 0)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has"
CPU = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
ROSE = "; the kernel killed a process for want of memory: oom_kill of its cgroup rose by 1"


@pytest.mark.parametrize(
    ("lines", "ended", "oom_kills", "device_type", "death"),
    [
        ([], None, 0, None, None),
        (["Connected"], None, 3, None, None),
        ([], KILLED, 0, None, Death("it ended: killed (signal 9)")),
        ([], KILLED, 1, None, Death(f"it ended: killed (signal 9){ROSE}", HOST)),
        ([], "exit code 3", 1, None, Death("it ended: exit code 3")),
        (SIGKILL_3, None, 0, "cpu", Death("shard 0 was killed (signal 9)")),
        (SIGKILL_3, "exit code 1", 0, "cpu", Death("shard 0 was killed (signal 9) (exit code 1)")),
        (SIGKILL_2, "exit code 1", 1, "cpu",
         Death(f"shard 0 was killed (signal 9) (exit code 1){ROSE}", HOST)),
        ([OOM, "Shard 0 crashed"], "exit code 1", 0, "cuda",
         Death("CUDA out of memory. Tried to allocate 1.00 GiB (exit code 1)", DEVICE)),
        ([OOM], KILLED, 0, "cuda",
         Death("CUDA out of memory. Tried to allocate 1.00 GiB (killed (signal 9))", DEVICE)),
        ([OOM, *SIGKILL_2], "exit code 1", 0, "cuda",
         Death("shard 0 was killed (signal 9) (exit code 1)")),
        ([f"RuntimeError: {CPU}.", "Shard 0 crashed"], None, 0, "cpu",
         Death(CPU, DEVICE)),
        ([f"RuntimeError: {CPU}.", "Shard 0 crashed"], None, 0, "cuda",
         Death(CPU, HOST)),
    ],
)  # fmt: skip
def test_a_death_is_what_its_evidence_says(
    lines: Sequence[str],
    ended: str | None,
    oom_kills: int,
    device_type: str | None,
    death: Death | None,
) -> None:
    assert death_of(lines, ended, oom_kills, device_type) == death


@dataclass
class Server:
    """It shows its death when it was asked for the nth time."""

    shows: Death | None
    after: int = 0
    endpoint: Endpoint = field(default_factory=lambda: Endpoint("", None, FACTS, None))

    def alive(self) -> bool:
        return True

    def death(self, since: int = 0) -> Death | None:
        del since
        self.after -= 1
        return self.shows if self.after < 0 else None

    def log_length(self) -> int:
        return 0

    def log_tail(self, count: int) -> tuple[str, ...]:
        del count
        return ()


CUT = "decode step 3 of batch size 8: shard_rank 0: UNAVAILABLE: Socket closed"


@pytest.mark.parametrize(
    ("end", "death", "expected"),
    [
        (TrialEnd(Outcome.SHARD_DIED, CUT), Death("shard 0 was killed (signal 9)"),
         TrialEnd(Outcome.SHARD_DIED, f"{CUT}; shard 0 was killed (signal 9)")),
        (TrialEnd(Outcome.SHARD_DIED, CUT), Death("x", HOST), TrialEnd(HOST, f"{CUT}; x")),
        (TrialEnd(Outcome.SHARD_DIED, CUT), Death("CUDA out of memory", DEVICE),
         TrialEnd(DEVICE, f"{CUT}; CUDA out of memory")),
        (TrialEnd(Outcome.FAILED, "a"), Death("b", HOST), TrialEnd(HOST, "a; b")),
        (TrialEnd(DEVICE, "CUDA out of memory. Tried"), Death("shard 0 crashed"),
         TrialEnd(DEVICE, "CUDA out of memory. Tried")),
        (TrialEnd(Outcome.TIMEOUT, "a"), Death("its container is paused"),
         TrialEnd(Outcome.TIMEOUT, "a; its container is paused")),
        (TrialEnd(Outcome.SHARD_DIED, CUT), None, TrialEnd(Outcome.SHARD_DIED, CUT)),
    ],
)  # fmt: skip
def test_a_trial_waits_for_what_the_log_says(
    monkeypatch: pytest.MonkeyPatch, end: TrialEnd, death: Death | None, expected: TrialEnd
) -> None:
    if death is None:
        monkeypatch.setattr(cause, "_LOG_WORD_S", 0.1)
    assert explained(end, Server(death, after=3), 0) == expected


def test_a_server_is_usable_where_nothing_shows_and_its_ranks_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cause, "_DEATH_SHOWS_S", 0.1)
    assert not usable(Server(Death("shard 0 crashed"), after=2), 0, lambda: True)
    assert not usable(Server(None), 0, lambda: False)
    assert usable(Server(None), 0, lambda: True)


def test_a_load_ends_with_its_server_and_not_with_a_result() -> None:
    assert end_of_load(Death("CUDA out of memory", DEVICE)) == TrialEnd(DIED, "CUDA out of memory")
    assert end_of_load(Death("x", HOST)) == TrialEnd(HOST, "x")
    assert end_of_load(Death("killed")) == TrialEnd(DIED, "killed")


def test_a_process_that_the_kernel_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cgroup's counter is read before it starts and when it has ended."""
    events = tmp_path / "memory.events"
    events.write_text("oom 4\noom_kill 4\n")
    monkeypatch.setattr(KillCounter, "of", lambda *_: KillCounter(events))
    with ServerProcess(servers.command(tmp_path, "import os; os.kill(os.getpid(), 9)")) as server:
        wait_for(lambda: not server.alive())
        assert server.death() == Death("it ended: killed (signal 9)")
        events.write_text("oom 5\noom_kill 5\n")
        assert server.death() == Death(f"it ended: killed (signal 9){ROSE}", HOST)


def test_a_process_that_went_to_a_cgroup_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does whose command is `systemd-run --scope`: by then nothing was killed in there."""
    ours, own = tmp_path / "ours", tmp_path / "own"
    ours.write_text("oom_kill 4\n")
    own.write_text("oom_kill 7\n")
    monkeypatch.setattr(KillCounter, "of", lambda pid=None: KillCounter(own if pid else ours))
    with ServerProcess(servers.command(tmp_path, servers.SLEEP)) as server:
        server.became_ready()
        os.kill(server.pid, signal.SIGKILL)
        wait_for(lambda: not server.alive())
        ours.write_text("oom_kill 5\n")
        assert server.death() == Death("it ended: killed (signal 9)")
        own.write_text("oom_kill 8\n")
        assert server.death() == Death(f"it ended: killed (signal 9){ROSE}", HOST)
