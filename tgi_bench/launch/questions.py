"""What a ready server says of itself over HTTP. What it does not say is None."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http.client import OK, HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from tgi_bench.device_observation import Gauges
from tgi_bench.plan.plan import MODEL_SERVED

_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 24
"""Of an answer that is read."""
_CAPACITY = re.compile(r"^tgi_batch_max_total_tokens(?:\{[^}]*\})? ([0-9.eE+]+)\s*$", re.MULTILINE)

_GAUGES = ("tgi_batch_current_max_tokens", "tgi_batch_current_size", "tgi_queue_size")
_GAUGE = re.compile(rf"^({'|'.join(_GAUGES)})(?:\{{[^}}]*\}})? ([0-9.eE+-]+)\s*$", re.MULTILINE)
_GAUGES_PATH = "/metrics?" + "&".join(f"name%5B%5D={name}" for name in _GAUGES)
"""A server that knows no `name[]` answers with all of its metrics."""

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


def gauge_asker(url: str, verify: bool) -> Callable[[], Callable[[], Gauges]]:
    """Asks for /metrics each time, and gives what reads the answer. verify: as tls_context.

    A server writes its metrics down when it is asked: something else can be done meanwhile.
    """
    tls = tls_context(verify) if url.startswith("https:") else None
    return lambda: _asked_gauges(url, tls)


def _asked_gauges(url: str, tls: ssl.SSLContext | None) -> Callable[[], Gauges]:
    try:
        connection = _connection(url, tls)
        connection.request("GET", f"{urlsplit(url).path}{_GAUGES_PATH}")
    except (OSError, HTTPException, ValueError):
        return lambda: ()
    return lambda: _gauges(_body(_answered(connection)))


def _gauges(body: bytes | None) -> Gauges:
    """Queue and running batch; () where it does not tell."""
    if body is None:
        return ()
    pairs = _GAUGE.findall(body.decode(errors="replace"))
    try:
        return tuple(sorted((name, float(value)) for name, value in pairs))
    except ValueError:
        return ()


def _get(
    url: str, path: str, tls: ssl.SSLContext | None, api_key: str | None = None
) -> bytes | None:
    """The body of a 200; None: another status, or no answer."""
    return _body(_answer(url, path, tls, api_key))


def _body(answer: tuple[int, bytes] | None) -> bytes | None:
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
        connection = _connection(url, tls)
        connection.request("GET", f"{urlsplit(url).path}{path}", headers=headers)
    except (OSError, HTTPException, ValueError):
        return None  # ValueError: an address or a key that cannot be sent
    return _answered(connection)


def _connection(url: str, tls: ssl.SSLContext | None) -> HTTPConnection:
    """Not opened yet. Raises ValueError for an address that is none."""
    parts = urlsplit(url)
    if parts.hostname is None:
        raise ValueError("no host")
    if parts.scheme == "https":
        return HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=tls)
    return HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)


def _answered(connection: HTTPConnection) -> tuple[int, bytes] | None:
    """Status and whole body of what was asked; closes the connection."""
    try:
        response = connection.getresponse()
        body = response.read(_MOST_BYTES)
        whole = not response.length
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
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
