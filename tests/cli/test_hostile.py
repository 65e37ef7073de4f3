"""Whatever a server says is inert: on the screen, in Markdown, reStructuredText, CSV and JSON."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.analysis import task_samples
from tests.drive import faulty_server
from tests.drive.faulty_server import FaultyServer, chunk_of
from tests.inert_pages import HOSTILE, SNIPPETS, assert_inert, assert_printable, assert_screen
from tests.launch.deployments import attach
from tests.record import samples
from tests.report.made import print_summary
from tgi_bench.cli.report_command import ReportOptions, run
from tgi_bench.cli.run_view import load
from tgi_bench.cli.screen import Screen
from tgi_bench.cli.tables import InertConsole
from tgi_bench.errors import InputError, LaunchError
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Plan
from tgi_bench.record.store import RunStore
from tgi_bench.trials.load import TraceTimes

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
FORMS = ("md", "json", "csv", "rst")


def said(value: T, words: Iterator[str]) -> T:
    """The value with other words for each of its texts, as far as it is dataclasses and tuples."""
    return _said(value, words)  # type: ignore[no-any-return]


def _said(value: Any, words: Iterator[str]) -> Any:
    if type(value) is str:
        return next(words)
    if type(value) is tuple:
        return tuple(_said(item, words) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{f.name: _said(getattr(value, f.name), words) for f in fields(value)}
        )
    return value


def failed(words: Iterator[str]) -> TrialEnd:
    return TrialEnd(Outcome.FAILED, next(words))


def hostile_run(folder: Path, words: Iterator[str], attached: bool) -> Path:
    """Batches and loads of which a server said the words wherever it says anything."""
    deployment = samples.deployment()
    if attached:
        url = attach("http://127.0.0.1:1")
        deployment = replace(deployment, launcher=url, model="auto", version_assumed=True)
    first, second = samples.load_trial(), samples.load_trial("load-trace", TraceTimes(1.0))
    plan = replace(samples.plan(), deployments=(deployment,), load_trials=(first, second))
    with RunStore.create(folder, samples.header(plan)) as store:
        place = deployment.deployment_id
        facts = said(replace(samples.facts(), simulated=not attached), words)
        details = (*facts.details, ("served model", next(words)), ("/info", next(words)))
        store.started(place, replace(facts, details=details))
        for trial in plan.trials[:2]:
            attempt = store.begin(trial.trial_id)
            for index in range(4):
                steps = samples.run_of(index, trial.decode_length)
                store.add(attempt, [replace(s, reason=next(words)) for s in steps])
            devices, began = said(samples.SEEN.devices, words), ((next(words), 1.0),)
            seen = replace(samples.SEEN, devices=devices, absent="", began=began, ended=())
            store.add(attempt, [seen])
            ok = trial is plan.trials[0]
            store.end(attempt, TrialEnd(Outcome.OK, "") if ok else failed(words))
        store.end_unstarted(plan.trials[2].trial_id, failed(words))
        attempt = store.begin(first.trial_id)
        for index in range(60):
            request = replace(samples.request(index), finish_reason=next(words))
            if index % 3 == 2:
                bad = RequestOutcome.HTTP_ERROR
                request = replace(request, outcome=bad, reason=next(words), status=500)
            store.add(attempt, [request])
        stage = samples.load_stage()
        client = replace(stage.client, stamp_reason=next(words))
        told = ((next(words), next(words)), ("prompt lengths", next(words)))
        answered = replace(stage.conditions, answered_by=((next(words), 8), (next(words), 1)))
        stage = replace(stage, details=told, client=client, conditions=answered)
        store.add(attempt, [stage])
        store.end(attempt, TrialEnd(Outcome.OK, ""))
        store.end_unstarted(second.trial_id, failed(words))
    return folder


def hostile_tasks(folder: Path, words: Iterator[str], dtype: str = "bfloat16") -> Path:
    """Tasks whose model and device were named by the words, and which failed with them."""
    trials = (task_samples.generate(2), task_samples.summarize())
    plan = Plan("tasks", "org/model", (), (), (), samples.DIGEST, task_trials=trials)
    with RunStore.create(folder, samples.header(plan)) as store:
        first, second = trials
        facts = replace(said(task_samples.facts(), words), dtype=dtype)
        store.started(first.model.model_id, facts)
        attempt = store.begin(first.trial_id)
        store.add(attempt, task_samples.task_runs(2))
        store.end(attempt, TrialEnd(Outcome.OK, ""))
        store.end_unstarted(second.trial_id, failed(words))
    return folder


def assert_all_inert(run_dir: Path, tmp_path: Path, forms: tuple[str, ...] = FORMS) -> None:
    for form in forms:
        folder = tmp_path / form
        assert run([run_dir], ReportOptions(form, None, folder)) == 0
        for file in folder.iterdir():
            assert_inert(file.name, file.read_text(encoding="utf-8"))
    for terminal in (False, True):
        screen = io.StringIO()
        console = InertConsole(file=screen, force_terminal=terminal, width=100)
        print_summary(console, load(run_dir))
        assert_screen(screen.getvalue())


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("begin", range(len(SNIPPETS) + 1))
def test_every_report_of_a_run(tmp_path: Path, begin: int, attached: bool) -> None:
    """Each snippet in each place, and all of them at once in every place."""
    every = [HOSTILE] if begin == len(SNIPPETS) else [*SNIPPETS[begin:], *SNIPPETS[:begin]]
    # A lone surrogate is in no text that SQLite can hold.
    words = cycle(word.encode("utf-8", "replace").decode() for word in every)
    (tmp_path / "run").mkdir()
    run_dir = hostile_run(tmp_path / "run", words, attached)
    # reStructuredText holds what was estimated: nothing of a model that only a server names.
    assert_all_inert(run_dir, tmp_path, FORMS[:3] if attached else FORMS)


@pytest.mark.parametrize("begin", range(0, len(SNIPPETS), 5))
def test_every_report_of_direct_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], begin: int
) -> None:
    words = cycle(w.encode("utf-8", "replace").decode() for w in SNIPPETS[begin:])
    (tmp_path / "run").mkdir()
    run_dir = hostile_tasks(tmp_path / "run", words)
    for form in FORMS[:3]:
        assert run([run_dir], ReportOptions(form, None, tmp_path / form)) == 0
        for file in (tmp_path / form).iterdir():
            assert_inert(file.name, file.read_text(encoding="utf-8"))
    capsys.readouterr()
    for layout in ("bigcode", "h2ogpt"):
        run([run_dir], ReportOptions("md", layout, None))
        assert_inert("page.md", capsys.readouterr().out)


@pytest.mark.parametrize("layout", ["bigcode", "h2ogpt"])
def test_weights_that_no_layout_knows(tmp_path: Path, layout: str) -> None:
    run_dir = hostile_tasks(tmp_path, cycle(SNIPPETS[:1]), "x" + SNIPPETS[0])
    with pytest.raises(InputError, match="no column of the layout") as refused:
        run([run_dir], ReportOptions("md", layout, None))
    assert_printable(str(refused.value))


@pytest.mark.parametrize("terminal", [False, True])
def test_the_lines_of_a_sweep(terminal: bool) -> None:
    plan = samples.plan()
    for words in (*SNIPPETS, HOSTILE):
        screen = io.StringIO()
        console = InertConsole(file=screen, force_terminal=terminal, width=300)
        lines = Screen(console, plan, {})
        if terminal:
            with lines:
                play(lines, plan, words)
        else:
            play(lines, plan, words)
            assert screen.getvalue().count("\n") == 5
        assert_screen(screen.getvalue())


def play(lines: Screen, plan: Plan, words: str) -> None:
    name, trial_id = plan.deployments[0].deployment_id, plan.trials[0].trial_id
    lines.starting(name, "starting", words)
    lines.waiting(name, words)
    lines.ready(name, "ready", words)
    lines.not_started(name, LaunchError(words, (words,)))
    lines.begins(trial_id)
    lines.ended(trial_id, TrialEnd(Outcome.FAILED, words))


def test_a_load_of_a_hostile_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal: its name, its version, its finish reasons, the texts of its errors."""
    info = {"model_id": HOSTILE, "version": HOSTILE, "max_input_tokens": 4096, HOSTILE: HOSTILE}
    monkeypatch.setitem(faulty_server._SAID, "/info", json.dumps(info).encode())
    bad = json.dumps({"error": HOSTILE, "error_type": HOSTILE}).encode()

    def refuses(x: faulty_server.Exchange) -> None:
        x.head("500 \x1b[2J", "content-type: application/json", f"content-length: {len(bad)}")
        x.sock.sendall(bad)

    def fails_in_between(x: faulty_server.Exchange) -> None:
        x.begin(1)
        x.chunk(b"data:" + bad + b"\n\n")
        x.sock.sendall(chunk_of(b""))

    monkeypatch.setitem(faulty_server.BEHAVIOURS, "refuses", (refuses,))
    monkeypatch.setitem(faulty_server.BEHAVIOURS, "fails in between", (fails_in_between,))
    with FaultyServer() as server:
        server.behaviours(("well", "well", "refuses", "well", "fails in between"))
        output = on_a_terminal(tmp_path, "load", server.url, "-c", "2", "--requests", "20")
    assert_screen(output)
    (run_dir,) = (tmp_path / "results" / "load").iterdir()
    for file in run_dir.glob("*.md"):
        assert_inert(file.name, file.read_text(encoding="utf-8"))
    assert_all_inert(run_dir, tmp_path, FORMS[:3])


