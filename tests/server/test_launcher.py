"""The launcher as a process: its log lines, exit codes, and what it leaves behind."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from tests.server.configs import FLASH, PADDED, engine_config, server_config
from tgi_bench.errors import InputError
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import ServerConfig, Version
from tgi_bench.server.launcher import check_socket_paths, remove_stale_sockets
from tgi_bench.wire import codec
from tgi_bench.wire.messages import Batch, Request, Stopping, TokenChoice

ROOT = Path(__file__).parents[2]


@dataclass
class Launched:
    process: subprocess.Popen[str]
    lines: list[str]

    def until(self, text: str) -> str:
        """Read lines up to the first that holds `text`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r} in:\n{''.join(self.lines)}")

    def ended(self) -> tuple[int, str, str]:
        """Exit code, all of stdout, stderr; stdout ends when the last rank has ended too."""
        rest, errors = self.process.communicate(timeout=10)
        return self.process.returncode, "".join(self.lines) + rest, errors

    def shard_pids(self) -> list[int]:
        """The launcher's children."""
        pid = self.process.pid
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def folder() -> Iterator[str]:
    """A short path: a unix socket's has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="tgi", dir="/tmp") as path:
        yield path


@contextmanager
def launched(config: ServerConfig) -> Iterator[Launched]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.server.serve_all", pickle.dumps(config).hex()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Launched(process, [])
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def in_order(output: str, *texts: str) -> None:
    at = 0
    for text in texts:
        found = output.find(text, at)
        assert found >= 0, f"{text!r} is missing or early in:\n{output}"
        at = found + len(text)


def test_a_whole_life(folder: str) -> None:
    config = server_config((0, 9, 4), f"{folder}/s", engine_config(PADDED, num_shard=2))
    with launched(config) as server:
        server.until(" Connected")
        port = int(re.findall(r"Listening on 127\.0\.0\.1:(\d+)", server.until("Listening"))[0])
        with socket.create_connection(("127.0.0.1", port)):
            pass
        pids = server.shard_pids()
        assert len(pids) == 2
        server.process.send_signal(signal.SIGTERM)
        code, output, errors = server.ended()
    assert (code, errors) == (0, "")
    in_order(
        output,
        'Args { model_id: "bigscience/bloomz-1b1", num_shard: Some(2), quantize: None }',
        "WARN text_generation_launcher: This server is simulated",
        "Sharding model on 2 processes",
        "Starting download process.",
        "Successfully downloaded weights.",
        "Starting shard rank=0",
        "Starting shard rank=1",
        "Shard ready in ",
        "Starting Webserver",
        "Warming up model",
        "Connected",
        "Terminating webserver",
        "Shutting down shards",
    )
    assert os.listdir(folder) == []
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


SAID = (
    "Sharding model on 2 processes",
    "Starting check and download process for",
    "Successfully downloaded weights for",
    "Starting shard",
    "Server started at unix://",
    "Shard ready in",
    "Starting Webserver",
    "Warming up model",
    "Model does not support automatic max batch total tokens",
    "Setting max batch total tokens to",
    "Connected",
    "Terminating webserver",
    "Waiting for webserver to gracefully shutdown",
    "Shutting down shards",
    "shard terminated",
)
"""What 3.3.7 says of a padded model in two ranks, and the embedded server too."""
TRANSCRIPTS = ROOT / "tests" / "transcripts" / "tgi-3.3.7" / "launcher"


def _shapes(lines: list[str]) -> list[tuple[str, object]]:
    """Each thing of SAID when it is first said: as JSON its keys, as text what stands before it."""
    found: dict[str, object] = {}
    for line in lines:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
        for text in SAID:
            if text in plain and text not in found:
                found[text] = _shape(plain, text)
    return list(found.items())


def _shape(line: str, text: str) -> object:
    if not line.startswith("{"):
        before = line.partition(text)[0].partition(" text_generation")[0]
        rank = re.search(r" rank=\d$", line.strip()) is not None
        return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "STAMP", before), rank
    said = json.loads(line)
    for name in ("filename", "line_number"):  # of the router's sources, which are not ours
        said.pop(name, None)
    return {name: sorted(v) if isinstance(v, dict) else None for name, v in said.items()}


@pytest.mark.parametrize("json_output", [True, False])
def test_it_logs_as_a_real_launcher_does(folder: str, json_output: bool) -> None:
    engine = engine_config(PADDED, num_shard=2)
    config = replace(server_config((3, 3, 7), f"{folder}/s", engine), json_output=json_output)
    with launched(config) as server:
        server.until("Listening")
        server.process.send_signal(signal.SIGTERM)
        _, output, _ = server.ended()
    name = "launcher-json-output" if json_output else "launcher-num_shard-2-ok"
    real = _shapes((TRANSCRIPTS / f"{name}.log").read_text().splitlines())
    ours = _shapes(output.splitlines())
    assert len(real) == len(SAID) - json_output  # which was recorded of one rank
    assert dict(ours).items() >= dict(real).items()
    assert [text for text, _ in ours] == list(SAID)


def test_interrupt_of_the_whole_process_group(folder: str) -> None:
    """Ctrl-C reaches the ranks as well: that is no crash."""
    config = server_config((3, 3, 7), f"{folder}/s", engine_config(FLASH))
    with launched(config) as server:
        server.until("Connected")
        for pid in (*server.shard_pids(), server.process.pid):
            os.kill(pid, signal.SIGTERM)
        code, output, errors = server.ended()
    assert (code, errors) == (0, "")
    assert "crashed" not in output
    assert f"Successfully downloaded weights for {FLASH}" in output
    assert "Args {\n    model_id: " in output


def test_a_killed_shard(folder: str) -> None:
    config = server_config((3, 3, 7), f"{folder}/s", engine_config(PADDED, num_shard=2))
    with launched(config) as server:
        server.until("Connected")
        pids = server.shard_pids()
        os.kill(pids[1], signal.SIGKILL)
        code, output, errors = server.ended()
    assert (code, errors) == (1, "Error: ShardFailed\n")
    in_order(
        output,
        "Shard process was signaled to shutdown with signal 9 rank=1",
        "Shard 1 crashed",
        "Terminating webserver",
        "Shutting down shards",
    )
    assert os.listdir(folder) == []


def test_a_killed_launcher_takes_its_shards_along(folder: str) -> None:
    config = server_config((3, 3, 7), f"{folder}/s", engine_config(PADDED, num_shard=2))
    with launched(config) as server:
        server.until("Connected")
        server.process.kill()
        server.ended()  # the pipe ends when the last rank has ended
    assert os.listdir(folder) == []


def test_port_in_use(folder: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with launched(server_config((3, 3, 7), f"{folder}/s", port=port)) as server:
            code, output, errors = server.ended()
    assert (code, errors) == (1, "Error: WebserverFailed\n")
    in_order(output, f"Failed to bind to 127.0.0.1:{port}", "Webserver Crashed")
    assert os.listdir(folder) == []


def test_model_larger_than_memory(folder: str) -> None:
    config = server_config((3, 3, 7), f"{folder}/s", engine_config(FLASH, accelerator="T4"))
    with launched(config) as server:
        code, output, errors = server.ended()
    assert (code, errors) == (1, "Error: ShardCannotStart\n")
    in_order(output, "CUDA out of memory. Tried to allocate", "Shard 0 failed to start")
    assert os.listdir(folder) == []


def test_warmup_out_of_memory_ends_the_server(folder: str) -> None:
    engine = engine_config(FLASH, memory_fraction=0.1961)
    with launched(server_config((3, 3, 7), f"{folder}/s", engine)) as server:
        code, output, errors = server.ended()
    assert code == 1
    assert errors in ("Error: ShardFailed\n", "Error: WebserverFailed\n")
    assert "Not enough memory to handle" in output
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (engine_config(PADDED, num_shard=3), "num_shard 3 does not divide"),
        (engine_config("no/model"), "no/model"),
        (engine_config(accelerator="A1"), "A1"),
    ],
)
def test_arguments_that_cannot_be(folder: str, engine: object, message: str) -> None:
    config = replace(server_config((2, 0, 4), f"{folder}/s"), engine=engine)  # type: ignore[arg-type]
    with launched(config) as server:
        code, _, errors = server.ended()
    assert code == 1
    assert errors.startswith('Error: ArgumentValidation("')
    assert message in errors
    assert errors.count("\n") == 1


def test_long_socket_path(folder: str) -> None:
    with launched(server_config((2, 0, 4), f"{folder}/{'s' * 120}")) as server:
        code, _, errors = server.ended()
    assert code == 1
    assert "a unix socket's path has at most 107" in errors


def test_socket_of_a_living_server(folder: str) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"{folder}/s-0")
        other.listen()
        with launched(server_config((2, 0, 4), f"{folder}/s")) as server:
            code, output, errors = server.ended()
        assert (code, errors) == (1, "Error: ShardCannotStart\n")
        assert "another server listens on" in output
        assert os.listdir(folder) == ["s-0"]


def test_stale_sockets_are_removed(folder: str) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"{folder}/s-0")
    remove_stale_sockets([f"{folder}/s-0", f"{folder}/s-1"])
    assert os.listdir(folder) == []


def test_a_file_is_not_removed(folder: str) -> None:
    Path(f"{folder}/s-0").write_text("kept")
    with pytest.raises(InputError, match="is no socket"):
        remove_stale_sockets([f"{folder}/s-0"])
    with pytest.raises(InputError, match="does not exist"):
        remove_stale_sockets([f"{folder}/missing/s-0"])


@pytest.mark.parametrize(("size", "fits"), [(107, True), (108, False)])
def test_length_of_socket_paths(size: int, fits: bool) -> None:
    path = "/" + "p" * (size - 1)
    if fits:
        check_socket_paths([path])
    else:
        with pytest.raises(InputError, match="has 108 bytes"):
            check_socket_paths([path])


def test_relative_socket_path() -> None:
    with pytest.raises(InputError, match="relative"):
        check_socket_paths(["s-0"])


@pytest.mark.parametrize("version", [(2, 0, 4), (3, 3, 7)])
def test_out_of_memory_ends_the_server(folder: str, version: Version) -> None:
    engine = engine_config(PADDED, accelerator="T4", memory_fraction=0.4)
    config = server_config(version, f"{folder}/s", engine)
    protocol = Behaviour(version).protocol
    text = "word " * 1000
    asked = Request(0, text, 1000, TokenChoice(), Stopping(2))
    payload = codec.encode_prefill(protocol, Batch(1, (asked,) * 16, 16_032, 16))
    with launched(config) as server:
        server.until("Connected")
        with grpc.insecure_channel(f"unix:{config.uds_path(0)}") as channel:
            call = channel.unary_unary(protocol.method("Prefill"), bytes, bytes)
            with pytest.raises(grpc.RpcError):
                call(payload)
        code, output, errors = server.ended()
    assert (code, errors) == (1, "Error: ShardFailed\n")
    in_order(output, "Method Prefill encountered an error.", "Shard 0 crashed", "Shutting down")
    assert os.listdir(folder) == []


def test_the_launcher_forks_before_it_imports_grpc() -> None:
    code = "import sys, tgi_bench.server.launcher; print('grpc' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert told.stdout == "False\n"
