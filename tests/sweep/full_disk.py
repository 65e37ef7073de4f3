"""A sweep on a disk that fills up, and its --resume once there is room again.

    unshare --mount python -m tests.sweep.full_disk FOLDER EXPERIMENT LINE SPARE

Its results lie on a file system of their own, 32 MiB in memory, which is mounted where this runs:
in a mount namespace. Once the sweep has printed LINE it is filled but for SPARE bytes. Prints what
came of it as JSON and leaves the results in FOLDER/kept.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.sweep.processes import Tool, read_until, rest_of

_BYTES = 32 << 20


def main(folder: Path, experiment: Path, line: str, spare: int) -> None:
    """As the module says."""
    tool = Tool(folder)
    tool.results.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_BYTES}", "none", str(tool.results)]
    subprocess.run(mount, check=True)
    with tool.started(experiment) as process:
        output = read_until(process, line)
        filler = tool.results / "filler"
        _fill(filler, spare)
        output += rest_of(process)
        code = process.returncode
    left = tool.left()
    filler.unlink()
    resumed = tool.sweep(experiment, "--resume")
    shutil.copytree(tool.results, folder / "kept")
    said = resumed.stdout + resumed.stderr
    print(json.dumps({"code": code, "said": output, "left": left, "resumed": said}))


def _fill(filler: Path, spare: int) -> None:
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(b"x" * 4096)
        except OSError:
            os.ftruncate(stream.fileno(), max(0, stream.tell() - spare))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
