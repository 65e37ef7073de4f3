"""Run as a script: asks the kernel for SIGTERM when the parent ends, then becomes a command.

    python -I -S follow_parent.py <parent's pid> <program> [argument ...]

It stands between fork and exec in place of subprocess's preexec_fn, which may not be used
in a process with threads (gRPC has some). It imports nothing of tgi_bench.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def main(argv: list[str]) -> int:
    """Returns only where the command could not be run, with a shell's exit code for that."""
    parent, program = int(argv[0]), argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        print(f"Error: prctl: {os.strerror(ctypes.get_errno())}", file=sys.stderr)  # noqa: T201
        return _NOT_EXECUTABLE
    # The parent may have ended before the kernel was asked.
    if os.getppid() != parent:
        return 128 + signal.SIGTERM
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"Error: {program[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
