"""Which texts a start of the tool sends: new ones, but for a seed that is given."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.mark.long
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


@pytest.mark.parametrize("seed", [None, 0])
def test_a_run_that_goes_on_sends_new_texts_but_with_a_seed(
    tool: Tool, server: FaultyServer, seed: int | None
) -> None:
    """What the interrupted attempt sent is in the server's cache."""
    workload = SHORT if seed is None else {**SHORT, "seed": seed}
    file = experiment(tool.folder, server, duration="60s", workload=workload)
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
    if seed is None:
        assert not set(first.values()) & set(second.values())
    else:
        assert all(first[name] == second[name] for name in both)


def told(tool: Tool) -> tuple[dict[str, Any], list[int]]:
    """Of the one run: its check of texts, and of each load how many had been sent before."""
    (run_dir,) = (tool.results / "loads").iterdir()
    document = json.loads(tool.run("report", run_dir, "--format", "json").stdout)
    (check,) = [c for c in document["verdict"]["checks"] if c["name"] == "texts were sent once"]
    stages = [load["stages"][0] for load in document["loads"]]
    return check, [stage["conditions"]["prompts"]["repeated"] for stage in stages]


def test_a_short_file_gone_through_again_is_told(tool: Tool, server: FaultyServer) -> None:
    """By a second load as well: what the first one sent is in the server's cache."""
    file = tool.folder / "prompts.jsonl"
    lines = [{"prompt": f"{number} is a question of its own"} for number in range(12)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    workload = {"file": "prompts.jsonl", "output_tokens": 2}
    load = experiment(tool.folder, server, concurrency=[1, 2], requests=12, workload=workload)
    done = tool.sweep(load)
    assert done.returncode == 3, done.stdout + done.stderr
    check, repeated = told(tool)
    assert check["status"] == "failed"
    assert "load-c2 (12 of 12 texts had been sent before)" in check["finding"]
    assert "load.workload.repeats: true" in check["remedy"]
    assert repeated == [0, 12]
    (page,) = (tool.results / "loads").glob("*/num_shard-*.md")
    assert "- 2: 12 of 12 texts had been sent before" in page.read_text()


def test_a_file_that_may_repeat(tool: Tool, server: FaultyServer) -> None:
    file = tool.folder / "prompts.jsonl"
    file.write_text('{"prompt": "the same question"}\n')
    workload = {"file": "prompts.jsonl", "output_tokens": 2, "repeats": True}
    tool.sweep(experiment(tool.folder, server, requests=8, workload=workload))
    check, _ = told(tool)
    assert check["status"] == "passed"
    assert check["finding"] == "7 of 8 texts had been sent before, as the workload says"
