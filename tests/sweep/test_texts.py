"""Which texts a run sends: new ones, but for a seed that is given and a run that goes on."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.sweep.processes import Tool, rest_of

SHORT: dict[str, object] = {"prompt_tokens": 20, "output_tokens": 2}
ENDED = (0, 3)


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


def experiment(folder: Path, server: FaultyServer, **load: object) -> Path:
    file = folder / "loads.yaml"
    tree = {
        "experiment": "loads",
        "model": "auto",
        "server": {"launcher": "attach", "url": server.url},
        "load": {"concurrency": 2, "warmup": 0, **load},
    }
    file.write_text(json.dumps(tree), encoding="utf-8")
    return file


def texts(server: FaultyServer, since: int = 0) -> dict[str, str]:
    """Of each request of the load, by its number."""
    return {
        one.request_id: str(one.body["inputs"]) for one in server.asked[since:] if one.request_id
    }


def sent(tool: Tool, server: FaultyServer, **workload: object) -> dict[str, str]:
    """By a run of its own."""
    since = len(server.asked)
    file = experiment(tool.folder, server, requests=12, workload={**SHORT, **workload})
    done = tool.sweep(file)
    assert done.returncode in ENDED, done.stdout + done.stderr
    return texts(server, since)


def test_no_two_runs_send_a_text_but_with_a_seed(tool: Tool, server: FaultyServer) -> None:
    one, two = sent(tool, server), sent(tool, server)
    assert len(one) == len(two) == 12
    assert not set(one.values()) & set(two.values())
    heads = {" ".join(text.split()[:4]) for text in (*one.values(), *two.values())}
    assert len(heads) == 24
    assert sent(tool, server, seed=0) == sent(tool, server, seed=0) != one
    pages = (tool.results / "loads").glob("*/num_shard-*.md")
    said = ["texts repeat those of other runs with seed 0" in page.read_text() for page in pages]
    assert sorted(said) == [False, False, True, True]


def test_a_run_that_goes_on_sends_the_texts_that_it_had_begun_with(
    tool: Tool, server: FaultyServer
) -> None:
    file = experiment(tool.folder, server, duration="60s", workload=SHORT)
    halves: list[dict[str, str]] = []
    for options in ((), ("--resume",)):
        since = len(server.asked)
        with tool.started(file, *options) as process:
            deadline = time.monotonic() + 30
            while len(texts(server, since)) < 12:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert "Traceback" not in rest_of(process)
        halves.append(texts(server, since))
    first, second = halves
    both = first.keys() & second.keys()
    assert len(both) >= 12
    assert all(first[name] == second[name] for name in both)
