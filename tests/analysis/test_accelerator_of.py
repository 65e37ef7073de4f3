"""Which row of the table of accelerators a run's device is."""

from __future__ import annotations

import pytest

from tgi_bench.analysis.accelerator_of import published_row, row_of
from tgi_bench.estimate.tables import accelerator_names


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("NVIDIA A100-SXM4-40GB, 535.104.05, 40960 MiB", "A100-40GB-SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A40", "A40"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX A5000", "RTX-A5000"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("none found", None),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA T400", None),
        ("", None),
    ],
)
def test_the_row_of_a_name(name: str, row: str | None) -> None:
    assert row_of(name) == row
    assert row is None or row in accelerator_names()
    assert published_row(name) == row


def test_a_published_table_does_not_say_which_module_its_a100_is() -> None:
    assert published_row("A100 80GB") == "A100-80GB-SXM"
    assert row_of("NVIDIA A100 80GB PCIe") is published_row("NVIDIA A100 80GB PCIe") is None
