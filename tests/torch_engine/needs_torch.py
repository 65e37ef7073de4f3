"""The tests of the engine need the extra `transformers`; without it they are skipped."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

MISSING = [name for name in ("torch", "transformers", "accelerate") if find_spec(name) is None]
needs_torch = pytest.mark.skipif(
    bool(MISSING),
    reason=f"{', '.join(MISSING)} not installed: pip install 'tgi-bench[transformers]'",
)


def skip_without_torch() -> None:
    """For a module that imports torch: skip all of it."""
    if MISSING:
        pytest.skip(
            f"{', '.join(MISSING)} not installed: pip install 'tgi-bench[transformers]'",
            allow_module_level=True,
        )
