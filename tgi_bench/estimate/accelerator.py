"""What one device offers: rates, memory, links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tgi_bench.estimate.rows import Row, find, table

TABLE = "accelerators.yaml"
GIB = 2**30

DRIVER_RESERVED_BYTES = 0.6 * GIB
"""Memory that driver and firmware keep from every process.

A 40 GB A100 offers 39.4 of its 40 GiB, an 80 GB A100 about 79.3 of 80 (85.1e9 bytes).
"""

INLINE_ECC_SHARE = 1 / 16
"""Share of GDDR memory that holds the error correction bits where `inline_ecc` is true."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device. Rates are data sheet peaks, dense.

    flop_per_s: of fp16 and bfloat16 tensor cores; fp32_flop_per_s: without TF32.
    int8_op_per_s, tf32_flop_per_s: None where the device or the source has none.
    usable_bytes: memory a process can allocate.
    nvlink_bytes_per_s, pcie_bytes_per_s: one direction; nvlink 0 where there is none.
    nvlink_devices: devices in one NVLink domain; 1 where there is none.
    """

    name: str
    flop_per_s: float
    fp32_flop_per_s: float
    tf32_flop_per_s: float | None
    int8_op_per_s: float | None
    bfloat16: bool
    bytes_per_s: float
    usable_bytes: int
    tdp_w: float
    nvlink_bytes_per_s: float
    nvlink_devices: int
    pcie_bytes_per_s: float


def _tera(value: float | None) -> float | None:
    return None if value is None else value * 1e12


def _usable_bytes(nameplate_gib: float, inline_ecc: bool) -> int:
    share = 1 - INLINE_ECC_SHARE if inline_ecc else 1.0
    return int(nameplate_gib * GIB * share - DRIVER_RESERVED_BYTES)


def _from_row(row: Row) -> Accelerator:
    return Accelerator(
        name=row.name,
        flop_per_s=row.required_number("fp16_flop_per_s_tera") * 1e12,
        fp32_flop_per_s=row.required_number("fp32_flop_per_s_tera") * 1e12,
        tf32_flop_per_s=_tera(row.number("tf32_flop_per_s_tera")),
        int8_op_per_s=_tera(row.number("int8_op_per_s_tera")),
        bfloat16=row.flag("bfloat16"),
        bytes_per_s=row.required_number("memory_bandwidth_gb_per_s") * 1e9,
        usable_bytes=_usable_bytes(
            row.required_number("memory_nameplate_gib"), row.flag("inline_ecc")
        ),
        tdp_w=row.required_number("tdp_w"),
        # The table has both directions summed; a ring step sends in one.
        nvlink_bytes_per_s=row.required_number("nvlink_total_gb_per_s") * 1e9 / 2,
        nvlink_devices=row.integer("nvlink_devices", 1),
        pcie_bytes_per_s=row.required_number("pcie_gb_per_s") * 1e9,
    )


@cache
def accelerator(name: str) -> Accelerator:
    """The device of that name; InputError with the nearest names and all of them."""
    return _from_row(find(TABLE, "accelerator", name))


def accelerator_names() -> tuple[str, ...]:
    """Every accelerator of the table, in its order."""
    return tuple(table(TABLE))
