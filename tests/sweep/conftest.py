"""A tool of its own for each test; nothing that it started may be left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweep.processes import Tool


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Tool]:
    tool = Tool(tmp_path)
    yield tool
    assert tool.left() == {}
