"""The sampler's program with a fake NVML of eight GPUs, for machines that have none.

python -m tests.bench.recorded_sampler <parent's process id> <powercap folder>
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.devices.fake_nvml import FakeNvml, Gpu
from tgi_bench.devices.sampler import Sampler, ThisMachine
from tgi_bench.devices.sources import Nvml

GPUS = 8


def fake_nvml() -> Nvml:
    """Eight GPUs, each with one process on it."""
    return FakeNvml(*(Gpu(uuid=f"GPU-{i}", pids=(4_190_000 + i,)) for i in range(GPUS)))


def main() -> None:
    """What the benchmark starts."""
    Sampler(ThisMachine(Path(sys.argv[2]), fake_nvml)).run(int(sys.argv[1]))


if __name__ == "__main__":
    main()
