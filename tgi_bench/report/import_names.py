"""Which row of the estimate's table of accelerators an accelerator of a published table is."""

from __future__ import annotations

import re

_ROWS = {
    "NVIDIA RTX A5000": "RTX-A5000",
    "NVIDIA RTX A6000": "RTX-A6000",
    "NVIDIA RTX 6000 Ada Generation": "RTX-6000-Ada",
    "NVIDIA GeForce RTX 3090": "RTX-3090",
    "NVIDIA GeForce RTX 4090": "RTX-4090",
    "NVIDIA A100-SXM4-80GB": "A100-80GB-SXM",
    "A100 80GB": "A100-80GB-SXM",
}
_MEMORY = re.compile(r" \(\d+ MiB\)", re.ASCII)


def accelerator_row(accelerator: str) -> str | None:
    """The row's name; None where there is none.

    "A100 80GB" does not say whether it is the SXM or the PCIe module: SXM is taken.
    """
    return _ROWS.get(_MEMORY.sub("", accelerator))
