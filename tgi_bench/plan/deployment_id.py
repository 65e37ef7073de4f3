"""Ids of deployments: readable, fit for a file name, one for each combination."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256

from tgi_bench.plan.plan import ArgumentValue
from tgi_bench.words import shown

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", re.ASCII)
_LOOKS_OTHERWISE = re.compile(r"none|null|true|false|[0-9.]+(e[-0-9]+)?", re.ASCII | re.IGNORECASE)
_MOST = 120


def deployment_id(variables: Sequence[tuple[str, ArgumentValue]]) -> str:
    """ "num_shard-2+quantize-none" of the variable arguments; "default" where there is none.

    A value that does not read back as itself gets six digits of its SHA-256, and so does an
    id longer than 120 characters.
    """
    if not variables:
        return "default"
    whole = "+".join(f"{name}-{_word(value)}" for name, value in variables)
    if len(whole) <= _MOST:
        return whole
    return f"{whole[: _MOST - 13]}~{_digits(list(map(list, variables)), 12)}"


def _word(value: ArgumentValue) -> str:
    if not isinstance(value, str):
        return "none" if value is None else shown(value).replace("+", "")
    if _PLAIN.fullmatch(value) and not _LOOKS_OTHERWISE.fullmatch(value):
        return value
    plain = re.sub(r"[^A-Za-z0-9._]+", "_", value)[:40].strip("._")
    return f"{plain}~{_digits(value, 6)}"


def _digits(value: object, count: int) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()[:count]
