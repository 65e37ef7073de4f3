"""The launcher `attach`: a server that runs already is asked, and left as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.launch.deployments import attach, deployment, launch, require_startable
from tests.launch.test_process import wait_for
from tests.launch.test_program import FAKE, _serve
from tgi_bench.ask import contact
from tgi_bench.dialects.identity import Info
from tgi_bench.errors import InputError, LaunchError
from tgi_bench.launch import attached
from tgi_bench.launch.attach import base_url
from tgi_bench.launch.facts import ServerSaid
from tgi_bench.launch.launcher import Death, LaunchOptions
from tgi_bench.launch.process import free_ports
from tgi_bench.observation import Identity
from tgi_bench.plan.plan import MODEL_SERVED, Deployment, Timeouts


def _attached(url: str, socket: str | None = None, probe_s: float = 30.0) -> Deployment:
    return deployment(
        attach(url, socket),
        timeouts=Timeouts(30.0, 30.0, 30.0, probe_s),
    )


def test_a_tgi_server_with_its_sockets(tmp_path: Path) -> None:
    options = LaunchOptions(tmp_path, "run")
    with launch(_serve("2.0.4", num_shard=2), options) as server:
        running = server.endpoint
        asked = _attached(running.url, str(running.master_socket))
        require_startable(asked)
        with launch(asked, options) as attached:
            endpoint, facts = attached.endpoint, attached.endpoint.facts
            assert attached.alive()
            assert attached.death() is None
            assert attached.log_tail(5) == ()
            assert (endpoint.url, endpoint.master_socket) == (running.url, running.master_socket)
            assert endpoint.no_socket_reason == ""
            assert endpoint.log_path is None
            assert facts.version == "2.0.4"
            assert facts.arguments is None
            assert facts.command == ()
            assert facts.simulated
            details = dict(facts.details)
            assert details["Endpoint"] == running.url
            assert details["Found by asking"].startswith("text-generation-inference")
            assert '"max_batch_total_tokens"' in details["/info"]
        assert server.alive()  # it is not ours to stop
        with launch(_attached(running.url), options) as without:
            assert without.endpoint.master_socket is None
            assert "server.sockets" in without.endpoint.no_socket_reason
        server.process.stop()  # type: ignore[attr-defined]
        wait_for(lambda: not attached.alive())
        assert attached.death() == Death(f"{running.url}/health no longer answers")


def test_a_server_of_the_openai_dialect(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    words = [sys.executable, str(FAKE), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as fake:
        try:
            wait_for(lambda: contact(url).ask("/v1/models") is not None)
            with launch(_attached(url), LaunchOptions(tmp_path, "run")) as attached:
                details = dict(attached.endpoint.facts.details)
                assert details["Found by asking"] == "OpenAI dialect"
                assert details["Model served"] == "served-name"
                assert attached.endpoint.facts.version is None
                assert attached.alive()
        finally:
            fake.terminate()


def test_a_url_that_does_not_answer(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with (
        pytest.raises(LaunchError, match=rf"^{url} cannot be reached: Connection refused$"),
        launch(_attached(url, probe_s=0.2), LaunchOptions(tmp_path, "run")),
    ):
        raise AssertionError("it answered")


class _NotFound(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "hint"), [("", ""), ("/api", r"; try http://127\.0\.0\.1:\d+, without the path")]
)
def test_a_server_of_another_kind_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, hint: str
) -> None:
    monkeypatch.setattr(attached, "_NOBODY_S", 0.1)
    with HTTPServer(("127.0.0.1", 0), _NotFound) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}{path}"
            said = rf"^{url} is no server that can be measured: .* are HTTP 404{hint}$"
            with (
                pytest.raises(LaunchError, match=said),
                launch(_attached(url), LaunchOptions(tmp_path, "run")),
            ):
                raise AssertionError("it was taken")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:1/v1", "http://h:1"),
        ("http://h:1/v1/", "http://h:1"),
        ("http://h/x/v1", "http://h/x"),
        ("http://h:1/", "http://h:1/"),
        ("http://v1", "http://v1"),
        ("http://h/xv1", "http://h/xv1"),
    ],
)
def test_the_v1_of_openai_clients_is_left_out(url: str, base: str) -> None:
    assert base_url(url) == base


def test_the_model_is_the_one_served_or_that_of_info() -> None:
    info = Info({"model_id": "a/b", "version": "3.0.0"})
    said = ServerSaid(info, Identity(models=("a/b", "c")), ())
    assert dict(said.details)[MODEL_SERVED] == "a/b"
    nothing = ServerSaid(Info({}), Identity(), ())
    assert nothing.details == ()


def test_sockets_that_are_none(tmp_path: Path) -> None:
    options = LaunchOptions(tmp_path, "run")
    with launch(_serve(), options) as server:
        for path in (tmp_path, tmp_path / "none"):
            with (
                pytest.raises(LaunchError, match=r"server\.sockets: .* is no socket"),
                launch(_attached(server.endpoint.url, str(path)), options),
            ):
                raise AssertionError("it was taken")


def test_a_key_goes_only_where_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server shows its models to whoever has the key."""
    monkeypatch.setenv("API_KEY", "the-key")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    words = [sys.executable, str(FAKE), "--host", "127.0.0.1", "--port", str(port)]
    environ = {**os.environ, "FAKE_KEY": "the-key"}
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environ) as fake:
        try:
            for names, found in (((), None), (("API_KEY",), "served-name")):
                asked = deployment(attach(url), env=names)
                with launch(asked, LaunchOptions(tmp_path, "run")) as attached:
                    assert dict(attached.endpoint.facts.details).get("Model served") == found
        finally:
            fake.terminate()
    monkeypatch.delenv("API_KEY")
    with pytest.raises(InputError, match="API_KEY not set"):
        require_startable(asked)
