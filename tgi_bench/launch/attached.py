"""A server that runs already: waited for until it answers, and asked what it is."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import NOT_FOUND, OK, SERVICE_UNAVAILABLE
from pathlib import Path
from urllib.parse import urlsplit

from tgi_bench.ask import Contact, contact
from tgi_bench.dialects.identity import LIVELINESS, asked_by, is_litellm
from tgi_bench.dialects.metrics import CAPACITY_METRIC, capacity_of
from tgi_bench.errors import NAME_THE_KEY, LaunchError
from tgi_bench.launch.attach import AttachKeys, base_url
from tgi_bench.launch.deployment import Deployment
from tgi_bench.launch.facts import ServerSaid, clean_identity
from tgi_bench.launch.launcher import Death, Endpoint, LaunchOptions, Progress, RunningServer
from tgi_bench.launch.secrets import Redactor, headers_of
from tgi_bench.observation import ServerFacts

_POLL_S = 0.2
_CONNECT_S = 2.0
_NOBODY_S = 3.0
"""A server that runs already takes connections: where there is none, waiting brings none."""
_LEAST_ABSENT = 3
"""Times that every path is a 404 before nobody is waited for: a router may still be starting."""
_LIVES_S = 0.5
"""For so long a server that answered is taken to live: some ask all that is behind them."""
_HEALTH = ("/health", "/v1/models")
"""An OpenAI-compatible server need not have the first."""
_NO_KEY = (401, 403)


@dataclass(slots=True)
class AttachedServer:
    """A server of somebody else. health_path: the one that answered."""

    endpoint: Endpoint
    contact: Contact
    health_path: str
    _answered_s: float = field(default_factory=time.monotonic)

    def alive(self) -> bool:
        """Whether its health path answers 200, or did half a second ago."""
        if time.monotonic() - self._answered_s < _LIVES_S:
            return True
        answer = self.contact.ask(self.health_path)
        if answer is None or answer.status != OK:
            return False
        self._answered_s = time.monotonic()
        return True

    def death(self, since: int = 0) -> Death | None:
        """That it no longer answers; why is not ours to see."""
        del since
        if self.alive():
            return None
        return Death(f"{self.endpoint.url}{self.health_path} no longer answers")

    def log_length(self) -> int:
        """0: its log is not ours."""
        return 0

    def log_tail(self, count: int) -> tuple[str, ...]:
        """(): its log is not ours."""
        del count
        return ()


@dataclass(frozen=True, slots=True)
class AttachedShards:
    """The shards of somebody else, without a router that would be asked over HTTP."""

    endpoint: Endpoint
    master: Path

    def alive(self) -> bool:
        """Whether the master shard's socket takes connections."""
        return _takes_connections(self.master)

    def death(self, since: int = 0) -> Death | None:
        """That it no longer does; why is not ours to see."""
        del since
        return None if self.alive() else Death(f"{self.master} takes no connections any more")

    def log_length(self) -> int:
        """0: its log is not ours."""
        return 0

    def log_tail(self, count: int) -> tuple[str, ...]:
        """(): its log is not ours."""
        del count
        return ()


@contextmanager
def launch(
    deployment: Deployment, keys: AttachKeys, options: LaunchOptions
) -> Iterator[RunningServer]:
    """The server at server.url, once it answers, or the shards at server.sockets alone; it is left
    as it was found.

    Raises LaunchError where it does not answer within server.timeouts.probe_s, or no connection
    is to be had there for 3 s.
    """
    if keys.url is None:
        yield _shards(keys)
        return
    began_ns = time.monotonic_ns()
    url = base_url(keys.url)
    options.progress(f"asking {url}")
    reached = contact(url, headers_of(deployment, os.environ), keys.verify_tls)
    health_path = _healthy(reached, deployment.timeouts.probe_s, options.progress)
    said = ServerSaid.by(reached)
    master_socket, reason = _socket(keys)
    redactor = Redactor.of(deployment, os.environ)
    details = (("Endpoint", url), ("Found by asking", _found(said, health_path)))
    capacity = capacity_of(reached)
    facts = ServerFacts(
        command=(),
        arguments=None,
        version=said.identity.version,
        capacity_tokens=capacity,
        capacity_source="" if capacity is None else CAPACITY_METRIC,
        simulated=said.info.simulated,
        ready_ns=time.monotonic_ns() - began_ns,
        details=redactor.pairs((*details, *said.details)),
        identity=clean_identity(said.identity, redactor),
    )
    endpoint = Endpoint(url, master_socket, facts, None, reason)
    yield AttachedServer(endpoint, reached, health_path)


def _shards(keys: AttachKeys) -> AttachedShards:
    """Raises LaunchError where there is no socket that takes connections."""
    master, reason = _socket(keys)
    if master is None:
        raise LaunchError(reason)
    if not _takes_connections(master):
        raise LaunchError(f"server.sockets: {master} takes no connections: no shard listens there")
    facts = ServerFacts(
        command=(),
        arguments=None,
        version=None,
        capacity_tokens=None,
        capacity_source="",
        simulated=False,
        ready_ns=0,
        details=(("Endpoint", "the shards alone, by server.sockets"),),
    )
    return AttachedShards(Endpoint("", master, facts, None), master)


