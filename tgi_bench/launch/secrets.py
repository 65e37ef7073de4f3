"""Secrets pass to a server by the names of their variables; their values are written nowhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Self
from urllib.parse import quote

from tgi_bench.errors import InputError
from tgi_bench.plan.engines import Engine, engine_spec
from tgi_bench.plan.host_keys import variables_in, with_variables
from tgi_bench.plan.launcher_args import parse_version
from tgi_bench.plan.plan import AttachOptions, Deployment, LauncherKind

MASK = "[redacted]"
HUB_TOKEN, OLD_HUB_TOKEN = "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"
_SINCE_HUB_TOKEN = (2, 1, 0)
_SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_SHORTEST = 8
_LONGEST_LINE = 1 << 16


def secret_names(deployment: Deployment) -> tuple[str, ...]:
    """The variables whose values are redacted: those handed on by name, and the hub's tokens."""
    key = engine_spec(deployment.engine).api_key_variable
    headers = header_variables(deployment)
    return tuple(dict.fromkeys((*deployment.env, *headers, HUB_TOKEN, OLD_HUB_TOKEN, key)))


def require_set(deployment: Deployment, environ: Mapping[str, str]) -> None:
    """Raise InputError where a variable that is to be handed on is not set."""
    for key, names in (
        ("server.env", deployment.env),
        ("server.headers", header_variables(deployment)),
    ):
        if missing := [name for name in names if name not in environ]:
            raise InputError(
                f"{key}: {', '.join(missing)} not set in the environment of tgi-bench: "
                "export it, or leave the name out"
            )


def handed_on(deployment: Deployment, environ: Mapping[str, str]) -> dict[str, str]:
    """Name and value of each variable that the server gets; those not set are left out.

    The hub's token goes by the name that this version of TGI reads, too: HF_TOKEN since 2.1.0,
    HUGGING_FACE_HUB_TOKEN before.
    """
    given = {name: environ[name] for name in deployment.env if name in environ}
    if deployment.engine is not Engine.TGI:
        return given
    newer = parse_version(deployment.tgi_version) >= _SINCE_HUB_TOKEN
    wanted, other = (HUB_TOKEN, OLD_HUB_TOKEN) if newer else (OLD_HUB_TOKEN, HUB_TOKEN)
    if other in given and wanted not in given:
        given[wanted] = given[other]
    return given


def api_key_of(deployment: Deployment, environ: Mapping[str, str]) -> str | None:
    """What requests to the deployment's server carry as their bearer token; None: nothing.

    It is the value of the engine's own variable where server.env names that; for `attach`, whose
    server may be of any engine, else of the one variable that server.env names. A key of the
    shell that the experiment does not name may be of another service.
    """
    given = handed_on(deployment, environ)
    own = given.get(engine_spec(deployment.engine).api_key_variable)
    if own is None and deployment.launcher is LauncherKind.ATTACH and len(deployment.env) == 1:
        return given.get(deployment.env[0])
    return own


def headers_of(deployment: Deployment, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What every question and request to the deployment's server carries beside its own.

    The API key as a bearer token, unless server.headers says another Authorization.
    """
    host = deployment.host
    given = host.headers if isinstance(host, AttachOptions) else ()
    own = tuple((name, with_variables(text, environ)) for name, text in given)
    if any(name.lower() == "authorization" for name, _ in own):
        return own
    return (*bearer(api_key_of(deployment, environ)), *own)


def header_variables(deployment: Deployment) -> tuple[str, ...]:
    """The environment variables that server.headers names."""
    host = deployment.host
    given = host.headers if isinstance(host, AttachOptions) else ()
    return tuple(dict.fromkeys(name for _, text in given for name in variables_in(text)))


def bearer(api_key: str | None) -> tuple[tuple[str, str], ...]:
    """The header that carries a key; () without one."""
    return () if api_key is None else (("Authorization", f"Bearer {api_key}"),)


def redact(text: str, names: Iterable[str], environ: Mapping[str, str]) -> str:
    """The text with MASK in place of the value of each named variable.

    A value shorter than 8 characters is left alone unless its variable's name is one of a
    secret: `HF_HUB_OFFLINE=1` must not take every 1 out of a log.
    """
    return Redactor(names, environ).text(text)


class Redactor:
    """The same for many texts."""

    def __init__(self, names: Iterable[str], environ: Mapping[str, str]) -> None:
        forms = {form for name in names for form in _forms(name, environ.get(name, ""))}
        # The longest first: a value that holds another must not leave its ends behind.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        encoded = [form.encode("utf-8", "surrogateescape") for form in ordered]
        self._text = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._bytes = re.compile(b"|".join(map(re.escape, encoded))) if encoded else None
        self.longest = max(map(len, encoded), default=0)
        """Bytes of the longest value; 0 where there is nothing to redact."""

    def text(self, text: str) -> str:
        """The text without the values."""
        return text if self._text is None else self._text.sub(MASK, text)

    def bytes(self, data: bytes) -> bytes:
        """The bytes without the values."""
        return data if self._bytes is None else self._bytes.sub(MASK.encode(), data)

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Names and texts without the values."""
        return tuple((name, self.text(text)) for name, text in pairs)

    @classmethod
    def of(cls, deployment: Deployment, environ: Mapping[str, str]) -> Self:
        """Of what a deployment's server may know."""
        return cls(secret_names(deployment), environ)


class RedactedStream:
    """A stream of bytes without the values, that comes in pieces: a log as it is written."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be written so far: up to the last line end or carriage return."""
        data = self._held + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end <= _LONGEST_LINE:
            self._held = data[end:]
            return self._redactor.bytes(data[:end])
        # A line without end: all but what may be the beginning of a value.
        clean = self._redactor.bytes(data)
        cut = max(0, len(clean) - self._redactor.longest)
        self._held = clean[cut:]
        return clean[:cut]

    def end(self) -> bytes:
        """What was held back, once the stream is over."""
        held, self._held = self._held, b""
        return self._redactor.bytes(held)


def _forms(name: str, value: str) -> tuple[str, ...]:
    """A value as it may stand in a text: itself, each of its lines, escaped, in a URL."""
    least = 1 if _SECRET_NAME.search(name) else _SHORTEST
    parts = {value.strip(), *(line.strip() for line in value.splitlines())}
    return tuple(
        form
        for part in parts
        if len(part) >= least
        for form in {
            part,
            json.dumps(part)[1:-1],
            json.dumps(part, ensure_ascii=False)[1:-1],
            quote(part.encode("utf-8", "surrogateescape"), safe=""),
        }
    )
