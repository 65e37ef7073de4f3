"""The files that a load names: a workload's, and a tokenizer.json.

The latter needs the optional package `tokenizers`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.inert import one_line, shortened
from tgi_bench.plan.corpus import Corpus, parse_corpus
from tgi_bench.plan.workload import require_times
from tgi_bench.trials.load import LoadTrial, TraceTimes, WorkloadFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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


_FILE = "tokenizer.json"
_CUT = "\ufffd"
_PACKAGE = "tokenizers"
_MISSING = (
    "load.tokenizer (`tgi-bench load`: --tokenizer) needs the package tokenizers, which cannot be "
    "imported here: pip install 'tgi-bench[tokenizer]'"
)


def require_package() -> None:
    """Raise InputError, with the command that mends it, where the package is not installed."""
    if find_spec(_PACKAGE) is None:
        raise InputError(_MISSING)


class TokenizerFile:
    """One file, read."""

    def __init__(self, path: str) -> None:
        """path: of a tokenizer.json, or of the folder that it lies in.

        Raises InputError where the package, the file, or a tokenizer in it is missing.
        """
        self._tokenizer = _read(path)

    def count(self, text: str) -> int:
        """Tokens of a generated text: none are added.

        A character that was cut in the middle comes as U+FFFD, which stands for one token and not
        for the three that a bytewise tokenizer would make of it.
        """
        whole = text.replace(_CUT, "")
        tokens = len(self._tokenizer.encode(whole, add_special_tokens=False).ids)
        return tokens + len(text) - len(whole)

    def prompt_counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each prompt, those that the tokenizer adds included."""
        return [len(found.ids) for found in self._tokenizer.encode_batch(list(texts))]


def _read(path: str) -> Tokenizer:
    file = Path(path)
    if file.is_dir():
        file = file / _FILE
    if not file.is_file():
        raise InputError(f"load.tokenizer: there is no file {file}")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError(_MISSING) from error
    try:
        tokenizer: Tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises nothing narrower
        raise InputError(
            f"load.tokenizer: {file} is no tokenizer: {shortened(str(error))}"
        ) from error
    # A file may say that texts are cut or filled up; a server does neither with them.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
