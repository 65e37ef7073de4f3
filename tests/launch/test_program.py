"""The launcher `process`: real stand-ins of TGI's launcher and of other engines."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.launch.deployments import launch, process, require_startable
from tests.launch.servers import ROOT
from tests.launch.test_process import wait_for
from tgi_bench.errors import InputError, LaunchError
from tgi_bench.launch import process as by_process
from tgi_bench.launch.launcher import Death, LaunchOptions, RunningServer
from tgi_bench.launch.left_behind import ProcessName
from tgi_bench.observation import Outcome
from tgi_bench.plan.plan import Deployment, Engine

SERVE = (sys.executable, "-m", "tgi_bench.cli.main", "serve", "--tgi-version")
FAKE = Path(__file__).with_name("fake_openai.py")


def _serve(version: str = "0.9.4", **arguments: str | int | bool) -> Deployment:
    """The embedded server as if it were TGI's launcher."""
    return process(*SERVE, version, version=version, **arguments)


def _script(text: str, **rest: object) -> Deployment:
    return process(sys.executable, "-c", text, **rest)


def _options(tmp_path: Path, told: list[str] | None = None) -> LaunchOptions:
    told = [] if told is None else told
    return LaunchOptions(tmp_path, "20261121T102233Z-0a1b2c", progress=told.append)


def _refusal(tmp_path: Path, asked: Deployment) -> LaunchError:
    with pytest.raises(LaunchError) as caught, launch(asked, _options(tmp_path)):
        raise AssertionError("it became ready")
    return caught.value


@pytest.mark.parametrize("version", ["0.8.2", "0.9.4", "2.0.4", "3.3.7"])
@pytest.mark.parametrize("json_output", [True, False])
def test_a_launcher_of_any_version(tmp_path: Path, version: str, json_output: bool) -> None:
    told: list[str] = []
    asked = _serve(version, num_shard=2, json_output=json_output)
    with launch(asked, _options(tmp_path, told)) as server:
        endpoint, facts = server.endpoint, server.endpoint.facts
        assert server.alive()
        assert server.death() is None
        assert endpoint.url.startswith("http://127.0.0.1:")
        socket = endpoint.master_socket
        assert socket is not None
        assert socket.is_socket()
        assert facts.version == version
        assert facts.arguments is not None
        arguments = dict(facts.arguments)
        assert arguments["num_shard"] == "Some(2)"
        assert arguments["shard_uds_path"] == f'"{socket.with_name("shard")}"'
        assert arguments["port"] == endpoint.url.rpartition(":")[2]
        assert arguments["master_port"] != "29500"  # two servers of one machine would share it
        assert facts.simulated  # as its /info says
        assert json.loads(dict(facts.details)["/info"])["version"] == version
        assert (facts.command[0], facts.command[-2:][0]) == (sys.executable, "--master-port")
    assert told[-1] == "generating its first token"
    assert not server.alive()
    assert not socket.parent.exists()


def test_a_shard_that_is_killed_ends_the_server(tmp_path: Path) -> None:
    with launch(_serve(num_shard=2), _options(tmp_path)) as server:
        ranks = [p for p in Path("/proc").iterdir() if p.name.isdecimal() and _is_rank(p, server)]
        assert ranks
        os.kill(int(ranks[0].name), signal.SIGKILL)
        wait_for(lambda: not server.alive())
        death = server.death()
        assert death is not None
        killed = rf"shard {_rank_of(server)} was killed \(signal 9\) \(exit code 1\)"
        assert re.fullmatch(killed, death.cause)
        assert death.outcome is Outcome.SERVER_DIED
        assert server.log_tail(50)
        assert server.log_length() > 0
        # What it wrote before is no cause of what comes later.
        later = server.death(since=server.log_length())
        assert later == Death("it ended: exit code 1")


def _rank_of(server: RunningServer) -> str:
    """The rank whose death the log tells."""
    (line,) = [line for line in server.log_tail(50) if "signaled to shutdown" in line]
    return line[-1]


def _is_rank(folder: Path, server: object) -> bool:
    """Whether a process is a child of the server's launcher."""
    pid = server.process.pid  # type: ignore[attr-defined]
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[1] == str(pid)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("exit(0)", "it ended: exit code 0"),
        (
            "import os; os.kill(os.getpid(), 9)",
            "it ended: killed (signal 9)",
        ),
        ("import os; os.write(2, bytes(range(256)) * 99); exit(3)", "it ended: exit code 3"),
        (
            "print('Error: NotEnoughCUDADevices(\"`num_shard` is 4 but 2 found\")'); exit(1)",
            "too few GPUs: `num_shard` is 4 but 2 found (exit code 1)",
        ),
        (
            "print('huggingface_hub.utils.GatedRepoError: 401 Client Error.');"
            "print('Error: DownloadError'); exit(1)",
            "the model is gated, or private: access needs a token that may read it "
            "(server.env: [HF_TOKEN]) (exit code 1)",
        ),
        (
            "print('OSError: no/model is not a local folder and is not a valid model identifier');"
            "exit(1)",
            "the model was not found: no/model is neither a folder nor an id of the hub "
            "(exit code 1)",
        ),
        (
            "print('RepositoryNotFoundError: 404 Client Error.'); exit(1)",
            "the model was not found (RepositoryNotFoundError) (exit code 1)",
        ),
        ("raise MemoryError", "the host ran out of memory: MemoryError (exit code 1)"),
        (
            "import sys; sys.exit('vllm serve: error: unrecognized arguments: --foo 1')",
            "the server refused its arguments: unrecognized arguments: --foo 1 (exit code 1)",
        ),
    ],
)
def test_one_that_ends_says_why(tmp_path: Path, text: str, cause: str) -> None:
    assert str(_refusal(tmp_path, _script(text))) == cause


