"""The launcher `attach`: a server that runs already. Nothing is started or stopped."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import NOT_FOUND, OK
from pathlib import Path
from urllib.parse import urlsplit

from tgi_bench.errors import InputError, LaunchError
from tgi_bench.launch.endpoint import Death, Endpoint, LaunchOptions, RunningServer
from tgi_bench.launch.questions import (
    CAPACITY_METRIC,
    Info,
    answers,
    capacity_of,
    info_of,
    said_details,
    served_model,
    status_of,
    tls_context,
)
from tgi_bench.launch.secrets import Redactor, api_key_of
from tgi_bench.observation import ServerFacts
from tgi_bench.plan.plan import AttachOptions, Deployment

_POLL_S = 0.2
_CONNECT_S = 2.0
_NOBODY_S = 3.0
"""A server that runs already takes connections: where there is none, waiting brings none."""
_LEAST_ABSENT = 3
"""Times that every path is a 404 before nobody is waited for: a router may still be starting."""
_HEALTH = ("/health", "/v1/models")
"""An OpenAI-compatible server need not have the first."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a running server was found to be able to do. health_path: the one that answered."""

    health_path: str
    info: Info
    model: str | None

    def sentence(self) -> str:
        """For the run's environment."""
        words = ["text-generation-inference"] if self.info.is_tgi else []
        if self.model is not None:
            words.append("OpenAI dialect")
        return " and ".join(words) or f"{self.health_path} only"


@dataclass(frozen=True, slots=True)
class AttachedServer:
    """A server of somebody else."""

    endpoint: Endpoint
    health_path: str
    tls: ssl.SSLContext | None

    def alive(self) -> bool:
        """Whether its health path answers 200."""
        return answers(self.endpoint.url, self.health_path, self.tls)

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


@contextmanager
def launch(deployment: Deployment, options: LaunchOptions) -> Iterator[RunningServer]:
    """The server at server.url, once it answers; it is left as it was found.

    Raises LaunchError where it does not answer within server.timeouts.probe_s, or no connection
    is to be had there for 3 s, and InputError where the deployment has no address.
    """
    host = deployment.host
    if not isinstance(host, AttachOptions):
        raise InputError("server.url is missing: the launcher `attach` needs it")
    began_ns = time.monotonic_ns()
    key = api_key_of(deployment, os.environ)
    url = base_url(host.url)
    options.progress(f"asking {url}")
    tls = tls_context(host.verify_tls) if url.startswith("https:") else None
    able = _found(url, deployment.timeouts.probe_s, key, tls)
    master_socket, reason = _socket(host)
    redactor = Redactor.of(deployment, os.environ)
    details = (("Endpoint", url), ("Found by asking", able.sentence()))
    capacity = capacity_of(url, tls)
    facts = ServerFacts(
        command=(),
        arguments=None,
        version=able.info.version,
        capacity_tokens=capacity,
        capacity_source="" if capacity is None else CAPACITY_METRIC,
        simulated=able.info.simulated,
        ready_ns=time.monotonic_ns() - began_ns,
        details=redactor.pairs((*details, *said_details(able.info, able.model))),
    )
    endpoint = Endpoint(url, master_socket, facts, None, reason)
    yield AttachedServer(endpoint, able.health_path, tls)


def base_url(url: str) -> str:
    """Without a trailing /v1, which OpenAI's clients want in an address: paths here begin so."""
    whole = url.rstrip("/")
    return whole.removesuffix("/v1") if urlsplit(whole).path.endswith("/v1") else url


def _found(
    url: str, timeout_s: float, api_key: str | None, tls: ssl.SSLContext | None
) -> Abilities:
    began = time.monotonic()
    absent = 0
    while True:
        statuses = []
        for path in _HEALTH:
            statuses.append(status_of(url, path, tls))
            if statuses[-1] == OK:
                return Abilities(path, info_of(url, tls), served_model(url, api_key, tls))
        passed_s = time.monotonic() - began
        absent = absent + 1 if all(status == NOT_FOUND for status in statuses) else 0
        if absent >= _LEAST_ABSENT and passed_s >= min(_NOBODY_S, timeout_s):
            raise LaunchError(_absent(url))
        unreachable = _unreachable(url, tls)
        if unreachable is not None and passed_s >= min(_NOBODY_S, timeout_s):
            raise LaunchError(f"{url} cannot be reached: {unreachable}")
        if passed_s >= timeout_s:
            raise LaunchError(
                f"{url} does not answer: neither {' nor '.join(_HEALTH)} there gave 200 "
                f"within {timeout_s:g} s (server.timeouts.probe_s)"
            )
        time.sleep(_POLL_S)


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


def _socket(host: AttachOptions) -> tuple[Path | None, str]:
    """The master shard's socket, or why batches cannot be sent. Raises LaunchError."""
    if host.master_socket is None:
        return None, (
            "no socket of the shards is known: name the master's in server.sockets, as in "
            "/tmp/text-generation-server-0"
        )
    path = Path(host.master_socket)
    try:
        there = path.is_socket()
    except OSError as error:
        raise LaunchError(f"server.sockets: {path}: {error.strerror}") from error
    if not there:
        raise LaunchError(f"server.sockets: {path} is no socket of this machine")
    return path, ""
