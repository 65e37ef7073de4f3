"""run.db files of every kind with one bit or one value that is not what was written.

    python -m tests.cli.flips --flips 2000 --seed 0

Half of the flips are of a bit anywhere in the file, half of one value in a table, which no check of
the file's structure can see. Whatever reads the file must end with a report or with one sentence:
what does not is printed, with its traceback, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import io
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from unittest.mock import patch

from tests.analysis import task_samples
from tests.published.tables import NAMES
from tests.record import samples
from tests.sweep import experiments
from tgi_bench.cli.files import ExperimentRequest
from tgi_bench.cli.main import main as tgi_bench
from tgi_bench.errors import LaunchError
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Deployment, Plan
from tgi_bench.record.store import RunStore
from tgi_bench.sweep import Sweep
from tgi_bench.trials.load import TraceTimes

OK = TrialEnd(Outcome.OK, "")
GOLDEN = Path(__file__).parents[1] / "golden"
_COMMANDS = 3
"""That read each flipped file, of those that can."""

_COMMAND_LIMIT_S = 120
_MOST_BYTES = 64 << 20
"""Of output: a count with a flipped bit must not make a page of gigabytes."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A whole file, the folder that it lies in under results/, and what reads it."""

    name: str
    file: Path
    place: str
    commands: tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class Tally:
    """What was tried and how it ended. wrong: what was neither a report nor a sentence."""

    flips: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """For the screen."""
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.ended.items()))
        yield f"{self.flips} flips: {counts}; {len(self.wrong)} wrong"
        yield from self.wrong


def flipped(flips: int, seed: int, say: Callable[[str], None] = lambda _line: None) -> Tally:
    """So many flips, of each kind in turn."""
    draw, tally = Random(seed), Tally()
    folder = Path(tempfile.mkdtemp(prefix="tbf"))
    try:
        kinds = made(folder)
        for number in range(flips):
            kind = kinds[number % len(kinds)]
            run_dir = folder / "results" / kind.place
            shutil.copytree(kind.file.parent, run_dir)
            what = draw.choice((_flip_bit, _flip_value))(run_dir / "run.db", draw)
            for command in draw.sample(kind.commands, min(_COMMANDS, len(kind.commands))):
                _try(tally, f"{kind.name}, {what}", folder, command)
            shutil.rmtree(folder / "results")
            tally.flips += 1
            say(f"{tally.flips}/{flips} flips, {len(tally.wrong)} wrong")
    finally:
        shutil.rmtree(folder)
    return tally


def made(folder: Path) -> tuple[Kind, ...]:
    """A file of each kind. RUN in a command is the flipped one, GOOD one like it."""
    report = tuple(("report", "RUN", "--format", form) for form in ("md", "json", "csv", "rst"))
    fit = ("calibrate", "RUN", "--simulated-ok", "-o", str(folder / "fitted.yaml"))
    beside = (("report", "RUN", "--beside", "GOOD"), ("report", "GOOD", "--beside", "RUN"))
    layouts = tuple(("report", "RUN", "--layout", name) for name in ("bigcode", "h2ogpt"))
    experiment = experiments.write(folder)
    resume = ("sweep", str(experiment), "--results", str(folder / "results"), "--resume")
    plan = ExperimentRequest(experiment, (), (), None).load()[1]
    place = f"small/20261121T102233Z-{plan.digest[:6]}"
    return (
        Kind("batches", _batches(folder / "batches"), "any", (*report, fit, *beside)),
        Kind("resumed", _unfinished(folder / "resumed", plan), place, (resume,)),
        Kind("loads", _loads(folder / "loads"), "any", (*report, fit)),
        Kind("tasks", _tasks(folder / "tasks"), "any", (*report, *layouts)),
        *(
            Kind(name, _imported(folder, GOLDEN / f"published_{name}"), "any", report)
            for name in (*NAMES, "tgi_bloomz-7b1-mt.md")
        ),
    )


def _batches(folder: Path) -> Path:
    folder.mkdir()
    plan = samples.plan()
    with RunStore.create(folder, samples.header()) as store:
        store.started(plan.deployments[0].deployment_id, samples.facts())
        for trial in plan.trials:
            attempt = store.begin(trial.trial_id)
            for index in range(4):
                store.add(attempt, samples.run_of(index, trial.decode_length))
            store.add(attempt, [samples.SEEN])
            store.end(attempt, OK)
        store.finish()
    return folder / "run.db"


def _unfinished(folder: Path, plan: Plan) -> Path:
    folder.mkdir()
    with RunStore.create(folder, samples.header(plan)) as store:
        store.started(plan.deployments[0].deployment_id, samples.facts())
        attempt = store.begin(plan.trials[0].trial_id)
        store.add(attempt, samples.run_of(0))
        store.end(attempt, OK)
    return folder / "run.db"


def _loads(folder: Path) -> Path:
    folder.mkdir()
    first, second = samples.load_trial(), samples.load_trial("load-trace", TraceTimes(1.0))
    plan = replace(samples.plan(), trials=(), load_trials=(first, second))
    with RunStore.create(folder, samples.header(plan)) as store:
        store.started(plan.deployments[0].deployment_id, samples.facts())
        for trial in (first, second):
            attempt = store.begin(trial.trial_id)
            store.add(attempt, [samples.request(i) for i in range(31)])
            store.add(attempt, [samples.load_stage()])
            store.end(attempt, OK)
        store.add_to_run([samples.floor()])
        store.finish()
    return folder / "run.db"