def _takes_connections(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plain:
        plain.settimeout(_CONNECT_S)
        try:
            plain.connect(str(path))
        except OSError:
            return False
    return True


def _found(said: ServerSaid, health_path: str) -> str:
    """What a server was found to be able to do, for the run's environment."""
    words = ["text-generation-inference"] if said.info.is_tgi else []
    if said.models:
        words.append("OpenAI dialect")
    return " and ".join(words) or f"{health_path} only"


def _healthy(reached: Contact, timeout_s: float, progress: Progress) -> str:
    """The path that answered 200, waited for. Raises LaunchError."""
    began = time.monotonic()
    absent, waits = 0, False
    if is_litellm(asked_by(reached)):
        return LIVELINESS
    while True:
        statuses: list[int | None] = []
        for path in _HEALTH:
            answer = reached.ask(path)
            statuses.append(None if answer is None else answer.status)
            if statuses[-1] == OK:
                return path
            if statuses[-1] == SERVICE_UNAVAILABLE:
                break  # it says that it is not ready, whatever else it answers
        passed_s = time.monotonic() - began
        _require_reachable(reached, statuses, passed_s, timeout_s)
        absent = absent + 1 if all(status == NOT_FOUND for status in statuses) else 0
        if absent >= _LEAST_ABSENT and passed_s >= min(_NOBODY_S, timeout_s):
            raise LaunchError(_absent(reached.url))
        if passed_s >= timeout_s:
            raise LaunchError(_not_ready(reached.url, statuses, timeout_s))
        if statuses[-1] == SERVICE_UNAVAILABLE and not waits:
            waits = True
            progress(f"waiting: {reached.url}{_HEALTH[len(statuses) - 1]} is HTTP 503")
        time.sleep(_POLL_S)


def _require_reachable(
    reached: Contact, statuses: list[int | None], passed_s: float, timeout_s: float
) -> None:
    """Raise LaunchError where waiting brings nothing: no connection, or no key."""
    for path, status in zip(_HEALTH, statuses, strict=False):
        if status in _NO_KEY:
            raise LaunchError(f"{reached.url}{path} {key_missing(status, reached.headers)}")
    if statuses[-1] is None and passed_s >= min(_NOBODY_S, timeout_s):
        unreachable = _unreachable(reached.url, reached.tls)
        if unreachable is not None:
            raise LaunchError(f"{reached.url} cannot be reached: {unreachable}")


def key_missing(status: int, headers: tuple[tuple[str, str], ...]) -> str:
    """That a server wants an API key, and the options that name it."""
    return f"wants {'another' if headers else 'an'} API key (HTTP {status}): {NAME_THE_KEY}"


def _not_ready(url: str, statuses: list[int | None], timeout_s: float) -> str:
    if statuses[-1] == SERVICE_UNAVAILABLE:
        path = _HEALTH[len(statuses) - 1]
        return (
            f"{url} is not ready: {path} there is still HTTP 503 after {timeout_s:g} s "
            "(server.timeouts.probe_s)"
        )
    return (
        f"{url} does not answer: neither {' nor '.join(_HEALTH)} there gave 200 "
        f"within {timeout_s:g} s (server.timeouts.probe_s)"
    )


def _absent(url: str) -> str:
    """That something else answers there, and the address to try where this one has a path."""
    said = f"{url} is no server that can be measured: {' and '.join(_HEALTH)} there are HTTP 404"
    parts = urlsplit(url)
    if not parts.path.strip("/"):
        return said
    return f"{said}; try {parts.scheme}://{parts.netloc}, without the path"


def _unreachable(url: str, tls: ssl.SSLContext | None) -> str | None:
    """Why there is no connection to be had at all, as "Connection refused"; None where there is."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), _CONNECT_S) as plain:
            if tls is not None:
                tls.wrap_socket(plain, server_hostname=parts.hostname).close()
            return None
    except ssl.SSLCertVerificationError as error:
        return f"its certificate does not verify (server.verify_tls): {error.verify_message}"
    except OSError as error:
        return error.strerror or str(error)


def _socket(keys: AttachKeys) -> tuple[Path | None, str]:
    """The master shard's socket, or why batches cannot be sent. Raises LaunchError."""
    if keys.sockets is None:
        return None, (
            "no socket of the shards is known: name the master's in server.sockets, as in "
            "/tmp/text-generation-server-0"
        )
    path = Path(keys.sockets)
    try:
        there = path.is_socket()
    except OSError as error:
        raise LaunchError(f"server.sockets: {path}: {error.strerror}") from error
    if not there:
        raise LaunchError(f"server.sockets: {path} is no socket of this machine")
    return path, ""
