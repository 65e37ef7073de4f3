"""Ranks of the embedded server as processes: `python -m tests.server.ranks HEX`, a pickled one.

with served(config) as ranks:          # or (config, shard_rank) of one alone
    ranks[0].channel, ranks[0].process
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import grpc

from tgi_bench.server.config import ServerConfig
from tgi_bench.server.log import Log
from tgi_bench.server.shard import ShardRank, serve

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class RankProcess:
    """One that listens. path: of its socket."""

    process: subprocess.Popen[str]
    path: str
    channel: grpc.Channel
    log: IO[str]

    def logged(self) -> str:
        """All that it has written to its log."""
        self.log.seek(0)
        return self.log.read()


def command(config: ServerConfig, rank: int) -> list[str]:
    """What starts one; it prints "ready" once it listens."""
    told = pickle.dumps(ShardRank(config, rank)).hex()
    return [sys.executable, "-m", "tests.server.ranks", told]


@contextmanager
def served(config: ServerConfig, *shard_ranks: int) -> Iterator[tuple[RankProcess, ...]]:
    """These ranks, or all of them; killed where they still live at the end."""
    wanted = shard_ranks or range(config.engine.num_shard)
    with ExitStack() as stack:
        ranks = []
        for rank in wanted:
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            process = subprocess.Popen(
                command(config, rank), cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            path = config.uds_path(rank)
            options = [("grpc.max_send_message_length", -1)]
            channel = grpc.insecure_channel(f"unix:{path}", options)
            ranks.append(RankProcess(process, path, stack.enter_context(channel), log))
        for one in ranks:
            assert one.process.stdout is not None
            assert one.process.stdout.readline() == "ready\n", one.logged()
        yield tuple(ranks)


def main() -> int:
    """A rank's process."""
    rank = pickle.loads(bytes.fromhex(sys.argv[1]))
    assert isinstance(rank, ShardRank)
    return serve(rank, Log(False, sys.stderr), lambda: print("ready", flush=True))


if __name__ == "__main__":
    sys.exit(main())
