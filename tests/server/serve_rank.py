"""One rank as a process of its own, for tests: argv is a pickled ShardRank in hexadecimal."""

from __future__ import annotations

import pickle
import sys

from tgi_bench.server.log import Log
from tgi_bench.server.shard import ShardRank, serve


def main() -> int:
    rank = pickle.loads(bytes.fromhex(sys.argv[1]))
    assert isinstance(rank, ShardRank)
    return serve(rank, Log(False, sys.stderr), lambda: print("ready", flush=True))


if __name__ == "__main__":
    sys.exit(main())
