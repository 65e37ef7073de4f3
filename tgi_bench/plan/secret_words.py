"""Words of a command that look like secrets: a command is recorded, so it may hold none."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

_SECRET = frozenset(
    {
        "apikey",
        "authorization",
        "authtoken",
        "credential",
        "credentials",
        "key",
        "passphrase",
        "passwd",
        "password",
        "secret",
        "secrets",
        "token",
    }
)
"""What the last part of a secret's name is."""

_OF_TEXTS = frozenset({"bos", "cls", "eos", "mask", "pad", "sep", "stop", "unk"})
"""What is a token of a model, and no secret, with "_token" behind it."""

_NAMED = re.compile(r"--?([A-Za-z][A-Za-z0-9._-]*)(?:=(.*))?", re.ASCII | re.DOTALL)
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.ASCII | re.DOTALL)
_HEADER = re.compile(
    r"(authorization|x-api-key|api-key|cookie)\s*:\s*\S|bearer\s+\S", re.IGNORECASE
)
_LOGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@]*:[^/\s@]+@", re.IGNORECASE)
_ISSUED = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[opsu]_[A-Za-z0-9]{20,}"
    r"|github_pat_[A-Za-z0-9_]{20,}|AKIA[0-9A-Z]{16}|glpat-[A-Za-z0-9_-]{16,}"
    r"|nvapi-[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})"
)
"""Secrets that say by their own form what they are: of Hugging Face, OpenAI, GitHub, AWS, ..."""


def is_secret_name(name: str) -> bool:
    """Whether a flag, an argument or a variable of that name holds a secret: HF_TOKEN, api-key.

    max_batch_total_tokens, tokenizer_name and ssl_keyfile do not, nor does eos_token.
    """
    *before, last = re.split(r"[_.-]+", name.lower())
    return last in _SECRET and not (last == "token" and before and before[-1] in _OF_TEXTS)


def secret_in(words: Sequence[str]) -> str | None:
    """What of a command looks like a secret, by its name and never its value; None: nothing.

    `--api-key $API_KEY` in a script of the command's names a variable, and is none.
    """
    return next(_secrets(words), None)


def _secrets(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip(words, (*words[1:], ""), strict=True):
        given = _NAMED.fullmatch(word) or _VARIABLE.fullmatch(word)
        if given is not None:
            value = following if given[2] is None else given[2]
            if is_secret_name(given[1]) and _is_value(given[1], value):
                yield word[: given.end(1)]
        if _HEADER.search(word) and "$" not in word:
            yield "a header that authorises"
        if _LOGIN.search(word):
            yield "a URL with a password"
        if _ISSUED.search(word):
            yield "a key or a token by its form"
        if any(character.isspace() for character in word):
            yield from _secrets(_split(word))


def _is_value(name: str, text: str) -> bool:
    """Not another flag, the name of a variable, a count, or the path of a key's file."""
    path = name.lower().endswith("key") and text.startswith(("/", "./", "~/"))
    return bool(text) and not text.startswith(("-", "$")) and not text.isdecimal() and not path


def _split(script: str) -> list[str]:
    """The words of a script in the command, as of `sh -c`."""
    try:
        return shlex.split(script)
    except ValueError:
        return script.split()
