"""Ready is a generated token; until then phases, and causes of failure soon after the fact."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.launch import servers
from tests.launch.test_process import url_of
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.errors import LaunchError
from tgi_bench.launch.child import ServerProcess
from tgi_bench.launch.readiness import ServerProbe, wait_until_ready
from tgi_bench.plan.plan import Timeouts

LONG = Timeouts(30.0, 30.0, 30.0, 30.0)
SAY = "import time\ndef say(text): print(text, flush=True)\n"


def _wait(
    tmp_path: Path, script: str, timeouts: Timeouts = LONG, engine: Engine = Engine.TGI
) -> list[str]:
    """What the progress was told."""
    told: list[str] = []
    with ServerProcess(servers.command(tmp_path, script)) as server:
        probe = ServerProbe(engine_spec(engine), "m", url_of)
        wait_until_ready(server, probe, timeouts, told.append)
    return told


def _refused(tmp_path: Path, script: str, timeouts: Timeouts = LONG) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        _wait(tmp_path, script, timeouts)
    return caught.value


def test_progress_says_each_step_once(tmp_path: Path) -> None:
    script = SAY + (
        "say('Download: [1/2] -- ETA: 0:00:09'); time.sleep(0.2)\n"
        "say('Download: [1/2] -- ETA: 0:00:09'); time.sleep(0.2)\n"
        "say('Starting shard rank=0'); time.sleep(0.2)\n"
    )
    assert _wait(tmp_path, script + servers.READY + servers.SERVE) == [
        "downloading 1 of 2, 0:00:09 left",
        "starting shards",
        "generating its first token",
    ]


@pytest.mark.parametrize(
    ("line", "timeouts", "message"),
    [
        ("Download: [1/2]", Timeouts(30, 0.3, 30, 30),
         r"within 0\.3 s \(server\.timeouts\.download_s\) of downloading; .*: downloading 1 of 2"),
        ("Warming up model", Timeouts(30, 30, 1.5, 30),
         r"within 1\.5 s \(server\.timeouts\.load_s\) of loading; .*: warming up"),
        ("nothing that is known", Timeouts(30, 30, 1.5, 30), r"server\.timeouts\.load_s"),
    ],
)  # fmt: skip
def test_each_phase_has_its_own_timeout(
    tmp_path: Path, line: str, timeouts: Timeouts, message: str
) -> None:
    error = _refused(tmp_path, SAY + f"say({line!r})\n" + servers.SLEEP, timeouts)
    assert error.log_tail == (line,)
    with pytest.raises(LaunchError, match=message):
        raise error


def test_a_phase_that_is_left_and_comes_back_goes_on_counting(tmp_path: Path) -> None:
    script = SAY + (
        "say('Sharding model on 2 processes'); time.sleep(0.4)\n"
        "say('Starting download process.'); time.sleep(0.4)\n"
        "say('Successfully downloaded weights.')\n"
    )
    begun = time.monotonic()
    error = _refused(tmp_path, script + servers.SLEEP, Timeouts(30, 30, 0.8, 30))
    assert "load_s" in str(error)
    assert time.monotonic() - begun >= 1.1


def test_health_without_a_token_is_not_ready(tmp_path: Path) -> None:
    """It accepts the request and never answers."""
    script = servers.READY + "Handler.do_POST = lambda self: __import__('time').sleep(60)\n"
    error = _refused(tmp_path, script + servers.SERVE, Timeouts(30, 30, 30, 0.5))
    assert "server.timeouts.probe_s" in str(error)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (424, b'{"error": "CUDA error", "error_type": "generation"}', "CUDA error"),
        (422, b'{"error": "too long", "error_type": "validation"}', "too long"),
        (200, b"garbage", "its first generation failed"),
        (200, b'[{"generated_text": "", "details": {"finish_reason": "length", '
              b'"generated_tokens": 0, "prefill": [], "tokens": []}}]', "0 tokens came"),
    ],
)  # fmt: skip
def test_a_first_generation_that_fails(
    tmp_path: Path, status: int, body: bytes, message: str
) -> None:
    script = servers.READY + f"STATUS, TOKEN = {status}, {body!r}\n" + servers.SERVE
    error = _refused(tmp_path, script)
    assert "its first generation failed" in str(error)
    assert message in str(error)


@pytest.mark.parametrize("engine", [Engine.TGI, Engine.VLLM])
@pytest.mark.parametrize("where", ["do_GET", "do_POST"])
def test_one_that_wants_a_key_names_where_it_goes(
    tmp_path: Path, engine: Engine, where: str
) -> None:
    """With the answers of TGI 3.3.7: a 401 without a body."""
    script = servers.READY + (
        "def no(self):\n"
        "    self.send_response(401)\n"
        "    self.send_header('content-length', '0')\n"
        "    self.end_headers()\n"
        f"Handler.{where} = no\n"
    )
    with (
        ServerProcess(servers.command(tmp_path, script + servers.SERVE)) as server,
        pytest.raises(LaunchError) as caught,
    ):
        wait_until_ready(server, ServerProbe(engine_spec(engine), "m", url_of), LONG, print)
    assert "it wants an API key (HTTP 401): name the variable" in str(caught.value)
    assert f"server.env: [{engine_spec(engine).api_key_variable}]" in str(caught.value)


def test_a_launcher_is_asked_after_it_says_that_it_listens(tmp_path: Path) -> None:
    """Another program may answer at the port before: in 3.3.7 it is bound after "Connected"."""
    stranger = servers.READY.replace("print(", "print('INFO x: Args { port: 1 }');print(")
    script = stranger + "print('ERROR x: Failed to bind to 0.0.0.0:1: Address already in use')\n"
    error = _refused(tmp_path, script + servers.SERVE)
    assert str(error) == "its port or socket is in use already: 0.0.0.0:1"
    told = _wait(tmp_path, stranger + "print('INFO x: Connected', flush=True)\n" + servers.SERVE)
    assert told == ["listening", "generating its first token"]


def test_one_that_is_overloaded_is_asked_again(tmp_path: Path) -> None:
    script = servers.READY + (
        "plain, asked = Handler.do_POST, []\n"
        "def busy(self):\n"
        "    global STATUS, TOKEN\n"
        "    asked.append(1)\n"
        "    good = TOKEN\n"
        "    if len(asked) == 1:\n"
        '        STATUS, TOKEN = 429, b\'{"error": "full", "error_type": "overloaded"}\'\n'
        "    plain(self)\n"
        "    STATUS, TOKEN = 200, good\n"
        "Handler.do_POST = busy\n"
    )
    assert _wait(tmp_path, script + servers.SERVE) == ["generating its first token"]


def test_one_that_dies_of_its_first_generation(tmp_path: Path) -> None:
    script = servers.READY + (
        "def die(self):\n"
        "    print('CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0)', flush=True)\n"
        "    __import__('os')._exit(1)\n"
        "Handler.do_POST = die\n"
    )
    error = _refused(tmp_path, script + servers.SERVE)
    assert str(error) == "CUDA out of memory. Tried to allocate 2.00 GiB (exit code 1)"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["Shard 1 crashed", "Shutting down shards"], "shard 1 crashed"),
        (["Shard process was signaled to shutdown with signal 9 rank=0", "Shard 0 failed to start"],
         "shard 0 was killed (signal 9)"),
        (["OSError: You are trying to access a gated repo.", "Download encountered an error: x"],
         "the model is gated, or private: access needs a token that may read it "
         "(server.env: [HF_TOKEN])"),
    ],
)  # fmt: skip
def test_a_part_that_ended_is_known_before_the_launcher_ends(
    tmp_path: Path, lines: list[str], cause: str
) -> None:
    """The launcher takes its time; the failure is told within 2 s of the line."""
    script = SAY + "".join(f"say({line!r})\n" for line in lines)
    begun = time.monotonic()
    error = _refused(tmp_path, script + servers.SLEEP)
    assert str(error) == cause
    assert time.monotonic() - begun < 20  # the script sleeps for 60 s


def test_garbage_in_its_log_hides_nothing(tmp_path: Path) -> None:
    script = "import os\nos.write(1, bytes(range(256)) * 800 + b'\\n')\n"
    assert _wait(tmp_path, script + servers.READY + servers.SERVE)[-1:] == [
        "generating its first token"
    ]


def test_a_secret_is_redacted_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    script = "import os\nprint('token', os.environ['HF_TOKEN'], end='')\nexit(3)"
    command = servers.command(tmp_path, script, "HF_TOKEN")
    assert command.environ["HF_TOKEN"] == "hf_0123456789"
    with ServerProcess(command) as server, pytest.raises(LaunchError) as caught:
        wait_until_ready(server, ServerProbe(engine_spec(Engine.TGI), "m", url_of), LONG, print)
    assert caught.value.log_tail == ("token [redacted]",)
    assert b"hf_0" not in command.log_path.read_bytes()


def test_a_child_that_holds_the_log_open_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    script = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        " start_new_session=True)\n"
        "print('Error: ShardFailed', flush=True)\nos._exit(1)"
    )
    begun = time.monotonic()
    with (
        ServerProcess(servers.command(tmp_path, script, "HF_TOKEN")) as server,
        pytest.raises(LaunchError, match="ShardFailed"),
    ):
        wait_until_ready(server, ServerProbe(engine_spec(Engine.TGI), "m", url_of), LONG, print)
    assert time.monotonic() - begun < 20
    _end_strays()


def _end_strays() -> None:
    """The child above left its group on purpose: end it by its owner's mark."""
    from tgi_bench.launch.left_behind import OWNER_MARK, ProcessName

    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            environ = (folder / "environ").read_bytes()
        except OSError:
            continue
        if f"{OWNER_MARK}={ProcessName.own()}".encode() in environ:
            os.kill(int(folder.name), 9)
