"""num_shard 2 as two processes on the CPU: both say what one process alone says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.torch_engine.needs_torch import skip_without_torch

skip_without_torch()

import pytest  # noqa: E402
import torch  # noqa: E402

from tests.torch_engine.tiny import spec, write_config  # noqa: E402
from tgi_bench.launch.process import free_ports  # noqa: E402
from tgi_bench.torch_engine.generation import generate  # noqa: E402
from tgi_bench.torch_engine.loading import load  # noqa: E402

RANK = """
import json, sys
from pathlib import Path
from tests.torch_engine.tiny import spec
from tgi_bench.torch_engine.generation import generate
from tgi_bench.torch_engine.loading import load
from tgi_bench.torch_engine.spec import Rank
folder, shard_rank, port = sys.argv[1:]
model = load(spec(Path(folder), seed=5, num_shard=2), Rank(int(shard_rank), 2, int(port)))
made = generate(model, [[1, 2, 3], [4, 5, 6, 7, 8]], 8)
print(json.dumps([made.tokens, model.kv_bytes_per_token, model.weights_bytes]))
"""

if torch.cuda.is_available():
    pytest.skip("ranks would lie on this machine's CUDA devices", allow_module_level=True)


@pytest.mark.long
def test_two_ranks_say_what_one_process_says(tmp_path: Path) -> None:
    folder = write_config(tmp_path, "llama")
    (port,) = free_ports(1)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RANK, str(folder), str(rank), str(port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    alone = load(spec(folder, seed=5))
    tokens = generate(alone, [[1, 2, 3], [4, 5, 6, 7, 8]], 8).tokens
    for output in outputs:
        said, kv_bytes, weights_bytes = json.loads(output.splitlines()[-1])
        assert tuple(map(tuple, said)) == tokens
        # Each has half of the KV heads, and of the layers' matrices.
        assert kv_bytes * 2 == alone.kv_bytes_per_token
        assert weights_bytes < alone.weights_bytes
