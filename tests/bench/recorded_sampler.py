"""The sampler's program with a fake NVML of eight GPUs, for machines that have none.

python -m tests.bench.recorded_sampler <parent's process id> <powercap folder>
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.record.fake_nvml import FakeNvml, Gpu
from tgi_bench.record.telemetry_nvml import Nvml
from tgi_bench.record.telemetry_sampler import Sampler, ThisMachine

GPUS = 8


def fake_nvml() -> Nvml:
    """Eight GPUs, each with one process on it."""
    return FakeNvml(*(Gpu(uuid=f"GPU-{i}", pids=(4_190_000 + i,)) for i in range(GPUS)))


def main() -> None:
    """What the benchmark starts."""
    Sampler(ThisMachine(Path(sys.argv[2]), fake_nvml)).run(int(sys.argv[1]))


if __name__ == "__main__":
    main()
