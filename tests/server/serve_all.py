"""A whole embedded server, for tests: argv is a pickled ServerConfig in hexadecimal."""

from __future__ import annotations

import pickle
import sys

from tgi_bench.server import launcher
from tgi_bench.server.config import ServerConfig

if __name__ == "__main__":
    config = pickle.loads(bytes.fromhex(sys.argv[1]))
    assert isinstance(config, ServerConfig)
    sys.exit(launcher.run(config))
