"""Golden files: compared as they are, written anew with `pytest --update-golden`."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tgi_bench.launch.left_behind import DOMAIN_MARK

# The machine may be busy, and a test that fails must fail again.
settings.register_profile("tgi-bench", deadline=None, derandomize=True)
settings.load_profile("tgi-bench")

# Whoever starts the tests in the background has them ignore SIGINT and SIGQUIT, nohup SIGHUP, and
# what they start too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Sweeps end what killed ones left: not of tests that run beside these, nor of anybody else.
os.environ[DOMAIN_MARK] = uuid.uuid4().hex[:12]

# Two workers with two threads each on two cores wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

GOLDEN = Path(__file__).parent / "golden"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones first, and sweeps: no worker has one to do when the others have ended."""
    sweeps = Path(__file__).parent / "sweep"
    items.sort(
        key=lambda item: (item.get_closest_marker("long") is None, item.path.parent != sweeps)
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/ anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/golden/NAME, or write it there."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        assert text == expected, f"tests/golden/{name} differs; see `pytest --update-golden`"

    return compare
