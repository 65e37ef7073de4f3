"""An engine that is reached over TCP: its containers serve, their sockets cannot be reached."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import docker
import pytest

from tests.docker.sweeps import FINE, Sweeps, outcomes, rows

NOBODY = 65534


@pytest.fixture
def tcp_host(client: object) -> Iterator[str]:
    """DOCKER_HOST of a TCP port that leads to the engine's unix socket."""
    engine = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not engine.startswith("unix://"):
        pytest.skip("the engine is not behind a unix socket")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, engine[7:]), daemon=True).start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        # A thread in accept() does not see its listener closed; this wakes it.
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, path: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_relay, args=(client, path), daemon=True).start()


def _relay(client: socket.socket, path: str) -> None:
    with ExitStack() as stack:
        stack.enter_context(client)
        engine = stack.enter_context(socket.socket(socket.AF_UNIX))
        with contextlib.suppress(OSError):
            engine.connect(path)
            other = {client: engine, engine: client}
            while True:
                for source in select.select(list(other), [], [])[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    other[source].sendall(data)


def test_batches_say_why_they_cannot_be_sent(sweeps: Sweeps, tcp_host: str) -> None:
    code, output = sweeps.run(sweeps.experiment(), environ={"DOCKER_HOST": tcp_host})
    (run_dir,) = sweeps.run_dirs()
    assert rows(run_dir, "SELECT failure FROM starts") == [(None,)], output
    found = outcomes(run_dir)
    assert {outcome for outcome, _ in found.values()} == {"refused"}
    assert all("Docker Engine is on another machine" in reason for _, reason in found.values())
    assert code != 0, "a sweep that measured nothing must not look as if it had"


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can become another user, by setpriv",
)
def test_sockets_of_a_containers_root_serve_another_user(
    client: docker.DockerClient, image: str
) -> None:
    engine = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    group = os.stat(engine.removeprefix("unix://")).st_gid
    folders = [Path(tempfile.mkdtemp(prefix="tb", dir="/tmp")) for _ in range(2)]
    for folder in folders:
        os.chown(folder, NOBODY, NOBODY)
    sweeps = Sweeps(client, image, folders[0], folders[1])
    try:
        experiment = sweeps.experiment(server=json.dumps({"variable": {"num_shard": [2]}}))
        code, output = sweeps.run_as(NOBODY, group, experiment)
        assert code in FINE, output
        (run_dir,) = sweeps.run_dirs()
        assert {outcome for outcome, _ in outcomes(run_dir).values()} == {"ok"}
        assert sweeps.containers() == []
        assert list(sweeps.temporary.iterdir()) == []
    finally:
        sweeps.end()
        shutil.rmtree(sweeps.folder)
