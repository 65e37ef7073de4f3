"""A workload's file, read from the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from tgi_bench.errors import InputError
from tgi_bench.inert import one_line
from tgi_bench.plan.corpus import Corpus, parse_corpus
from tgi_bench.plan.load_trial import LoadTrial, TraceTimes, WorkloadFile
from tgi_bench.plan.workload import require_times

MOST_BYTES = 1 << 30


def require_files(trials: Iterable[LoadTrial]) -> None:
    """Read each workload's file, before anything is started that needs it.

    Raises InputError as `read_corpus`, and where a trace's file has no times.
    """
    for trial in trials:
        if trial.workload.file is not None:
            corpus, _ = read_corpus(trial.workload.file)
            if isinstance(trial.arrivals, TraceTimes):
                require_times(corpus)


@lru_cache(maxsize=1)
def read_corpus(file: WorkloadFile) -> tuple[Corpus, str]:
    """The file's requests, and the SHA-256 (hex) of its bytes.

    Raises InputError: missing, no regular file, unreadable, longer than MOST_BYTES, not UTF-8, or
    a line that is not of its kind. The last one read is kept: a run asks for it for each trial.
    """
    name = one_line(file.path)
    data = _bytes(Path(file.path), name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}:{line}: is not text in UTF-8") from None
    return parse_corpus(file.kind, text, file.path), sha256(data).hexdigest()


def _bytes(path: Path, name: str) -> bytes:
    try:
        # Without O_NONBLOCK a pipe that nobody writes to would be waited for without end.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise InputError(f"{name}: is no regular file, which a workload's must be")
            if found.st_size > MOST_BYTES:
                raise InputError(
                    f"{name}: is {found.st_size} bytes long; at most {MOST_BYTES} are read"
                )
            return stream.read()
    except FileNotFoundError:
        raise InputError(f"{name}: no such workload file (workload.file.path)") from None
    except IsADirectoryError:
        raise InputError(f"{name}: is a directory, not a workload file") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{name}: cannot be read: {error}") from None
