"""What the process's exit code says."""

from __future__ import annotations

FAILED = 1
BAD_INPUT = 2
INVALID = 3
MISSED = 4
INTERRUPTED = 130
