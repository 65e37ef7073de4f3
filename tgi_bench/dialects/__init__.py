"""HTTP APIs that a load is sent in, one file each; what stands in DIALECTS is all there is.

Sources that a new one needs: its Dialect of `dialect`, the answers of `answer`.
"""

from __future__ import annotations

from tgi_bench.dialects.dialect import Dialect
from tgi_bench.dialects.openai import CHAT, COMPLETIONS
from tgi_bench.dialects.tgi import TGI

DIALECTS: tuple[Dialect, ...] = (TGI, COMPLETIONS, CHAT)
"""In the order in which a server is asked where none is named."""
AUTO = "auto"
"""Found by asking the server."""
API_NAMES = (AUTO, *(dialect.name for dialect in DIALECTS))
"""Values of `load.api`."""


def speaking(api: str) -> tuple[Dialect, ...]:
    """The one of that name, or all for AUTO. Raises ValueError for another name."""
    found = tuple(dialect for dialect in DIALECTS if api in (AUTO, dialect.name))
    if not found:
        raise ValueError(f"no HTTP API is called {api!r}")
    return found


def first_asked(engine: str) -> Dialect:
    """In which a server of that engine is asked for its first token."""
    return next(d for d in DIALECTS if not d.engines or engine in d.engines)
