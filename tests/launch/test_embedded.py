"""The embedded launcher: its command line, a real start, and refusals."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tests.launch.deployments import command_of, embedded, launch
from tgi_bench.errors import LaunchError
from tgi_bench.launch.child import environ_for
from tgi_bench.launch.launcher import LaunchOptions
from tgi_bench.plan.plan import ArgumentValue, Deployment, Engine, LauncherArgument, Timeouts


def _deployment(version: str = "0.9.4", **arguments: ArgumentValue) -> Deployment:
    return Deployment(
        deployment_id="default",
        launcher=embedded(),
        model="bigscience/bloomz-1b1",
        image=None,
        tgi_version=version,
        version_assumed=False,
        arguments=tuple(LauncherArgument(n, v, False) for n, v in arguments.items()),
        accelerator="A100-40GB-SXM",
        engine=Engine.TGI,
        env=(),
        timeouts=Timeouts(600.0, 600.0, 600.0, 60.0),
    )


def test_the_command_line_has_its_own_address() -> None:
    asked = _deployment(num_shard=2, port=3000, hostname="0.0.0.0", shard_uds_path="/x")
    words = command_of(asked, Path("/tmp/s/shard"))
    assert words[words.index("--model-id") :] == (
        *("--model-id", "bigscience/bloomz-1b1", "--num-shard", "2"),
        *("--hostname", "127.0.0.1", "--port", "0", "--shard-uds-path", "/tmp/s/shard"),
    )
    assert "--hostname" not in command_of(_deployment("0.8.2"), Path("/tmp/s/shard"))


def test_variables_that_are_arguments_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_TOTAL_TOKENS", "7")
    monkeypatch.setenv("HF_HOME", "kept")
    monkeypatch.setenv("CUDA_MEMORY_FRACTION", "0.5")
    environ = environ_for(_deployment("0.9.4"))
    assert not {"MAX_TOTAL_TOKENS", "CUDA_MEMORY_FRACTION"} & set(environ)
    assert environ["HF_HOME"] == "kept"
    assert environ["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize("version", ["0.9.4", "3.3.7"])
def test_a_real_start(tmp_path: Path, version: str) -> None:
    with launch(_deployment(version, num_shard=2), LaunchOptions(tmp_path, "run")) as server:
        facts = server.endpoint.facts
        assert server.alive()
        socket = server.endpoint.master_socket
        assert socket is not None
        assert socket.is_socket()
        assert facts.simulated
        assert facts.version == version
        assert facts.arguments is not None
        assert dict(facts.arguments)["num_shard"] == "Some(2)"
        # A Bloom model is padded: log and metric name a budget of the router, and no room.
        assert facts.capacity_tokens is None
        assert facts.capacity_source == ""
        assert server.endpoint.log_path == tmp_path / "launch" / "default.log"
        assert server.log_tail(1)
    assert not server.alive()
    assert not socket.parent.exists()


def test_a_model_that_is_not_known(tmp_path: Path) -> None:
    asked = dataclasses.replace(_deployment(), model="nobody/nothing")
    with (
        pytest.raises(LaunchError, match=r"nobody/nothing.*exit code 2"),
        launch(asked, LaunchOptions(tmp_path, "run")),
    ):
        raise AssertionError("it started")
