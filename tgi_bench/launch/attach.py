"""The launcher `attach`: a server that runs already. Nothing is started or stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.errors import InputError, LaunchError
from tgi_bench.launch.endpoint import Endpoint, LaunchOptions, RunningServer
from tgi_bench.launch.facts import said_details
from tgi_bench.launch.probe import served_model
from tgi_bench.launch.questions import (
    CAPACITY_METRIC,
    Info,
    answers,
    capacity_of,
    info_of,
)
from tgi_bench.launch.secrets import Redactor, handed_on
from tgi_bench.observation import ServerFacts
from tgi_bench.plan.engines import engine_spec
from tgi_bench.plan.plan import AttachOptions, Deployment

_POLL_S = 0.2
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

    def alive(self) -> bool:
        """Whether its health path answers 200."""
        return answers(self.endpoint.url, self.health_path)

    def death_cause(self) -> str | None:
        """That it no longer answers; why is not ours to see."""
        if self.alive():
            return None
        return f"{self.endpoint.url}{self.health_path} no longer answers"

    def log_tail(self, count: int) -> tuple[str, ...]:
        """(): its log is not ours."""
        del count
        return ()


@contextmanager
def launch(deployment: Deployment, options: LaunchOptions) -> Iterator[RunningServer]:
    """The server at server.url, once it answers; it is left as it was found.

    Raises LaunchError where it does not answer within server.timeouts.probe_s, and InputError
    where the deployment has no address.
    """
    host = deployment.host
    if not isinstance(host, AttachOptions):
        raise InputError("server.url is missing: the launcher `attach` needs it")
    began_ns = time.monotonic_ns()
    # A key of the shell that the experiment does not name may be of another service.
    key = handed_on(deployment, os.environ).get(engine_spec(deployment.engine).api_key_variable)
    options.progress(f"asking {host.url}")
    able = _found(host.url, deployment.timeouts.probe_s, key)
    socket, reason = _socket(host)
    redactor = Redactor.of(deployment, os.environ)
    details = (("Endpoint", host.url), ("Found by asking", able.sentence()))
    capacity = capacity_of(host.url)
    facts = ServerFacts(
        command=(),
        arguments=None,
        version=able.info.version,
        capacity_tokens=capacity,
        capacity_source="" if capacity is None else CAPACITY_METRIC,
        simulated=able.info.simulated,
        ready_ns=time.monotonic_ns() - began_ns,
        details=redactor.pairs((*details, *said_details(host.url, able.info, key))),
    )
    yield AttachedServer(Endpoint(host.url, socket, facts, None, reason), able.health_path)


def _found(url: str, timeout_s: float, api_key: str | None) -> Abilities:
    deadline = time.monotonic() + timeout_s
    while True:
        for path in _HEALTH:
            if answers(url, path):
                return Abilities(path, info_of(url), served_model(url, api_key))
        if time.monotonic() >= deadline:
            raise LaunchError(
                f"{url} does not answer: neither {' nor '.join(_HEALTH)} there gave 200 "
                f"within {timeout_s:g} s (server.timeouts.probe_s)"
            )
        time.sleep(_POLL_S)


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