def test_a_hostile_server_that_is_never_ready(tmp_path: Path) -> None:
    """What it prints before it fails ends on the screen and in the reports."""
    script = tmp_path / "server.py"
    script.write_text(
        f"import sys\nprint({HOSTILE!r}.encode('utf-8', 'replace').decode())\n"
        f"print('Error: ' + {HOSTILE!r}.encode('utf-8', 'replace').decode())\n"
        "sys.exit(3)\n",
        encoding="utf-8",
    )
    file = tmp_path / "e.yaml"
    file.write_text(
        json.dumps(
            {
                "experiment": "hostile",
                "model": "org/model",
                "server": {
                    "launcher": "process",
                    "version": "3.3.7",
                    "command": [sys.executable, str(script)],
                },
                "batches": {"sequence_length": 8, "decode_length": 2, "batch_size": 1, "runs": 1},
            }
        ),
        encoding="utf-8",
    )
    assert_screen(on_a_terminal(tmp_path, "sweep", str(file)))
    (run_dir,) = (tmp_path / "results" / "hostile").iterdir()
    for page in run_dir.glob("*.md"):
        assert_inert(page.name, page.read_text(encoding="utf-8"))
    done = subprocess.run(
        [sys.executable, "-m", "tgi_bench.cli.main", "report", str(run_dir), "--format", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert_printable(done.stdout + done.stderr)


def on_a_terminal(folder: Path, *words: str) -> str:
    """What it shows, to its end."""
    master, slave = os.openpty()
    argv = [sys.executable, "-m", "tgi_bench.cli.main", *words]
    shown = b""
    with subprocess.Popen(
        argv,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    ) as process:
        os.close(slave)
        while process.poll() is None or select.select([master], [], [], 0)[0]:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    shown += os.read(master, 1 << 16)
                except OSError:  # EIO: nobody has the other end any more
                    break
    os.close(master)
    return shown.decode()
