"""Memory that does not suffice: found and survived, in processes that limit themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.torch_engine.needs_torch import skip_without_torch

skip_without_torch()

if not Path("/proc/self/status").exists():
    pytest.skip("limits of a process's memory are Linux's", allow_module_level=True)

import torch  # noqa: E402

from tests.torch_engine.tiny import write_config  # noqa: E402
from tgi_bench.torch_engine.memory import OutOfMemory, size_text  # noqa: E402
from tgi_bench.torch_engine.model import guarded  # noqa: E402

CHILD = """
import sys
from tests.torch_engine.tiny import spec
from pathlib import Path
from tgi_bench.torch_engine.generation import generate
from tgi_bench.torch_engine.loading import load
from tgi_bench.torch_engine.memory import OutOfMemory
from tgi_bench.torch_engine.memory import limit_data
model = load(spec(Path(sys.argv[1])))
limit_data(64 * 2**20)
prompt = [1] * 64
for batch_size in (1, 4096, 2):
    try:
        made = generate(model, [prompt] * batch_size, 4)
        print(batch_size, len(made.tokens), flush=True)
    except OutOfMemory as error:
        print(batch_size, error, flush=True)
"""

WEIGHTS = """
import sys
from pathlib import Path
from tests.torch_engine.tiny import spec
from tgi_bench.torch_engine import loading
from tgi_bench.torch_engine.memory import OutOfMemory
loading.available_bytes = lambda: 32 * 2**20
try:
    loading.load(spec(Path(sys.argv[1])))
except OutOfMemory as error:
    print(error)
"""


def run(script: str, folder: Path) -> list[str]:
    words = [sys.executable, "-W", "ignore", "-c", script, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_batch_that_does_not_fit_is_survived(tmp_path: Path) -> None:
    """The next one, small enough, is computed in the same process."""
    small, large, again = run(CHILD, write_config(tmp_path, "llama"))
    assert (small, again) == ("1 1", "2 2")
    assert large.startswith("4096 CPU out of memory. Tried to allocate ")
    assert "of private memory of the" in large


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    folder = write_config(tmp_path, "llama", hidden_size=2048, intermediate_size=8192)
    (told,) = run(WEIGHTS, folder)
    assert told.startswith("CPU out of memory. Tried to allocate ")


def test_torchs_own_words_stay() -> None:
    words = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of"

    def step() -> None:
        raise torch.cuda.OutOfMemoryError(words)

    with pytest.raises(OutOfMemory) as caught:
        guarded(step)
    assert str(caught.value) == words
    assert caught.value.__context__ is None  # its frames would hold the step's tensors


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "CUDA out of memory"),
        (RuntimeError("CUDA error: out of memory"), "CUDA error: out of memory"),
        (MemoryError(), "CPU out of memory. Tried to allocate memory"),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
                "allocate memory: you tried to allocate 3221225472 bytes. Error code 12"
            ),
            "CPU out of memory. Tried to allocate 3.00 GiB. This process has ",
        ),
    ],
)
def test_other_libraries_words(error: Exception, words: str) -> None:
    def step() -> None:
        raise error

    with pytest.raises(OutOfMemory, match="out of memory") as caught:
        guarded(step)
    assert str(caught.value).startswith(words)


def test_other_errors_pass() -> None:
    def step() -> None:
        raise RuntimeError("expected all tensors to be on the same device")

    with pytest.raises(RuntimeError, match="same device") as caught:
        guarded(step)
    assert not isinstance(caught.value, OutOfMemory)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (2048, "2.00 KiB"), (20 * 2**20, "20.00 MiB")],
)
def test_sizes(value: int, text: str) -> None:
    assert size_text(value) == text
