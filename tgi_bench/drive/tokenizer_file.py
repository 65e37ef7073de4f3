"""Token counts by a tokenizer.json, with the optional package `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.inert import shortened

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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
