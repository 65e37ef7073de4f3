"""What the engine raises where memory does not suffice. Imports no torch."""

from __future__ import annotations

_GIB = 2**30
_MIB = 2**20


class OutOfMemory(RuntimeError):  # noqa: N818 - as torch calls it
    """An allocation failed. The message is torch's on CUDA, and in its form on the CPU:

    "CPU out of memory. Tried to allocate 3.00 GiB. ..."
    """


def size_text(value: float) -> str:
    """Bytes as torch prints them: "7.66 GiB", "20.00 MiB", "0 bytes"."""
    if value >= _GIB:
        return f"{value / _GIB:.2f} GiB"
    if value >= _MIB:
        return f"{value / _MIB:.2f} MiB"
    return f"{value / 1024:.2f} KiB" if value >= 1024 else f"{int(value)} bytes"
