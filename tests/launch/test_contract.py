"""What every launcher keeps: it starts, is ready, ends on every path, and names what killed it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.docker.images import NoImageError, embedded_image
from tests.launch.deployments import attach, deployment, docker, embedded, launch, process
from tests.launch.servers import ROOT
from tests.launch.test_process import wait_for
from tests.launch.test_program import SERVE
from tgi_bench.ask import contact
from tgi_bench.errors import LaunchError
from tgi_bench.launch import LAUNCHERS
from tgi_bench.launch.child import ReadyProcess
from tgi_bench.launch.docker_engine import RUN_LABEL, engine
from tgi_bench.launch.launcher import LaunchOptions, RunningServer
from tgi_bench.launch.left_behind import end_left
from tgi_bench.plan.plan import Deployment

SECRET = "hf_ThisIsNobodysToken123"
RUN = "20261121T102233Z-0a1b2c"


@dataclass(frozen=True)
class Case:
    """A deployment that can be started here. kill: ends its server as somebody else would.

    cause: what is then said of it.
    """

    asked: Deployment
    kill: Callable[[RunningServer], None]
    cause: str = "killed (signal 9)"


def killed(server: RunningServer) -> None:
    assert isinstance(server, ReadyProcess)
    os.killpg(server.process.pid, signal.SIGKILL)


@contextmanager
def by_docker(_folder: Path) -> Iterator[Case]:
    try:
        with engine() as client:
            asked = replace(deployment(docker(gpus="0")), image=embedded_image(client))

            def kill(_server: RunningServer) -> None:
                for found in client.api.containers(filters={"label": f"{RUN_LABEL}={RUN}"}):
                    client.api.kill(found["Id"])

            yield Case(asked, kill)
    except NoImageError as error:
        pytest.skip(f"SKIPPED, NO REAL CONTAINERS WERE TESTED: {error}")
    except LaunchError as error:
        if "no Docker Engine answers" not in str(error):
            raise
        pytest.skip(f"SKIPPED, NO REAL CONTAINERS WERE TESTED: {error}")


@contextmanager
def by_process(_folder: Path) -> Iterator[Case]:
    yield Case(process(*SERVE, "0.9.4"), killed)


@contextmanager
def by_embedded(_folder: Path) -> Iterator[Case]:
    yield Case(deployment(embedded()), killed)


@contextmanager
def by_attach(folder: Path) -> Iterator[Case]:
    with launch(process(*SERVE, "0.9.4"), LaunchOptions(folder / "theirs", RUN)) as theirs:
        asked = deployment(attach(theirs.endpoint.url, str(theirs.endpoint.master_socket)))
        yield Case(asked, lambda _server: killed(theirs), "no longer answers")


CASES = {"docker": by_docker, "process": by_process, "embedded": by_embedded, "attach": by_attach}
pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture(params=[launcher.name for launcher in LAUNCHERS])
def case(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Case]:
    """Of each launcher, with a variable that is handed on to its server by name."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with CASES[str(request.param)](tmp_path) as made:
        yield replace(made, asked=replace(made.asked, env=("HF_TOKEN",)))


def answers(url: str) -> bool:
    answer = contact(url).ask("/health")
    return answer is not None and answer.status == 200


def test_it_starts_and_ends_what_it_started(case: Case, tmp_path: Path) -> None:
    case.asked.launcher.require_startable(case.asked)
    options = LaunchOptions(tmp_path, RUN)
    for failure in (None, KeyboardInterrupt, LaunchError):
        with _left_by(failure), launch(case.asked, options) as server:
            url = server.endpoint.url
            assert server.alive()
            assert server.death() is None
            assert answers(url)
            assert server.endpoint.master_socket is not None
            assert server.endpoint.facts.simulated
            if failure is not None:
                raise failure("of the test")
        assert answers(url) is not case.asked.launcher.started_by_us
        assert server.alive() is not case.asked.launcher.started_by_us


@contextmanager
def _left_by(failure: type[BaseException] | None) -> Iterator[None]:
    if failure is None:
        yield
        return
    with pytest.raises(failure, match="of the test"):
        yield


def test_what_killed_it_is_named(case: Case, tmp_path: Path) -> None:
    with launch(case.asked, LaunchOptions(tmp_path, RUN)) as server:
        case.kill(server)
        wait_for(lambda: server.death() is not None)
        death = server.death()
        assert death is not None
        assert case.cause in death.cause
        wait_for(lambda: not server.alive())


def test_secrets_are_in_no_fact_and_no_log(case: Case, tmp_path: Path) -> None:
    with launch(case.asked, LaunchOptions(tmp_path, RUN)) as server:
        facts, tail = repr(server.endpoint.facts), "".join(server.log_tail(1000))
    assert SECRET not in facts + tail
    logs = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.log")]
    assert SECRET not in "".join(logs)


_OWNER = """
import sys
from pathlib import Path
from tests.launch import test_contract as contract
with contract.CASES[sys.argv[1]](Path(sys.argv[2])) as case:
    options = contract.LaunchOptions(Path(sys.argv[2]), contract.RUN)
    with contract.launch(case.asked, options) as server:
        print(server.endpoint.url, flush=True)
        sys.stdin.read()
"""


def test_what_a_killed_sweep_left_is_ended(case: Case, tmp_path: Path) -> None:
    kind = type(case.asked.launcher)
    words = [sys.executable, "-c", _OWNER, kind.name, str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True
    ) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        assert answers(url)
        owner.kill()
    left = end_left((kind,))
    assert left.not_asked == ()
    wait_for(lambda: not answers(url))
    assert end_left((kind,)).sentences() == ()
