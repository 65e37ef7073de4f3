"""What a run was made with: facts of the machine and of this program, for the report.

Reports get published: no host name, no user, no path, no environment variable is recorded.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tgi_bench import __version__

_GIT_TIMEOUT_S = 5.0
_GPU_TIMEOUT_S = 10.0
_PACKAGE = Path(__file__).resolve().parent.parent
_UNKNOWN = "unknown"
_NONE_FOUND = "none found"


def capture() -> tuple[tuple[str, str], ...]:
    """Name and value of each fact, in the order to be shown; "unknown" where it is not said."""
    return (
        ("tgi-bench", _own_version()),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("Operating system", _operating_system()),
        ("Kernel", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("CPU", cpu_model(_text_of(Path("/proc/cpuinfo")))),
        ("CPU cores", _cores()),
        ("Memory", memory(_text_of(Path("/proc/meminfo")))),
        ("GPUs", gpus()),
        ("CUDA", cuda()),
        ("Load average at start", _load()),
        ("Started (UTC)", _now()),
    )


def resumed() -> tuple[tuple[str, str], ...]:
    """What may differ where a run is gone on with: the time, the load, this program."""
    return (
        ("Resumed (UTC)", _now()),
        ("Load average when resumed", _load()),
        ("tgi-bench when resumed", _own_version()),
    )


def cpu_model(cpuinfo: str) -> str:
    """The first processor's `model name` of /proc/cpuinfo."""
    return _field(cpuinfo, "model name") or platform.processor() or _UNKNOWN


def memory(meminfo: str) -> str:
    """`MemTotal` of /proc/meminfo, there in KiB, as "15.6 GiB"."""
    words = _field(meminfo, "MemTotal").split()
    if not words or not words[0].isdigit():
        return _UNKNOWN
    return f"{int(words[0]) / 2**20:.1f} GiB"


def gpus(command: str = "nvidia-smi") -> str:
    """Each GPU's name, driver and memory as nvidia-smi says; "none found" without nvidia-smi."""
    query = [command, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    said, failure = _answer(query)
    if said is None:
        return failure
    rows = [", ".join(cell.strip() for cell in line.split(",")) for line in _lines(said)]
    return "; ".join(rows) or _NONE_FOUND


def cuda(command: str = "nvidia-smi") -> str:
    """The newest CUDA that the driver runs, as the head of nvidia-smi's table says."""
    said, failure = _answer([command])
    if said is None:
        return failure
    match = re.search(r"CUDA Version: *([0-9.]+)", said)
    return match[1] if match else _UNKNOWN


def _answer(words: list[str]) -> tuple[str | None, str]:
    """What nvidia-smi printed; None and why where it did not."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        return None, _NONE_FOUND
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"not known: {words[0]} did not answer ({type(error).__name__})"
    if done.returncode != 0:
        return None, f"not known: {words[0]} exited with {done.returncode}"
    return done.stdout, ""


def _own_version() -> str:
    """The version, and the commit where the package lies in a checkout of its own."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    # Installed below another project's checkout, that project's commit would say nothing.
    tracked = _git("ls-files", "--error-unmatch", "__init__.py")
    if not commit or not tracked:
        return f"{__version__}, no git commit known"
    changed = _git("status", "--porcelain", "--", ".")
    state = "unknown state" if changed is None else "changed tree" if changed else "clean tree"
    return f"{__version__}, commit {commit}, {state}"


def _git(*words: str) -> str | None:
    """What git says of the package's folder; None where it refuses or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(_PACKAGE), *words],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            # Inside a git hook these name the hook's repository.
            env={name: v for name, v in os.environ.items() if not name.startswith("GIT_")},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", _UNKNOWN)
    except OSError:
        return _UNKNOWN


def _cores() -> str:
    """Those this process may use, of those the machine has."""
    return f"{len(os.sched_getaffinity(0))} of {os.cpu_count() or _UNKNOWN}"


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _load() -> str:
    """Processes that wanted to run, over 1, 5 and 15 minutes."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def _field(text: str, name: str) -> str:
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return ""


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
