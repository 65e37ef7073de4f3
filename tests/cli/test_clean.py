"""`tgi-bench clean`, and what `plan` says of each launcher."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.launch import servers
from tests.launch.test_orphans import _dead_owner, _left
from tests.sweep.real_servers import experiment, tgi_bench

NOWHERE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}


def test_it_says_what_it_ended_and_then_that_nothing_is_left(tmp_path: Path) -> None:
    with _left(servers.SLEEP, _dead_owner()) as orphan:
        done = tgi_bench(tmp_path, "clean", environ=NOWHERE)
        assert orphan.wait(20) == -signal.SIGTERM
    assert done.returncode == 0
    assert "ended 1 process that the killed sweep of run-1 had left\n" in done.stdout
    assert "containers were not looked for: no Docker Engine answers" in done.stdout
    again = tgi_bench(tmp_path, "clean", environ=NOWHERE)
    assert "run-1" not in again.stdout


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"command": "python -m 'my server'", "env": ["HF_TOKEN"]},
            "process python -m 'my server', text-generation-inference 0.9.4\n"
            "  handed on by name: HF_TOKEN\n",
        ),
        ({"engine": "sglang"}, "process python3 -m sglang.launch_server, SGLang 0.9.4\n"),
        ({}, "process text-generation-launcher, text-generation-inference 0.9.4\n"),
    ],
)
def test_plan_of_processes(tmp_path: Path, keys: dict[str, object], said: str) -> None:
    done = tgi_bench(tmp_path, "plan", str(experiment(tmp_path, **keys)))
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_plan_of_containers_and_endpoints(tmp_path: Path) -> None:
    file = experiment(
        tmp_path,
        image="org/tgi:0.9.4",
        docker={"gpus": "all"},
        url="http://host:8080",
        sockets="/tmp/s-0",
        constant={"num_shard": 2},
    )
    docker = tgi_bench(tmp_path, "plan", str(file), "--launcher", "docker").stdout
    assert "docker org/tgi:0.9.4, GPUs: all, text-generation-inference 0.9.4\n" in docker
    counted = tgi_bench(
        tmp_path, "plan", str(file), "--launcher", "docker", "--set", "server.docker.gpus=null"
    ).stdout
    assert "docker org/tgi:0.9.4, GPUs: 2, text-generation-inference" in counted
    attach = tgi_bench(tmp_path, "plan", str(file), "--launcher", "attach").stdout
    assert "attach http://host:8080, sockets: /tmp/s-0, text-generation-inference" in attach


def test_help_names_what_there_is(tmp_path: Path) -> None:
    assert "clean" in tgi_bench(tmp_path, "--help").stdout
    assert "--no-pull" in tgi_bench(tmp_path, "sweep", "--help").stdout
