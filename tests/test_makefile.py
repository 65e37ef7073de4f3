"""What `make` hands on to the programs that it calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCKER = """#!/bin/sh
for word in "$@"; do echo "<$word>"; done
"""


@pytest.mark.parametrize("options", ["", "--no-index", "--no-index --retries 0"])
def test_images_are_built_with_the_options_for_pip(tmp_path: Path, options: str) -> None:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER, encoding="utf-8")
    docker.chmod(0o755)
    done = subprocess.run(
        ["make", "-s", "images", f"PIP_OPTIONS={options}", "BASE=base:1", "TGI_VERSIONS=3.3.7"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()
    assert words[words.index(f"<PIP_OPTIONS={options}>") - 1] == "<--build-arg>"
    assert words[words.index("<BASE=base:1>") - 1] == "<--build-arg>"
    assert words.count("<build>") == 2
