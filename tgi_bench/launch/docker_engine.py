"""The Docker Engine that the environment names (DOCKER_HOST): asked, and its errors in one line."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import docker
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from tgi_bench.errors import LaunchError

LOCAL = "127.0.0.1"
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_CONNECT_S = 10.0
_TIMEOUT_S = 60
_SENTENCE_CHARACTERS = 300

ENGINE_ERRORS = (DockerException, RequestException)
"""What the SDK raises: its own errors, and those of the connection."""


@contextmanager
def engine() -> Iterator[docker.DockerClient]:
    """A client of the engine. Raises LaunchError where none answers."""
    _require_listener()
    try:
        client = docker.from_env(timeout=_TIMEOUT_S, use_ssh_client=_host().startswith("ssh://"))
    except ENGINE_ERRORS as error:
        raise LaunchError(f"no Docker Engine answers at {_shown()}: {sentence(error)}") from error
    try:
        _require_answer(client)
        yield client
    finally:
        client.close()


def address() -> str | None:
    """The engine's host as this machine reaches its published ports; None for this machine."""
    url = _host()
    if not url or url.startswith("unix://"):
        return None
    return urlsplit(url if "://" in url else f"tcp://{url}").hostname


def is_local() -> bool:
    """Whether the engine shares this machine's files."""
    return address() is None


def sentence(error: BaseException) -> str:
    """What an error of the engine says, on one line."""
    text = error.explanation if isinstance(error, APIError) else None
    line = " ".join(str(text or error).split()).removeprefix("Error while fetching server ")
    return line[:_SENTENCE_CHARACTERS]


def facts(client: docker.DockerClient) -> tuple[tuple[str, str], ...]:
    """What runs the containers, for the record."""
    info = client.info()
    return tuple(
        (name, text)
        for name, text in (
            ("container engine", f"Docker {info.get('ServerVersion', '')}".rstrip()),
            ("container runtime", str(info.get("DefaultRuntime", ""))),
            ("container host", str(info.get("OperatingSystem", ""))),
            ("container host's kernel", str(info.get("KernelVersion", ""))),
            ("container storage driver", str(info.get("Driver", ""))),
        )
        if text
    )


def _require_listener() -> None:
    """The SDK leaves its connection open where nobody answers, so it is tried before."""
    url = _host() or _DEFAULT_HOST
    parts = urlsplit(url if "://" in url else f"tcp://{url}")
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(_CONNECT_S)
                probe.connect(parts.netloc + parts.path)
        elif parts.scheme in ("tcp", "http", "https") and parts.hostname and parts.port:
            socket.create_connection((parts.hostname, parts.port), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise LaunchError(f"no Docker Engine answers at {_shown()}: {error}") from error


def _require_answer(client: docker.DockerClient) -> None:
    try:
        client.ping()
    except ENGINE_ERRORS as error:
        raise LaunchError(f"no Docker Engine answers at {_shown()}: {sentence(error)}") from error


def _host() -> str:
    return os.environ.get("DOCKER_HOST", "")


def _shown() -> str:
    return _host() or f"{_DEFAULT_HOST} (set DOCKER_HOST for another)"
