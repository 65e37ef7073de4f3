"""What a ready server says of itself over HTTP. What it does not say is None."""

from __future__ import annotations

import re
from dataclasses import dataclass

import httpx

_TIMEOUT_S = 5.0
_CAPACITY = re.compile(r"^tgi_batch_max_total_tokens(?:\{[^}]*\})? ([0-9.eE+]+)\s*$", re.MULTILINE)

CAPACITY_METRIC = "metric tgi_batch_max_total_tokens"


@dataclass(frozen=True, slots=True)
class Info:
    """/info. fields: its scalars; {} where it does not answer. version: None: it does not say.

    simulated: True where it says that its times are not those of a device.
    """

    fields: dict[str, str | int | float | bool | None]
    version: str | None
    simulated: bool

    @property
    def is_tgi(self) -> bool:
        """Whether these are the fields of a text-generation-inference router."""
        return self.version is not None and "model_id" in self.fields


def info_of(url: str) -> Info:
    """What /info says."""
    response = _get(f"{url}/info")
    try:
        said: object = None if response is None else response.json()
    except ValueError:
        said = None
    fields = _scalars(said) if isinstance(said, dict) else {}
    version = fields.get("version")
    return Info(
        fields=fields,
        version=version if isinstance(version, str) else None,
        simulated=fields.get("simulated") is True,
    )


def version_of(url: str) -> str | None:
    """`version` of /info."""
    return info_of(url).version


def answers(url: str, path: str) -> bool:
    """Whether GET of that path answers 200."""
    return _get(f"{url}{path}") is not None


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
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return response if response.status_code == httpx.codes.OK else None


def _scalars(said: dict[object, object]) -> dict[str, str | int | float | bool | None]:
    return {
        name: value
        for name, value in said.items()
        if isinstance(name, str) and (value is None or isinstance(value, str | int | float))
    }
