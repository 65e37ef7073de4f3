"""How many kinds of bad input do not end in one clear message, exit code 2 and no traceback."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.bench.figures import Figure

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cli" / "test_bad_input.py"


def run() -> tuple[Figure, ...]:
    """Runs the tests that hold the cases, and counts those that fail."""
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "cases.xml"
        command = [sys.executable, "-m", "pytest", "-q", str(CASES), f"--junitxml={junit}"]
        subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        suite = ElementTree.parse(junit).getroot()[0]
    cases = int(suite.attrib["tests"])
    wrong = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    return (Figure("bad inputs without one message and exit 2", 0, wrong, "", f"{cases} cases"),)
