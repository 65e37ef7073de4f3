"""A file of published tables to a run of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from tgi_bench.analysis.run import Origin
from tgi_bench.observation import PublishedEntry
from tgi_bench.plan.plan import Plan
from tgi_bench.published import bigcode, h2ogpt, torchcap
from tgi_bench.published.facts import Facts
from tgi_bench.published.reading import ImportedTable, experiment_name, items, refused
from tgi_bench.published.tgi import parse
from tgi_bench.published.tgi_notes import tgi_notes
from tgi_bench.published.tgi_run import Imported, to_run_parts
from tgi_bench.record.environment import capture
from tgi_bench.record.runs import new_run_dir
from tgi_bench.record.store import RunHeader, RunStore

_READERS = {"h2oGPT": h2ogpt, "bigcode-inference-benchmark": bigcode, "TorchCAP": torchcap}
_OF_STEPS = re.compile(r"^#+ Tensor Parallel \(TP\) - \d+ GPU", re.MULTILINE | re.ASCII)

_ORIGINS = "|".join(origin.value.capitalize() for origin in Origin)
_OWN_TABLES = "|".join(map(re.escape, (bigcode.OWN_CAPTION, h2ogpt.OWN_SPEED)))
_OURS = re.compile(rf"^\*\*(?:{_ORIGINS})\b.*|{_OWN_TABLES}", re.MULTILINE)
"""What a page of tgi-bench has: where its figures are from, or a header that nobody else writes."""


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """What a file holds: either entries of a table, or trials of the plan with their figures."""

    plan: Plan
    facts: Facts
    entries: tuple[PublishedEntry, ...]
    trials: Imported

    @property
    def counts(self) -> str:
        """ "31 of 36 trials", "30 of 30 entries": of how many there are figures."""
        if self.entries:
            ended = sum(bool(entry.values) for entry in self.entries)
            return f"{ended} of {len(self.entries)} entries"
        ended = sum(bool(figures) for _, figures in self.trials.values())
        return f"{ended} of {len(self.trials)} trial{'' if len(self.trials) == 1 else 's'}"


def read(text: str, file_name: str) -> PublishedFile:
    """Whichever known table the text holds; raises TableError."""
    table = read_table(text)
    if table is not None:
        return PublishedFile(table_plan(table, file_name), table.facts, table.entries, {})
    report = parse(text)
    plan, trials = to_run_parts(report, file_name)
    return PublishedFile(plan, tgi_notes(report, plan, trials), (), trials)


def read_table(text: str) -> ImportedTable | None:
    """The table, told by what it holds; None where the text holds none, or one of TGI's steps.

    Raises TableError where a known one does not parse, where there are two kinds, and of a page of
    tgi-bench, whose figures are in a run.db.
    """
    ours = _OURS.search(text)
    if ours is not None and ("Verdict" in text or not ours[0].startswith("**")):
        raise refused(
            text.count("\n", 0, ours.start()) + 1,
            "tgi-bench wrote this page of a run: its figures are in that run's run.db, of which "
            "`tgi-bench report` makes its pages again",
        )
    if _OF_STEPS.search(text):
        return None
    found_items = tuple(items(text))
    names = [name for name, reader in _READERS.items() if reader.holds(found_items)]
    if len(names) > 1:
        raise refused(1, f"tables of {' and '.join(names)} in one file: import one at a time")
    return _READERS[names[0]].read(found_items) if names else None


def table_plan(table: ImportedTable, file_name: str) -> Plan:
    """The run's plan: no deployment and no trial, since nothing of it was planned here.

    The digest covers the entries: nothing else tells two imports apart.
    """
    entries = [asdict(entry) for entry in table.entries]
    text = json.dumps([table.layout.value, entries], sort_keys=True, separators=(",", ":"))
    return Plan(
        experiment=experiment_name(file_name),
        model=_models(table.entries),
        deployments=(),
        trials=(),
        overrides=(),
        digest=sha256(text.encode()).hexdigest(),
    )


def _models(entries: Sequence[PublishedEntry]) -> str:
    """The one model's name, or "facebook/opt-1.3b and 5 more models"."""
    names = list(dict.fromkeys(entry.model for entry in entries))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more models"


def keep(found: PublishedFile, source: str, results: Path) -> Path:
    """The folder of a new run of what was found. source: the file's name as it is to be shown."""
    run_dir = new_run_dir(results, found.plan.experiment, found.plan.digest)
    # Of the environment only our own version: the machine that reads a report did not measure it.
    ours = tuple((name, value) for name, value in capture() if name == "tgi-bench")
    header = RunHeader(
        run_id=run_dir.name,
        experiment_json="",
        plan=found.plan,
        origin="imported",
        environment=(("imported from", source), *found.facts, *ours),
        created_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    with RunStore.create(run_dir, header) as store:
        store.add_to_run(found.entries)
        for trial_id, (end, figures) in found.trials.items():
            attempt = store.begin(trial_id)
            store.add(attempt, figures)
            store.end(attempt, end)
        store.finish()
    return run_dir
