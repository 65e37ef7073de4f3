"""One concept, one place: what a stranger adds, and that nothing else has to know of it.

Each addition is made to a copy of the package, as a stranger would make it, in one file.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tgi_bench.dialects import API_NAMES, NAMES
from tgi_bench.launch import LAUNCHERS

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Added:
    """One Column, in one line of one file, and where it is to be found.

    run, page, table: whose documents are looked at. cell, short, number: of its first row, as the
    page, the screen and the data have it.
    """

    file: str
    tuple_of: str
    column: str
    run: str
    page: str
    table: str
    key: str
    title: str
    screen: str
    cell: str
    short: str
    number: float

    @property
    def kind(self) -> str:
        """Its folder in kinds/."""
        return self.file.partition("/")[0]

    @property
    def rule(self) -> str:
        """The name of the Rule that is added to that kind."""
        return RULE.format(kind=self.kind)


FIGURES = (
    Added(
        "batch/columns",
        "OF_A_TRIAL",
        'Column("steps", lambda t: t.runs * 2.5, "Steps taken", units.RATE, "Steps")',
        "tests.report.example.simulated_run",
        "num_shard-1.md",
        "run.csv",
        "steps",
        "Steps taken",
        "Steps",
        "7.50",
        "7.5",
        7.5,
    ),
    Added(
        "load/columns",
        "RATES",
        'Column("events_per_s", lambda s: s.events / 4, "Events (1/s)", units.RATE, "Events/s")',
        "tests.report.load_example.load_run",
        "num_shard-1.md",
        "loads.csv",
        "events_per_s",
        "Events (1/s)",
        "Events/s",
        "774.00",
        "774.0",
        774.0,
    ),
    Added(
        "direct/columns",
        "BESIDE",
        'Column("wait", lambda f: f.runs * 4e6, "Wait", units.MS, "Waited")',
        "tests.analysis.task_samples.whole_run",
        "report.md",
        "tasks.csv",
        "wait_ns",
        "Wait",
        "Waited",
        "12.00 ms",
        "12.0 ms",
        12e6,
    ),
)
_DIALECT = '''
"""POST /say: a line of JSON for each word, and a last one that says how many."""
import orjson
from tgi_bench.dialects.dialect import Dialect
from tgi_bench.dialects.answer import Said
from tgi_bench.load_observation import TokenSource


class Words(Dialect):
    name = "words"
    takes_model = False
    counted_by = TokenSource.SERVER
    end_mark = "the number of words"

    def path(self, stream):
        return "/say"

    def body(self, ask, able, options):
        return {"after": ask.text, "words": ask.output_tokens, "stream": options.stream}

    def read_stream(self, answer, able, count):
        said = Said(counted_by=TokenSource.SERVER)
        at, came = answer.pieces[-1][0], b"".join(piece for _, piece in answer.pieces)
        for line in came.split(b"data: ")[1:]:
            event = orjson.loads(line)
            if "word" in event:
                said.arrivals.append(at)
                said.reads.append(1)
                said.counts.append(1)
                said.text += event["word"]
            said.ended = said.ended or "words" in event
        said.events = len(said.counts) + 1
        return said

    def read_whole(self, answer, said_json, said):
        said.ended = True
        said.text = said_json["text"]
        said.all_at_once(said_json["words"], answer.ended_ns)
        return said.text


DIALECT = Words()
'''
RULE = "a stranger looked at {kind}"
"""The name of a Rule that is added beside them, in one line too."""
ADDED_RULE = 'Rule("{name}", lambda t: Seen(True, 1, "seen by all"), "", "look away"),'
_SHOW = """
import importlib, io, json, sys
from rich.console import Console
from dataclasses import replace
from tests.report.made import as_json, documents, print_summary, tables
from tgi_bench.kinds import KINDS
from tgi_bench.kinds.judge import judge
found = {}
for name, table in json.loads(sys.argv[1]):
    module, _, function = name.rpartition(".")
    run = getattr(importlib.import_module(module), function)()
    run = replace(run, verdict=judge(run, KINDS))
    screen = io.StringIO()
    print_summary(Console(file=screen, width=240), run)
    found[name] = {
        "pages": documents(run),
        "json": json.loads(as_json(run)),
        "csv": tables(run)[table],
        "screen": screen.getvalue(),
    }
