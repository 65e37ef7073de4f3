"""What a ready server says of itself over HTTP. What it does not say is None."""

from __future__ import annotations

import json
import re
import ssl
from dataclasses import dataclass
from http.client import OK, HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from tgi_bench.plan.plan import MODEL_SERVED

_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 24
"""Of an answer that is read."""
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


def tls_context(verify: bool) -> ssl.SSLContext:
    """For https, with the system's certificates. verify: False takes any certificate."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def info_of(url: str, tls: ssl.SSLContext | None = None) -> Info:
    """What /info says. tls: None: the system's certificates, here and below."""
    said = _json(_get(url, "/info", tls))
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


def answers(url: str, path: str, tls: ssl.SSLContext | None = None) -> bool:
    """Whether GET of that path answers 200."""
    return _get(url, path, tls) is not None


def status_of(url: str, path: str, tls: ssl.SSLContext | None = None) -> int | None:
    """The status that GET of that path answers; None where none comes."""
    answer = _answer(url, path, tls)
    return None if answer is None else answer[0]


def served_model(
    url: str, api_key: str | None = None, tls: ssl.SSLContext | None = None
) -> str | None:
    """The first model of /v1/models; None where that does not answer so."""
    match _json(_get(url, "/v1/models", tls, api_key)):
        case {"data": [{"id": str(name)}, *_]}:
            return name
        case _:
            return None


def said_details(info: Info, model: str | None) -> tuple[tuple[str, str], ...]:
    """/info as one line of JSON, and the model that /v1/models, or else /info, names."""
    details = []
    if info.fields:
        text = json.dumps(info.fields, ensure_ascii=False, sort_keys=True)
        details.append(("/info", text))
    named = info.fields.get("model_id")
    model = named if model is None and isinstance(named, str) and named else model
    if model is not None:
        details.append((MODEL_SERVED, model))
    return tuple(details)


def capacity_of(url: str, tls: ssl.SSLContext | None = None) -> int | None:
    """The gauge tgi_batch_max_total_tokens of /metrics (3.0.0 and newer), in tokens."""
    body = _get(url, "/metrics", tls)
    match = None if body is None else _CAPACITY.search(body.decode(errors="replace"))
    if match is None:
        return None
    try:
        return int(float(match[1])) or None
    except (ValueError, OverflowError):
        return None


def _get(
    url: str, path: str, tls: ssl.SSLContext | None, api_key: str | None = None
) -> bytes | None:
    """The body of a 200; None: another status, or no answer."""
    answer = _answer(url, path, tls, api_key)
    return answer[1] if answer is not None and answer[0] == OK else None


def _answer(
    url: str, path: str, tls: ssl.SSLContext | None, api_key: str | None = None
) -> tuple[int, bytes] | None:
    """Status and whole body; None: no answer. Neither proxies nor redirects.

    http.client, for it is there in a fifth of the time that httpx takes to import: a load waits
    for these questions.
    """
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        parts = urlsplit(url)
        if parts.hostname is None:
            return None
        connection: HTTPConnection
        if parts.scheme == "https":
            connection = HTTPSConnection(
                parts.hostname, parts.port, timeout=_TIMEOUT_S, context=tls
            )
        else:
            connection = HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", f"{parts.path}{path}", headers=headers)
            response = connection.getresponse()
            body = response.read(_MOST_BYTES)
            whole = not response.length
        finally:
            connection.close()
    except (OSError, HTTPException, ValueError):
        return None  # ValueError: an address or a key that cannot be sent
    return (response.status, body) if whole else None


def _json(body: bytes | None) -> object:
    try:
        said: object = None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return None
    return said


def _scalars(said: dict[object, object]) -> dict[str, str | int | float | bool | None]:
    return {
        name: value
        for name, value in said.items()
        if isinstance(name, str) and (value is None or isinstance(value, str | int | float))
    }