def _tasks(folder: Path) -> Path:
    folder.mkdir()
    trials = (task_samples.generate(2), task_samples.summarize())
    seen = (task_samples.task_runs(2), task_samples.summary_runs())
    plan = Plan("tasks", "org/model", (), (), (), samples.DIGEST, task_trials=trials)
    with RunStore.create(folder, samples.header(plan)) as store:
        for trial, runs in zip(trials, seen, strict=True):
            store.started(trial.model.model_id, task_samples.facts())
            attempt = store.begin(trial.trial_id)
            store.add(attempt, runs)
            store.end(attempt, OK)
        store.finish()
    return folder / "run.db"


def _imported(folder: Path, table: Path) -> Path:
    results = folder / f"imported-{table.name}"
    code, said, _ = _run(("import", str(table), "--results", str(results)))
    assert code == 0, said
    (file,) = results.glob("*/*/run.db")
    return file


def _flip_bit(file: Path, draw: Random) -> str:
    data = bytearray(file.read_bytes())
    place, bit = draw.randrange(len(data)), draw.randrange(8)
    data[place] ^= 1 << bit
    file.write_bytes(data)
    return f"bit {bit} of byte {place}"


def _flip_value(file: Path, draw: Random) -> str:
    """One bit of a number or of a text, or another type: what is not checked is drawn too."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in tables]
        counts = {n: connection.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for n in names}
        table = draw.choice([name for name in names if counts[name]])
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        _, column, _, not_null, _, _ = draw.choice(columns)
        keys = ", ".join(row[1] for row in columns)
        skipped = draw.randrange(counts[table])
        row = connection.execute(f"SELECT {keys} FROM {table} LIMIT 1 OFFSET {skipped}").fetchone()
        before = row[[c[1] for c in columns].index(column)]
        after = _other(before, draw, bool(not_null))
        same = " AND ".join(f"{c[1]} IS ?" for c in columns)
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {same}", (after, *row))
        except sqlite3.IntegrityError:
            return f"{table}.{column} left as it was"
    return f"{table}.{column} of row {skipped}: {before!r} -> {after!r}"


def _other(value: object, draw: Random, not_null: bool) -> object:
    if not not_null and draw.random() < 0.2:
        return None
    if draw.random() < 0.2:
        return draw.choice([-1, 0, 2**62, -(2**62), 1.5, 1e308, "x", "", b"\xff", b""])
    match value:
        case int():
            return value ^ (1 << draw.randrange(62))
        case float():
            return draw.choice([-value, value * 2.0 ** draw.choice([-900, -1, 1, 900]), 0.0])
        case str() if value:
            data = bytearray(value.encode())
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(7)
            return data.decode(errors="replace")
        case bytes() if value:
            blob = bytearray(value)
            blob[draw.randrange(len(blob))] ^= 1 << draw.randrange(8)
            return bytes(blob[: draw.choice([len(blob), len(blob) - 1])])
        case _:
            return 1


def _try(tally: Tally, what: str, folder: Path, command: tuple[str, ...]) -> None:
    (run,) = (file.parent for file in (folder / "results").glob("**/run.db"))
    words = {"RUN": str(run), "GOOD": str(folder / "batches")}
    code, said, error = _run(tuple(words.get(word, word) for word in command))
    (folder / "fitted.yaml").unlink(missing_ok=True)
    if wrong := error or _not_a_sentence(code, said):
        tally.ended["wrong"] += 1
        tally.wrong.append(f"{what}: {' '.join(command[:1] + command[2:])}: {wrong}")
    else:
        tally.ended["reports" if code in (0, 1, 3) else "sentences"] += 1


def _not_a_sentence(code: object, said: str) -> str:
    """Of a sweep a sentence for each run that it passes over goes before the one that ends it."""
    if code not in (0, 1, 2, 3):
        return f"exit code {code}: {said}"
    lines = [line for line in said.splitlines() if not line.startswith("passed over: ")]
    return said if code == 2 and len(lines) != 1 else ""


def _run(words: tuple[str, ...]) -> tuple[object, str, str]:
    """Its exit code, what it said of errors, and a traceback where it ended with one."""
    out, err = _Bounded(), io.StringIO()
    code: object = 0
    try:
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            patch.object(sys, "argv", ["tgi-bench", *words]),
            patch.object(Sweep, "_serve", _no_server),
            _within(_COMMAND_LIMIT_S),
        ):
            tgi_bench()
    except SystemExit as stop:
        code = stop.code
    except BaseException:  # noqa: BLE001 - that is what is looked for
        return None, "", traceback.format_exc()
    return code, err.getvalue(), ""


class _Bounded(io.StringIO):
    def write(self, text: str) -> int:
        if self.tell() > _MOST_BYTES:
            raise AssertionError("a report without end")
        return super().write(text)


def _no_server(_sweep: Sweep, deployment: Deployment) -> None:
    raise LaunchError(f"no server here, {deployment.deployment_id}")


@contextmanager
def _within(limit_s: int) -> Iterator[None]:
    def late(_number: int, _frame: object) -> None:
        raise AssertionError(f"no end within {limit_s} s")

    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)}
    signal.signal(signal.SIGALRM, late)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m tests.cli.flips")
    parser.add_argument("--flips", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    tally = flipped(asked.flips, asked.seed, lambda line: print(line, file=sys.stderr))
    print(f"seed {asked.seed}", *tally.lines(), sep="\n")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
