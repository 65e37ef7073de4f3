"""Failed allocations, told as OutOfMemory whatever library they failed in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import torch

from tgi_bench.torch_engine.out_of_memory import OutOfMemory, size_text
from tgi_bench.torch_engine.process_memory import data_bytes, data_limit_bytes

T = TypeVar("T")

_CPU_ALLOCATION = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")
_ELSEWHERE = ("out of memory", "ALLOC_FAILED", "std::bad_alloc")
"""In errors that are no OutOfMemoryError: of cuBLAS, of the driver, of C++."""


def guarded(step: Callable[[], T]) -> T:
    """The step's result; raises OutOfMemory where memory does not suffice for it."""
    try:
        return step()
    except (RuntimeError, MemoryError) as error:
        told = _told(error)
        if told is None:
            raise
    # Out of the handler: the tensors that the failed step's frames held are free by now.
    raise OutOfMemory(told)


def _told(error: RuntimeError | MemoryError) -> str | None:
    """The sentence; None where the error is another one."""
    text = str(error)
    if isinstance(error, OutOfMemory | torch.cuda.OutOfMemoryError):
        return text
    if (found := _CPU_ALLOCATION.search(text)) is not None:
        return f"CPU out of memory. Tried to allocate {size_text(int(found[1]))}. {_process()}"
    if isinstance(error, MemoryError):
        return f"CPU out of memory. Tried to allocate memory of the process. {_process()}"
    if any(mark in text for mark in _ELSEWHERE):
        return text if "out of memory" in text else f"CUDA out of memory. {text}"
    return None


def _process() -> str:
    taken, limit = data_bytes(), data_limit_bytes()
    held = "" if taken is None else f"This process has {size_text(taken)} of private memory"
    if held and limit is not None:
        held += f" of the {size_text(limit)} that it may have"
    return f"{held}." if held else ""
