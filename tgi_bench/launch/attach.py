"""The launcher `attach`: a server that runs already. Nothing is started or stopped."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from tgi_bench.devices.take import ELSEWHERE, Take, Whose
from tgi_bench.errors import Problem
from tgi_bench.http_rules import OWN_HEADERS
from tgi_bench.launch.launcher import Launcher, LaunchOptions, RunningServer, ServerAsked
from tgi_bench.sections.section import Section, refused
from tgi_bench.words import shown

if TYPE_CHECKING:
    from tgi_bench.launch.deployment import Deployment

_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_SECRET_HEADER = re.compile(r"token|key|secret|pass|credential|auth|cookie|session", re.IGNORECASE)
_NAMED = re.compile(
    r"(?:[A-Za-z-]{1,16} |[\w.-]{1,32}=)?\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.ASCII
)
_MOST_SOCKET_BYTES = 107


def server_url(value: object) -> str | None:
    """http(s)://host[:port][/path], without a slash at its end."""
    if value is None:
        return None
    text = value.strip().rstrip("/") if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise refused("is no address of a server; write it as http://host:port") from None
    if parts.username is not None or parts.password is not None:
        raise refused("may hold no user and no password: it is recorded")
    good = parts.scheme in ("http", "https") and parts.hostname and port != 0
    if not good or parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", text):
        raise refused(f"`{shown(value)}` is no address of a server; write it as http://host:port")
    return text


def socket_path(value: object) -> str | None:
    """An absolute path that a unix socket can have."""
    if value is None:
        return None
    text = value.removeprefix("unix://") if isinstance(value, str) else ""
    if not text.startswith("/") or "\0" in text or len(text.encode()) > _MOST_SOCKET_BYTES:
        raise refused(
            "must be the absolute path of the master shard's socket, of at most "
            f"{_MOST_SOCKET_BYTES} bytes, as in /tmp/text-generation-server-0"
        )
    return text


def http_headers(value: object) -> dict[str, str]:
    """Names and values of HTTP headers. A value of a secret's name that was written here is refused
    and not shown again: it is recorded."""
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise refused("must be a mapping of names to values, as in {X-Team: search}")
    found: dict[str, str] = {}
    for name, text in value.items():
        if not _HEADER.fullmatch(name):
            raise refused(f"`{shown(name)}` is no name of an HTTP header")
        if name.lower() in OWN_HEADERS:
            raise refused(f"`{shown(name)}` is set by tgi-bench itself")
        if name.lower() in (known.lower() for known in found):
            raise refused(f"`{shown(name)}` is given twice")
        if not isinstance(text, str):
            raise refused(
                f"the value of `{shown(name)}` must be a text, in quotes where it is none"
            )
        if _SECRET_HEADER.search(name) and not _by_name(text):
            raise refused(
                f"the value of `{shown(name)}` is a secret, and headers are recorded: name an "
                "environment variable that holds it, as in `Bearer $MY_KEY` or `$MY_KEY`"
            )
        if re.search(r"[^\x20-\x7e]", text) or text != text.strip():
            raise refused(f"the value of `{shown(name)}` must be printable ASCII on one line")
        found[name] = text
    return found


def _by_name(text: str) -> bool:
    """Whether a secret is named and not written, after `Bearer ` or `session=` at most."""
    return _NAMED.fullmatch(text) is not None


class AttachKeys(Section):
    """Where a running server is reached: by its url, by the master shard's socket, or by both."""

    url: Annotated[str | None, BeforeValidator(server_url, json_schema_input_type=str | None)] = (
        None
    )
    """Read by the launcher `attach`: the running server's http or https address."""
    sockets: Annotated[
        str | None, BeforeValidator(socket_path, json_schema_input_type=str | None)
    ] = None
    """Read by the launcher `attach`: the path of the master shard's socket."""
    verify_tls: bool = True
    """Read by the launcher `attach`: whether an https server's certificate must be valid."""
    headers: Annotated[dict[str, str], BeforeValidator(http_headers)] = Field(default_factory=dict)
    """Read by the launcher `attach`: HTTP headers of every question and request; `$NAME` in a value
    is that environment variable's, as in `Bearer $MY_KEY`, and `$$` is a dollar sign."""


def base_url(url: str) -> str:
    """Without a trailing /v1, which OpenAI's clients want in an address: paths here begin so."""
    whole = url.rstrip("/")
    return whole.removesuffix("/v1") if urlsplit(whole).path.endswith("/v1") else url


@dataclass(frozen=True)
class AttachLauncher(Launcher):
    """A server of somebody else, or its shards alone."""

    name = "attach"
    Keys: ClassVar[type[Section]] = AttachKeys
    started_by_us = False
    said_by_server = True

    keys: AttachKeys

    def problems(self, asked: ServerAsked) -> Iterable[Problem]:
        """There is one server, whose address is needed: of HTTP, where a load is sent."""
        if asked.deployments > 1:
            message = (
                f"gives {asked.deployments} deployments, but the launcher `attach` drives one "
                "server as it runs: give one value each, or choose with --only"
            )
            yield Problem("server.variable", message)
        elif self.keys.url is None and self.keys.sockets is None:
            message = (
                "is missing: the launcher `attach` needs the running server's address, or for "
                "batches alone server.sockets"
            )
            yield Problem("server.url", message)
        elif self.keys.url is None and asked.loads:
            message = "is missing: a load is sent over HTTP, and server.sockets takes batches only"
            yield Problem("server.url", message)

    def words(self, deployment: Deployment) -> str:
        """Its address and socket."""
        return f"{self.keys.url or 'without a router'}, sockets: {self.keys.sockets or 'none'}"

    def notes(self) -> Iterable[str]:
        """Where it is asked at another address than was given."""
        url = self.keys.url
        if url is not None and (base := base_url(url)) != url:
            yield f"{url}: asked at {base}, for the paths that are asked begin with /v1 themselves"

    def devices(self, deployment: Deployment, environ: Mapping[str, str]) -> Take | str:
        """Those of this machine, where it is on it; whose the processes are nobody can tell."""
        # A unix socket is of this machine, wherever its router may be.
        if self.keys.sockets is None and urlsplit(self.keys.url or "").hostname not in _HERE:
            return ELSEWHERE
        return Take(None, 0, True, Whose.UNKNOWN, (os.getpid(),))

    def launch(
        self, deployment: Deployment, options: LaunchOptions
    ) -> AbstractContextManager[RunningServer]:
        """Waits until it answers, and leaves it as it was found."""
        from tgi_bench.launch.attached import launch

        return launch(deployment, self.keys, options)

    @property
    def where(self) -> str:
        """Its address, or its shards' socket."""
        return f"server at {self.keys.url}" if self.keys.url else f"shard at {self.keys.sockets}"

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Those of the experiment."""
        return tuple(self.keys.headers.items())

    @property
    def verify_tls(self) -> bool:
        """As the experiment says."""
        return self.keys.verify_tls
