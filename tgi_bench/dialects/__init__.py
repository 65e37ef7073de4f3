"""HTTP APIs that a load is sent in, one file each; what stands in NAMES is all there is.

A file is imported when its API is first asked for: a plan needs the names alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tgi_bench.dialects.dialect import Dialect

NAMES = ("tgi", "completions", "chat")
"""Each a file of this package with a DIALECT, and a value of `load.api`; in the order in which a
server is asked where none is named."""
AUTO = "auto"
"""Found by asking the server."""
API_NAMES = (AUTO, *NAMES)
"""Values of `load.api`."""


def speaking(api: str) -> tuple[Dialect, ...]:
    """The one of that name, or all for AUTO. Raises ValueError for another name."""
    if api not in API_NAMES:
        raise ValueError(f"no HTTP API is called {api!r}")
    return tuple(
        import_module(f"{__name__}.{name}").DIALECT for name in NAMES if api in (AUTO, name)
    )


def first_asked(engine: str) -> Dialect:
    """In which a server of that engine is asked for its first token."""
    return next(d for d in speaking(AUTO) if not d.engines or engine in d.engines)
