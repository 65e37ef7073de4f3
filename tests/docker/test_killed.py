"""A sweep that is killed again and again, and gone on with."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

from tests.docker.sweeps import FINE, Sweeps, outcomes, rows

KILLS = 20
SEED = 20261121
RUNS, WARMUPS, STEPS = 12, 1, 4
LONGEST_S = 4.0
"""A sweep takes about twice as long: kills fall on every part of it."""


def test_killed_and_resumed_until_it_is_done(sweeps: Sweeps) -> None:
    random_s = random.Random(SEED)
    experiment = sweeps.experiment(runs=RUNS)
    kills = 0
    while kills < KILLS:
        process = sweeps.start(experiment, *_resume(sweeps))
        try:
            process.wait(random_s.uniform(0.2, LONGEST_S))
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        code, output = sweeps.finish(process)
        assert code in (-9, *FINE), output
        _check_so_far(sweeps)
    time.sleep(0.1)  # the kernel frees the locks of the last one
    while words := _resume(sweeps):
        code, output = sweeps.run(experiment, *words)
        assert code in FINE, output
    _check_all(sweeps)


def _resume(sweeps: Sweeps) -> tuple[str, ...]:
    """The option, where there is a run to go on with."""
    unfinished = [run for run in sweeps.run_dirs() if not _finished(run)]
    return ("--resume",) if unfinished else ()


def _finished(run_dir: Path) -> bool:
    return rows(run_dir, "SELECT finished FROM run") == [(1,)]


def _check_so_far(sweeps: Sweeps) -> None:
    """After a sweep ended by itself or was killed: at most its own container is left."""
    assert len(sweeps.containers()) <= 1
    for run_dir in sweeps.run_dirs():
        outcomes(run_dir)  # no trial has two ends


def _check_all(sweeps: Sweeps) -> None:
    assert sweeps.containers() == []
    for run_dir in sweeps.run_dirs():
        found = outcomes(run_dir)
        assert {trial: outcome for trial, (outcome, _) in found.items()} == {
            "s20-d4-b1": "ok",
            "s20-d4-b2": "ok",
            "s20-d4-b4": "ok",
        }
        counted = rows(
            run_dir,
            "SELECT a.trial_id, count(*), count(DISTINCT run_index * 100 + step_index) "
            "FROM attempts a JOIN steps s USING (attempt_id) "
            "WHERE a.outcome IS NOT NULL GROUP BY a.trial_id",
        )
        expected = (WARMUPS + RUNS) * STEPS
        assert [row[1:] for row in counted] == [(expected, expected)] * 3
