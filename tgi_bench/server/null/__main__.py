"""`python -m tgi_bench.server.null`: the null server as a process of its own.

It writes its port as one line to the standard output, then serves until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.server.null.loop import NullServer
from tgi_bench.server.null.timing import StreamPace, encode

_STDIN = 0
_STDOUT = 1


@dataclass(frozen=True, slots=True)
class Options:
    """The command line. log: where to write what was served; None: nowhere."""

    port: int
    pace: StreamPace
    log: Path | None
    until_stdin_ends: bool


def options(words: list[str] | None = None) -> Options:
    """Read a command line; a wrong one ends the process with 2 and a sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m tgi_bench.server.null",
        description="Sends made-up tokens at known times on 127.0.0.1 and logs when it did.",
    )
    parser.add_argument("--port", type=_whole, default=0, help="0: a free one")
    parser.add_argument(
        "--interval-ns",
        type=_whole,
        default=20_000_000,
        help="between a stream's events; 0: the whole answer at once, on arrival",
    )
    parser.add_argument(
        "--first-ns", type=_whole, default=20_000_000, help="from arrival to the first event"
    )
    parser.add_argument(
        "--spread-ns",
        type=_whole,
        default=20_000_000,
        help="a stream's first event comes up to this later, each by its own share",
    )
    parser.add_argument("--log", type=Path, help="file to write at the end what was sent when")
    parser.add_argument(
        "--until-stdin-ends",
        action="store_true",
        help="stop also when the standard input, a pipe, is closed: no server is left behind",
    )
    given = parser.parse_args(words)
    if given.port > 65535:
        parser.error("--port: at most 65535")
    pace = StreamPace(given.interval_ns, given.first_ns, given.spread_ns)
    return Options(given.port, pace, given.log, given.until_stdin_ends)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 0 is needed")
    return int(text)


def main() -> None:
    """Serve."""
    given = options()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = NullServer(given.port, given.pace)
    server.stop_on_signals()
    if given.until_stdin_ends:
        server.stop_when_readable(_STDIN)
    # What is alive now stays: a collection would only be a pause within somebody's stream.
    gc.collect()
    gc.freeze()
    gc.disable()
    os.write(_STDOUT, b"%d\n" % server.port)
    served = server.serve()
    if given.log is not None:
        given.log.write_bytes(encode(served))


if __name__ == "__main__":
    main()
