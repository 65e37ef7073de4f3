"""A deployment as a container: command line, ports, GPUs, volumes, labels, image."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.launch.deployments import deployment, docker
from tgi_bench.errors import LaunchError
from tgi_bench.launch import docker_engine
from tgi_bench.launch.docker import DockerLauncher
from tgi_bench.launch.docker_container import ContainerState, _end_words, _refusal
from tgi_bench.launch.docker_engine import ServerImage, _Layers
from tgi_bench.launch.docker_start import Making, create_options, why_no_sockets
from tgi_bench.launch.gpus import NONE, Gpus
from tgi_bench.launch.left_behind import ProcessName
from tgi_bench.plan.plan import Engine, LauncherArgument

STEM = Path("/tmp/tgi-bench-sabc/c/shard")
DOCKER = docker()


def _options(
    launcher: DockerLauncher = DOCKER,
    gpus: Gpus = NONE,
    stem: Path | None = STEM,
    remote: bool = False,
    engine: Engine = Engine.TGI,
    version: str = "0.9.4",
    **arguments: int,
) -> Mapping[str, object]:
    asked = dataclasses.replace(
        deployment(launcher, engine=engine, version=version),
        arguments=tuple(LauncherArgument(n, v, False) for n, v in arguments.items()),
    )
    making = Making(
        asked, launcher.keys, {"tgi-bench.run": "r"}, {"HF_TOKEN": "x"}, gpus, stem, 80, remote
    )
    return create_options(making)


def test_a_plain_container() -> None:
    options = _options(num_shard=2)
    assert options["command"] == [
        *("--model-id", "bigscience/bloomz-1b1", "--num-shard", "2"),
        *("--hostname", "0.0.0.0", "--port", "80", "--shard-uds-path", str(STEM)),
    ]
    # Shards name each other's sockets by path, so both sides must see one path.
    assert options["volumes"] == [f"{STEM.parent}:{STEM.parent}"]
    assert options["ports"] == {"80/tcp": ("127.0.0.1", None)}
    assert options["labels"] == {"tgi-bench.run": "r"}
    assert options["environment"] == {"HF_TOKEN": "x"}
    assert "device_requests" not in options
    assert "--hostname" not in str(_options(version="0.8.2")["command"])


def test_what_the_experiment_asks_for() -> None:
    asked = docker(
        shm_size="1g",
        volumes=["/data:/data"],
        network="bench",
        options={"mem_limit": "64g", "cap_add": ["SYS_PTRACE"]},
    )
    options = _options(asked, stem=None)
    assert options["shm_size"] == "1g"
    assert options["volumes"] == ["/data:/data"]
    assert options["network"] == "bench"
    assert options["mem_limit"] == "64g"
    assert options["cap_add"] == ["SYS_PTRACE"]
    assert "--shard-uds-path" not in str(options["command"])


def test_networks() -> None:
    on_host = _options(docker(network="host"))
    assert on_host["network_mode"] == "host"
    assert "ports" not in on_host
    assert _options(remote=True)["ports"] == {"80/tcp": None}


def test_gpus() -> None:
    (named,) = _list(_options(gpus=Gpus(("1", "3"), 2))["device_requests"])
    assert named["DeviceIDs"] == ["1", "3"]
    assert named["Capabilities"] == [["gpu"]]
    (counted,) = _list(_options(gpus=Gpus((), -1))["device_requests"])
    assert counted["Count"] == -1
    assert not counted["DeviceIDs"]


def _list(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def test_another_engine() -> None:
    options = _options(engine=Engine.SGLANG, stem=None, tp_size=2)
    assert options["command"] == [
        *("python3", "-m", "sglang.launch_server", "--model-path", "bigscience/bloomz-1b1"),
        *("--tp-size", "2", "--host", "0.0.0.0", "--port", "80"),
    ]


@pytest.mark.parametrize("name", ["tty", "stdin_open", "restart_policy"])
def test_options_that_would_break_a_promise(name: str) -> None:
    with pytest.raises(LaunchError, match=rf"server\.docker\.options\.{name}"):
        _options(docker(options={name: True}))


@pytest.mark.parametrize(
    ("name", "nvidia", "shards"),
    [
        ("ghcr.io/huggingface/text-generation-inference:3.3.7", True, True),
        ("ghcr.io/huggingface/text-generation-inference:3.3.7-rocm", False, True),
        ("ghcr.io/huggingface/text-generation-inference:3.3.7-intel-cpu", False, True),
        ("ghcr.io/huggingface/text-generation-inference:3.3.7-trtllm", True, False),
        ("tgi-llamacpp:1", True, False),
        ("intel.example/cpu/text-generation-inference@sha256:00", True, True),
    ],
)
def test_what_an_image_runs_on(name: str, nvidia: bool, shards: bool) -> None:
    image = ServerImage(name, "sha256:0", False, None)
    assert (image.uses_nvidia, image.has_shards) == (nvidia, shards)
    assert not ServerImage(name, "sha256:0", True, None).uses_nvidia


def test_why_there_are_no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    image = ServerImage("tgi:3.3.7", "sha256:0", False, None)
    trtllm = ServerImage("tgi:3.3.7-trtllm", "sha256:0", False, None)
    assert why_no_sockets(deployment(DOCKER), image) == ""
    assert "vLLM has no gRPC shards" in why_no_sockets(deployment(engine=Engine.VLLM), image)
    assert "backend" in why_no_sockets(deployment(DOCKER), trtllm)
    monkeypatch.setenv("DOCKER_HOST", "ssh://user@far.example")
    assert "another machine" in why_no_sockets(deployment(DOCKER), image)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("", None),
        ("unix:///run/docker.sock", None),
        ("tcp://10.0.0.7:2375", "10.0.0.7"),
        ("10.0.0.7:2375", "10.0.0.7"),
        ("ssh://user@far.example:22", "far.example"),
    ],
)
def test_where_an_engine_is(monkeypatch: pytest.MonkeyPatch, text: str, host: str | None) -> None:
    monkeypatch.setenv("DOCKER_HOST", text)
    assert docker_engine.address() == host
    assert docker_engine.is_local() is (host is None)


def test_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with (
        pytest.raises(LaunchError, match=r"^no Docker Engine answers at unix://.*docker\.sock: "),
        docker_engine.engine(),
    ):
        raise AssertionError("it answered")


def test_names_and_labels() -> None:
    name = docker_engine.container_name("20261121T102233Z-0a1b2c", "num_shard-2+quantize-none/ü")
    assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name)
    assert name != docker_engine.container_name("20261121T102233Z-0a1b2c", "num_shard-2")
    long = docker_engine.container_name("r" * 30, "x" * 300)
    assert len(long) < 120
    marks = docker_engine.labels("r", "d", ("0", "1"))
    assert marks["tgi-bench.gpus"] == "0,1"
    assert not docker_engine.owner_is_gone(marks)


def test_whose_owner_is_gone() -> None:
    own = ProcessName.own()
    dead = docker_engine.labels("r", "d", ()) | {
        docker_engine.OWNER_LABEL: f"{own.pid}:{own.started + 1}"
    }
    assert docker_engine.owner_is_gone(dead)
    assert not docker_engine.owner_is_gone({**dead, docker_engine.BOOT_LABEL: "another"})
    assert not docker_engine.owner_is_gone({**dead, docker_engine.NAMESPACE_LABEL: "pid:[1]"})
    assert not docker_engine.owner_is_gone({**dead, docker_engine.OWNER_LABEL: "nonsense"})
    assert not docker_engine.owner_is_gone({**dead, docker_engine.DOMAIN_LABEL: "another"})
    assert not docker_engine.owner_is_gone({})


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (0, "", "exit code 0"),
        (1, "", "exit code 1"),
        (137, "", "killed (signal 9)"),
        (255, "", "exit code 255"),
        (None, "", "it was never started"),
        (127, "exec: no such file", "exec: no such file"),
    ],
)
def test_how_it_ended(code: int | None, error: str, words: str) -> None:
    assert _end_words(ContainerState(False, code, False, error, 0)) == words


def test_refusals_of_the_engine() -> None:
    missing = Exception('could not select device driver "" with capabilities: [[gpu]]')
    assert "NVIDIA Container Toolkit" in _refusal(missing)
    assert _refusal(Exception("no\n  space")) == "the engine did not start the container: no space"


def test_progress_of_a_pull() -> None:
    layers = _Layers()
    for event in (
        {"status": "Pulling from library/x", "id": "3.3.7"},
        {"status": "Pulling fs layer", "id": "a"},
        {"status": "Already exists", "id": "b"},
        {
            "status": "Downloading",
            "id": "a",
            "progressDetail": {"current": 500_000_000, "total": 2_000_000_000},
        },
        {"status": "nothing known"},
    ):
        layers.read(event)
    assert layers.words() == "1 of 2 layers, 0.5 of 2.0 GB"
    layers.read({"status": "Download complete", "id": "a", "progressDetail": {}})
    layers.read({"status": "Pull complete", "id": "a", "progressDetail": {}})
    assert layers.words() == "2 of 2 layers, 2.0 of 2.0 GB"
