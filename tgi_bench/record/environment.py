"""What a run was made with: facts of the machine and of this program, for the report.

Reports get published: no host name, no user, no path, no environment variable is recorded.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tgi_bench import __version__

_GIT_TIMEOUT_S = 5.0
_GPU_TIMEOUT_S = 10.0
_PACKAGE = Path(__file__).resolve().parent.parent
_UNKNOWN = "unknown"
_NONE_FOUND = "none found"
_NVIDIA = "nvidia-smi"
_COMMIT, _NO_COMMIT = "# branch.oid ", "(initial)"
_COMMIT_CHARACTERS = 12

Facts = tuple[tuple[str, str], ...]


class Questions:
    """What other programs are asked, all at once: they answer while something else is done."""

    def __init__(self, nvidia: str = _NVIDIA) -> None:
        self._state = _git("status", "--porcelain=v2", "--branch", "--", ".")
        # Installed below another project's checkout, that project's commit would say nothing.
        self._tracked = _git("ls-files", "--error-unmatch", "__init__.py")
        query = "--query-gpu=name,driver_version,memory.total"
        self._gpus = _Program([nvidia, query, "--format=csv,noheader"], _GPU_TIMEOUT_S)
        self._cuda = _Program([nvidia], _GPU_TIMEOUT_S)

    def facts(self) -> Facts:
        """Name and value of each, in the order to be shown; "unknown" where it is not said."""
        return (
            ("tgi-bench", self._own_version()),
            ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
            ("Operating system", _operating_system()),
            ("Kernel", f"{platform.system()} {platform.release()} {platform.machine()}"),
            ("CPU", cpu_model(_text_of(Path("/proc/cpuinfo")))),
            ("CPU cores", _cores()),
            ("Memory", memory(_text_of(Path("/proc/meminfo")))),
            ("GPUs", _gpu_rows(self._gpus)),
            ("CUDA", _cuda_version(self._cuda)),
            ("Load average at start", _load()),
            ("Started (UTC)", _now()),
        )

    def resumed(self) -> Facts:
        """What may differ where a run is gone on with: the time, the load, this program."""
        return (
            ("Resumed (UTC)", _now()),
            ("Load average when resumed", _load()),
            ("tgi-bench when resumed", self._own_version()),
        )

    def end(self) -> None:
        """End those that nobody waited for."""
        for program in (self._state, self._tracked, self._gpus, self._cuda):
            program.end()

    def _own_version(self) -> str:
        """The version, and the commit where the package lies in a checkout of its own."""
        said = self._state.said()
        if not self._tracked.said():
            return f"{__version__}, no git commit known"
        if said is None:
            head = _git("rev-parse", "HEAD").said()
            commit, state = "" if head is None else head.strip(), "unknown state"
        else:
            changed = any(not line.startswith("#") for line in _lines(said))
            commit, state = _head(said), "changed tree" if changed else "clean tree"
        if not commit:
            return f"{__version__}, no git commit known"
        return f"{__version__}, commit {commit[:_COMMIT_CHARACTERS]}, {state}"


@contextmanager
def asking() -> Iterator[Questions]:
    """The questions on their way; what still runs at the end is ended."""
    questions = Questions()
    try:
        yield questions
    finally:
        questions.end()


def capture() -> Facts:
    """`Questions.facts`, asked and waited for."""
    with asking() as questions:
        return questions.facts()


def cpu_model(cpuinfo: str) -> str:
    """The first processor's `model name` of /proc/cpuinfo."""
    return _field(cpuinfo, "model name") or platform.processor() or _UNKNOWN


def memory(meminfo: str) -> str:
    """`MemTotal` of /proc/meminfo, there in KiB, as "15.6 GiB"."""
    words = _field(meminfo, "MemTotal").split()
    if not words or not words[0].isdigit():
        return _UNKNOWN
    return f"{int(words[0]) / 2**20:.1f} GiB"


class _Program:
    """A program that was asked something. failure: why it said nothing, once `said` is None."""

    def __init__(
        self, words: list[str], timeout_s: float, environ: dict[str, str] | None = None
    ) -> None:
        self._name, self._timeout_s = words[0], timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._said: str | None = None
        self.failure = ""
        if os.sep not in words[0] and shutil.which(words[0]) is None:
            self.failure = _NONE_FOUND  # a process that finds no program takes as long as one
            return
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
                env=environ,
            )
        except FileNotFoundError:
            self.failure = _NONE_FOUND
        except OSError as error:
            self.failure = f"not known: {words[0]} did not answer ({type(error).__name__})"

    def said(self) -> str | None:
        """What it printed, waited for; None, and `failure`, where it did not answer."""
        if self._process is None:
            return self._said
        try:
            printed, _ = self._process.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            self.failure = f"not known: {self._name} did not answer (TimeoutExpired)"
            return None
        if self._process.returncode == 0:
            self._said = printed
        else:
            self.failure = f"not known: {self._name} exited with {self._process.returncode}"
        self._process = None
        return self._said

    def end(self) -> None:
        """Kill it where it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _gpu_rows(program: _Program) -> str:
    said = program.said()
    if said is None:
        return program.failure
    rows = [", ".join(cell.strip() for cell in line.split(",")) for line in _lines(said)]
    return "; ".join(rows) or _NONE_FOUND


def _cuda_version(program: _Program) -> str:
    said = program.said()
    if said is None:
        return program.failure
    match = re.search(r"CUDA Version: *([0-9.]+)", said)
    return match[1] if match else _UNKNOWN


def _head(status: str) -> str:
    """The commit that `git status --porcelain=v2 --branch` names; "" before the first."""
    commits = (line.removeprefix(_COMMIT) for line in _lines(status) if line.startswith(_COMMIT))
    return next((commit for commit in commits if commit != _NO_COMMIT), "")


def _git(*words: str) -> _Program:
    """What git says of the package's folder."""
    # Inside a git hook these name the hook's repository.
    environ = {name: v for name, v in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(_PACKAGE), *words]
    return _Program(command, _GIT_TIMEOUT_S, environ)


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