def test_a_bad_argument_of_a_real_launcher(tmp_path: Path) -> None:
    asked = process(*SERVE, "0.9.4", version="3.3.7", usage_stats="off")
    error = _refusal(tmp_path, asked)
    assert "--usage-stats" in str(error)
    assert error.log_tail
    assert (tmp_path / "launch" / "default.log").read_text().startswith("# tgi-bench: start 1\n")


def test_a_port_that_was_taken_meanwhile_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    marker = tmp_path / "second"
    text = (
        "import os, sys\n"
        f"if not os.path.exists({str(marker)!r}):\n"
        f"    open({str(marker)!r}, 'w').close()\n"
        "    sys.exit('OSError: [Errno 98] Address already in use')\n"
        f"os.execv({SERVE[0]!r}, {[*SERVE, '0.9.4']!r} + sys.argv[1:])"
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with launch(_script(text), _options(tmp_path, told)) as server:
        assert server.alive()
    assert "its port was taken meanwhile, starting again" in told
    marker.unlink()
    monkeypatch.setattr(by_process, "free_ports", lambda count: (1,) * count)
    always = _script("import sys; sys.exit('OSError: [Errno 98] Address already in use')")
    assert "in use already" in str(_refusal(tmp_path, always))


def test_a_command_that_is_not_on_the_path() -> None:
    with pytest.raises(InputError, match=r"`text-generation-launcher` is not on the PATH: install"):
        require_startable(process())
    with pytest.raises(InputError, match=r"`no-such-program` is not on the PATH"):
        require_startable(process("no-such-program", "x"))
    with pytest.raises(InputError, match=r"server\.env: NOT_SET_ANYWHERE not set"):
        require_startable(process(sys.executable, env=("NOT_SET_ANYWHERE",)))
    require_startable(process(sys.executable, env=("PATH",)))


def test_a_server_that_failed_leaves_nothing(tmp_path: Path) -> None:
    text = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "if child: print(os.getpid(), child, 'Shard 0 crashed', flush=True)\n"
        "time.sleep(60)"
    )
    begun = time.monotonic()
    error = _refusal(tmp_path, _script(text))
    assert str(error) == "shard 0 crashed"
    assert time.monotonic() - begun < 20  # it sleeps for 60 s
    for pid in error.log_tail[0].split()[:2]:
        wait_for(lambda pid=pid: ProcessName.of(int(pid)) is None)  # type: ignore[misc]


@pytest.mark.parametrize("engine", [Engine.VLLM, Engine.SGLANG, Engine.LLAMACPP])
def test_other_engines_by_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    monkeypatch.setenv("LLAMA_ARG_PORT", "1")
    monkeypatch.setenv("VLLM_API_KEY", "key-of-vllm")
    monkeypatch.setenv("FAKE_KEY", "")
    monkeypatch.delenv("VLLM_API_KEY") if engine is not Engine.VLLM else None
    told: list[str] = []
    asked = process(
        sys.executable,
        str(FAKE),
        engine=engine,
        version="",
        model="org/model",
        max_model_len=2048,
        enforce_eager=True,
        off=False,
        none=None,
    )
    with launch(asked, _options(tmp_path, told)) as server:
        endpoint = server.endpoint
        assert endpoint.master_socket is None
        assert "has no gRPC shards" in endpoint.no_socket_reason
        assert dict(endpoint.facts.details)["Model served"] == "served-name"
        assert endpoint.facts.arguments is None
        assert endpoint.facts.version is None
        assert not endpoint.facts.simulated
        words = json.loads(server.log_tail(1)[0])
    model = {
        Engine.VLLM: ["org/model"],
        Engine.SGLANG: ["--model-path", "org/model"],
        Engine.LLAMACPP: ["--hf-repo", "org/model"],
    }[engine]
    port = endpoint.url.rpartition(":")[2]
    assert words == [
        *model,
        *("--max-model-len", "2048", "--enforce-eager", "--host", "127.0.0.1", "--port", port),
    ]
    assert told == ["loading 1 of 2", "generating its first token"]


def test_a_program_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`vllm` is looked up, and gets the word `serve` first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    vllm = folder / "vllm"
    vllm.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    vllm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    asked = process(engine=Engine.VLLM, version="", model="org/model", tensor_parallel_size=2)
    require_startable(asked)
    with launch(asked, _options(tmp_path)) as server:
        words = json.loads(server.log_tail(1)[0])
        assert words[:4] == ["serve", "org/model", "--tensor-parallel-size", "2"]
        assert server.endpoint.facts.command[:2] == ("vllm", "serve")
