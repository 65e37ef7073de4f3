"""A run.db with loads to the value that reports are made from."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

from tests.record import samples
from tests.report.made import as_json, documents
from tgi_bench.cli.run_view import load
from tgi_bench.kinds.load.columns import loads_csv
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.load_observation import ClientFloor
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.record.store import RunStore
from tgi_bench.trials.load import TraceTimes

ROOT = Path(__file__).parents[2]
FORMAT_1 = ROOT / "results" / "bloomz-7b1-mt" / "20261121T123246Z-584111"


def _recorded(folder: Path) -> Path:
    """A closed loop of 31 requests that ended, and a trace that was cut off."""
    first, second = samples.load_trial(), samples.load_trial("load-trace", TraceTimes(1.0))
    plan = dataclasses.replace(samples.plan(), trials=(), load_trials=(first, second))
    with RunStore.create(folder, samples.header(plan)) as store:
        attempt = store.begin(first.trial_id)
        store.add(attempt, [samples.request(i) for i in range(31)])
        store.add(attempt, [samples.load_stage()])
        store.end(attempt, TrialEnd(Outcome.OK, ""))
        cut = store.begin(second.trial_id)
        store.add(cut, [samples.request(0)])
        store.add_to_run([samples.floor()])
    return folder


def test_loads_and_floors_are_read(tmp_path: Path) -> None:
    run = load(_recorded(tmp_path))
    ended, cut = run.of(LoadSummary)
    assert ended.end == TrialEnd(Outcome.OK, "")
    (stage,) = ended.stages
    assert stage.ttft is not None
    assert stage.ttft.p50.value == 101_000_000
    assert cut.end is None
    assert cut.stages == ()
    assert run.of(ClientFloor) == (samples.floor(),)
    assert "every trial ended" in {c.name for c in run.verdict.checks if not c.passed}
    pages = documents(run)
    assert "| TTFT " in pages["num_shard-2.md"]
    assert "101.00 ms" in pages["report.md"]
    assert "# The client's own error" in pages["report.md"]
    assert "not finished, trace: the sweep ended before this load did" in pages["num_shard-2.md"]
    assert as_json(run) == as_json(load(tmp_path / "run.db"))
    assert loads_csv(run).count("\n") == 9


def test_a_run_of_format_1_is_reported_as_it_was() -> None:
    before = (FORMAT_1 / "run.db").read_bytes()
    for name, text in documents(load(FORMAT_1)).items():
        assert text == (FORMAT_1 / name).read_text(encoding="utf-8"), name
    assert (FORMAT_1 / "run.db").read_bytes() == before


def test_a_run_of_batches_does_not_wait_for_numpy() -> None:
    code = (
        "import sys; from pathlib import Path; from tgi_bench.cli.run_view import KINDS, load; "
        "from tgi_bench.kinds.documents import documents; "
        f"documents(load(Path({str(FORMAT_1)!r})), KINDS); sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
