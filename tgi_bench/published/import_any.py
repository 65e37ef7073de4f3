"""Which published table a text holds, told by what it holds."""

from __future__ import annotations

import re

from tgi_bench.published import bigcode, h2ogpt, torchcap
from tgi_bench.published.imported_table import ImportedTable
from tgi_bench.published.reading import items, refused

_OF_STEPS = re.compile(r"^#+ Tensor Parallel \(TP\) - \d+ GPU", re.MULTILINE | re.ASCII)


def read_table(text: str) -> ImportedTable | None:
    """The table; None where the text holds none that is known, or one of TGI's steps.

    Raises TableError where a known one does not parse, and where there are two kinds.
    """
    if _OF_STEPS.search(text):
        return None
    found = tuple(items(text))
    readers = {
        "h2oGPT": h2ogpt,
        "bigcode-inference-benchmark": bigcode,
        "TorchCAP": torchcap,
    }
    names = [name for name, reader in readers.items() if reader.holds(found)]
    if len(names) > 1:
        raise refused(1, f"tables of {' and '.join(names)} in one file: import one at a time")
    return readers[names[0]].read(text) if names else None
