"""What a ready server says of itself over HTTP. What it does not say is None."""

from __future__ import annotations

import re

import httpx

_TIMEOUT_S = 5.0
_CAPACITY = re.compile(r"^tgi_batch_max_total_tokens(?:\{[^}]*\})? ([0-9.eE+]+)\s*$", re.MULTILINE)

CAPACITY_METRIC = "metric tgi_batch_max_total_tokens"


def version_of(url: str) -> str | None:
    """`version` of /info."""
    response = _get(f"{url}/info")
    if response is None:
        return None
    try:
        info: object = response.json()
    except ValueError:
        return None
    match info:
        case {"version": str(version)}:
            return version
        case _:
            return None


def capacity_of(url: str) -> int | None:
    """The gauge tgi_batch_max_total_tokens of /metrics (3.0.0 and newer), in tokens."""
    response = _get(f"{url}/metrics")
    match = _CAPACITY.search(response.text) if response is not None else None
    if match is None:
        return None
    try:
        return int(float(match[1])) or None
    except (ValueError, OverflowError):
        return None


def _get(url: str) -> httpx.Response | None:
    try:
        response = httpx.get(url, timeout=_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError:
        return None
    return response if response.status_code == httpx.codes.OK else None