print(json.dumps(found))
"""
Shown = dict[str, dict[str, object]]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """What is made of each run by a package that has a Column more in each kind of figures."""
    home = tmp_path_factory.mktemp("stranger")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tgi_bench", home / "tgi_bench", ignore=ignore)
    for figure in FIGURES:
        path = home / "tgi_bench" / "kinds" / f"{figure.file}.py"
        before, head, rest = path.read_text(encoding="utf-8").partition(f"\n{figure.tuple_of}: ")
        declared, begins, columns = rest.partition(" = (\n")
        assert head
        assert begins
        added = f"{before}{head}{declared}{begins}    {figure.column},\n{columns}"
        path.write_text(added, encoding="utf-8")
        path = home / "tgi_bench" / "kinds" / figure.kind / "rules.py"
        before, head, rest = path.read_text(encoding="utf-8").partition("\nRULES: ")
        assert head
        rule = ADDED_RULE.format(name=figure.rule)
        rules = rest.replace(" = (\n", f" = (\n    {rule}\n", 1)
        path.write_text(f"{before}{head}{rules}", encoding="utf-8")
    asked = json.dumps([(figure.run, figure.table) for figure in FIGURES])
    path_of = os.pathsep.join((str(home), str(ROOT)))
    made = subprocess.run(
        [sys.executable, "-c", _SHOW, asked],
        env={**os.environ, "PYTHONPATH": path_of},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    found: Shown = json.loads(made.stdout)
    return found


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.file)
class TestAFigure:
    """A Column in one tuple: it is on the page, in CSV, in JSON and on the screen."""

    def test_on_the_page(self, figure: Added, shown: Shown) -> None:
        pages = shown[figure.run]["pages"]
        assert isinstance(pages, dict)
        cells = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in pages[figure.page].splitlines()
            if line.startswith("|")
        ]
        heads = [row for row in cells if figure.title in row]
        assert heads
        row = cells[cells.index(heads[0]) + 2]
        assert row[heads[0].index(figure.title)] == figure.cell

    def test_in_csv(self, figure: Added, shown: Shown) -> None:
        rows = list(csv.DictReader(io.StringIO(str(shown[figure.run]["csv"]))))
        assert float(rows[0][figure.key]) == figure.number

    def test_in_json(self, figure: Added, shown: Shown) -> None:
        assert (figure.key, figure.number) in _pairs(shown[figure.run]["json"])

    def test_on_the_screen(self, figure: Added, shown: Shown) -> None:
        lines = str(shown[figure.run]["screen"]).splitlines()
        (head,) = (line for line in lines if figure.screen in line.split())
        ends = head.index(figure.screen) + len(figure.screen)
        assert lines[lines.index(head) + 1][:ends].endswith(f" {figure.short}")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.kind)
class TestACheck:
    """A Rule in one tuple: the verdict has it on the page, in JSON and on the screen."""

    def test_it_is_in_every_verdict(self, figure: Added, shown: Shown) -> None:
        found = shown[figure.run]
        pages, document = found["pages"], found["json"]
        assert isinstance(pages, dict)
        assert isinstance(document, dict)
        (check,) = (c for c in document["verdict"]["checks"] if c["name"] == figure.rule)
        assert check["status"] == "failed"
        assert check["remedy"] == "look away"
        said = f"- **{figure.rule}**: {check['finding']}. Remedy: look away."
        for page in {"report.md", figure.page}:
            assert said in pages[page]
        screen = " ".join(str(found["screen"]).split())
        assert f"failed: {figure.rule}: {check['finding']}" in screen

    def test_a_run_without_such_trials_is_not_asked(self, figure: Added, shown: Shown) -> None:
        others = [shown[other.run]["json"] for other in FIGURES if other.kind != figure.kind]
        assert all(("name", figure.rule) not in _pairs(document) for document in others)


def _pairs(document: object) -> list[tuple[str, object]]:
    """Every key of it with a value that is no part of its own."""
    found: list[tuple[str, object]] = []
    if isinstance(document, dict):
        for key, value in document.items():
            found += _pairs(value) if isinstance(value, dict | list) else [(key, value)]
    if isinstance(document, list):
        for value in document:
            found += _pairs(value)
    return found


class _Speaker(BaseHTTPRequestHandler):
    """A server that speaks nothing but the stranger's dialect."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/say":
            self.send_error(404)
            return
        said: list[dict[str, object]] = [{"word": "so "} for _ in range(asked["words"])]
        said.append({"words": asked["words"]})
        kind = "text/event-stream" if asked["stream"] else "application/json"
        body = "".join(f"data: {json.dumps(one)}\n\n" for one in said)
        if not asked["stream"]:
            body = json.dumps({"text": "so " * asked["words"], "words": asked["words"]})
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that has a dialect more."""
    home = tmp_path_factory.mktemp("dialect")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tgi_bench", home / "tgi_bench", ignore=ignore)
    room = home / "tgi_bench" / "dialects"
    (room / "words.py").write_text(_DIALECT, encoding="utf-8")
    face = (room / "__init__.py").read_text(encoding="utf-8")
    named, times = re.subn(r"^(NAMES = \([^)]*)\)", r'\1, "words")', face, flags=re.MULTILINE)
    assert times == 1
    (room / "__init__.py").write_text(named, encoding="utf-8")
    return home


def ran(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What the package there answers to a command."""
    return subprocess.run(
        [sys.executable, "-m", "tgi_bench.cli.main", *words],
        env={**os.environ, "PYTHONPATH": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )


class TestADialect:
    """One file and its name in the tuple: it is a key's value, asked for, loaded and reported."""

    def test_it_is_a_value_of_the_key(self, home: Path) -> None:
        made = ran(home, "schema")
        assert made.returncode == 0, made.stderr
        assert [*API_NAMES, "words"] in _enums(json.loads(made.stdout))
        assert f"{NAMES[-1]} or words" in ran(home, "load", "--help").stdout

    @pytest.mark.parametrize("beside", [("--api", "words"), ("--no-stream",)], ids=str)
    def test_a_load_goes_by_it(self, home: Path, beside: tuple[str, ...]) -> None:
        asked = ("--requests", "4", "--warmup", "0", "-c", "2", "--output-tokens", "6")
        results = home / f"results{len(beside)}"
        with HTTPServer(("127.0.0.1", 0), _Speaker) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            url = f"http://127.0.0.1:{server.server_port}"
            made = ran(home, "load", url, *asked, *beside, "--results", str(results))
            server.shutdown()
            thread.join()
        assert made.returncode in (0, 3), made.stdout + made.stderr
        (run,) = (results / "load").iterdir()
        told = ran(home, "report", str(run), "--format", "json")
        pairs = _pairs(json.loads(told.stdout))
        assert ("dialect", "words") in pairs
        assert ("output_tokens", 24) in pairs
        assert any("/say, " in page.read_text(encoding="utf-8") for page in run.glob("*.md"))


_LAUNCHER = '''"""The launcher `niced`: the embedded server, at a lower priority."""

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tgi_bench.errors import Problem
from tgi_bench.launch.launcher import Launcher
from tgi_bench.launch.process import LOCALHOST, free_ports
from tgi_bench.sections.section import Section


class NicedKeys(Section):
    """How nice it is."""

    niceness: Annotated[int, Field(ge=0, le=19)] = 10
    """Read by the launcher `niced`: by how much its priority is lower."""


@dataclass(frozen=True)
class NicedLauncher(Launcher):
    """A process of this machine."""

    name = "niced"
    Keys = NicedKeys
    leaves = "notes"

    keys: NicedKeys

    def problems(self, asked):
        if asked.loads:
            yield Problem("server.niceness", "is too nice for a load")

    def words(self, deployment):
        return f"by {self.keys.niceness}"

    def devices(self, deployment, environ):
        Path("devices-asked").touch()  # of a server that simulates no more is said
        return "nice processes are not measured"

    @classmethod
    def end_left(cls):
        return ["removed a note"]

    @contextmanager
    def launch(self, deployment, options):
        from tgi_bench.launch.child import Program, running
        from tgi_bench.launch.deployment import Reach, server_arguments
        from tgi_bench.launch.left_behind import socket_folder

        with socket_folder() as stem:
            (port,) = free_ports(1)
            words = ("nice", "-n", str(self.keys.niceness), sys.executable, "-m")
            words += ("tgi_bench.cli.main", "serve", "--tgi-version", deployment.tgi_version)
            words += server_arguments(deployment, Reach(LOCALHOST, port, str(stem)), in_image=False)
            url = f"http://{LOCALHOST}:{port}"
            program = Program(words, lambda lines: url, stem.with_name(f"{stem.name}-0"))
            with running(deployment, options, program) as server:
                yield server
'''
_NICE = """
experiment: nice
model: bigscience/bloomz-1b1
server: {launcher: niced, version: 3.3.7, niceness: 3}
batches: {sequence_length: 8, decode_length: 2, batch_size: [1, 2], runs: 1, prompt_seed: 0}
"""


@pytest.fixture(scope="module")
def nice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that has a launcher more, and an experiment with it that was swept."""
    home = tmp_path_factory.mktemp("launcher")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tgi_bench", home / "tgi_bench", ignore=ignore)
    room = home / "tgi_bench" / "launch"
    (room / "niced.py").write_text(_LAUNCHER, encoding="utf-8")
    face = (room / "__init__.py").read_text(encoding="utf-8")
    imported = "from tgi_bench.launch.process import ProcessLauncher\n"
    assert imported in face
    face = face.replace(imported, "from tgi_bench.launch.niced import NicedLauncher\n" + imported)
    face, times = re.subn(
        r"^(LAUNCHERS: [^(]*\([^)]*)\)", r"\1    NicedLauncher,\n)", face, flags=re.M
    )
    assert times == 1
    (room / "__init__.py").write_text(face, encoding="utf-8")
    (home / "nice.yaml").write_text(_NICE, encoding="utf-8")
    made = ran(home, "sweep", "nice.yaml", "--results", "results")
    assert made.returncode in (0, 3), made.stdout + made.stderr
    assert "starting default (niced)" in made.stdout
    assert "removed a note" in made.stdout
    return home


class TestALauncher:
    """One file and its name in the tuple: its keys, checks, words, devices and leftovers count."""

    def run_dir(self, nice: Path) -> Path:
        (run,) = (nice / "results" / "nice").iterdir()
        return run

    def test_its_keys_are_read_and_refused(self, nice: Path) -> None:
        schema = json.loads(ran(nice, "schema").stdout)
        server = schema["$defs"]["ServerKeys"]["properties"]
        assert server["launcher"]["enum"] == [*(one.name for one in LAUNCHERS), "niced"]
        assert server["niceness"]["description"].startswith("Read by the launcher `niced`: by how")
        for said, sentence in (
            ("niceness=77", "server.niceness=77: must be at most 19, not 77"),
            ("nicenes=3", "allowed: launcher, engine, image, command, url, sockets, verify_tls, "),
            ("launcher=nicd", "must be one of docker, process, embedded, attach, niced, not"),
        ):
            refused = ran(nice, "plan", "nice.yaml", "--set", f"server.{said}")
            assert refused.returncode == 2
            assert sentence in refused.stderr
        load = ran(nice, "plan", "nice.yaml", "--set", "load={concurrency: 1, requests: 4}")
        assert "server.niceness: is too nice for a load" in load.stderr

    def test_its_words_are_those_of_the_plan(self, nice: Path) -> None:
        assert (
            "  niced by 3, text-generation-inference 3.3.7" in ran(nice, "plan", "nice.yaml").stdout
        )

    def test_a_run_has_its_keys_and_devices(self, nice: Path) -> None:
        run = self.run_dir(nice)
        connection = sqlite3.connect(run / "run.db")
        rows = connection.execute("SELECT launcher, launcher_keys FROM deployments").fetchall()
        connection.close()
        assert rows == [("niced", '{"niceness":3}')]
        pairs = _pairs(json.loads(ran(nice, "report", str(run), "--format", "json").stdout))
        assert ("launcher", "niced") in pairs
        assert (nice / "devices-asked").exists()
        page = (run / "num_shard-1.md").read_text(encoding="utf-8")
        assert "nice -n 3" in page

    def test_it_is_gone_on_with(self, nice: Path) -> None:
        run = self.run_dir(nice)
        connection = sqlite3.connect(run / "run.db")
        cut = connection.execute("UPDATE attempts SET outcome = NULL WHERE attempt_id = 2")
        assert cut.rowcount == 1
        connection.execute("UPDATE run SET finished = 0")
        connection.commit()
        connection.close()
        made = ran(nice, "sweep", "nice.yaml", "--results", "results", "--resume")
        assert made.returncode in (0, 3), made.stdout + made.stderr
        assert "1 of 2 trials ended before" in made.stdout
        assert self.run_dir(nice) == run

    def test_what_it_left_is_ended(self, nice: Path) -> None:
        assert "removed a note\n" in ran(nice, "clean").stdout


_RECORD = """
import dataclasses, json, sqlite3, sys
from pathlib import Path
from tests.record import samples
from tgi_bench.observation import StepObservation
from tgi_bench.record.store import RunStore
folder = Path(sys.argv[1])
trial_id = samples.plan().trials[0].trial_id
seen = [dataclasses.replace(step, cores=(0, step.step_index)) for step in samples.run_of(0)]
with RunStore.create(folder, samples.header()) as store:
    store.add(store.begin(trial_id), seen)
with RunStore.open(folder, writable=False) as store:
    assert list(store.seen(trial_id, StepObservation)) == seen
rows = sqlite3.connect(folder / "run.db").execute("SELECT cores, waited_ns FROM steps")
print(json.dumps(rows.fetchall()))
"""


def test_a_field_of_an_observation_is_declared_once(tmp_path: Path) -> None:
    """In its class: run.db has a column for it, which is written, checked and read."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tgi_bench", tmp_path / "tgi_bench", ignore=ignore)
    path = tmp_path / "tgi_bench" / "observation.py"
    last = "    health_ns: int | None = None\n"
    before, _, after = path.read_text(encoding="utf-8").partition(last)
    assert after
    added = "    cores: tuple[int, ...] = ()\n    waited_ns: int | None = None\n"
    path.write_text(before + last + added + after, encoding="utf-8")
    made = subprocess.run(
        [sys.executable, "-c", _RECORD, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == [["[0,0]", None], ["[0,1]", None], ["[0,2]", None]]


def _enums(schema: object) -> list[object]:
    """Every list of allowed values in it."""
    if isinstance(schema, list):
        return [found for one in schema for found in _enums(one)]
    if not isinstance(schema, dict):
        return []
    inner = [found for one in schema.values() for found in _enums(one)]
    return [schema["enum"], *inner] if "enum" in schema else inner
