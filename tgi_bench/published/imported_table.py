"""A published table that is not of TGI's steps, as it is stored and reported."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import PurePath

from tgi_bench.analysis.run import CORRECTED, TableLayout
from tgi_bench.observation import Outcome, PublishedEntry, TrialEnd
from tgi_bench.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class ImportedTable:
    """What was read, with what is known of how it came to be.

    facts: name and value, for the run's environment.
    """

    layout: TableLayout
    entries: tuple[PublishedEntry, ...]
    facts: tuple[tuple[str, str], ...]

    @property
    def models(self) -> str:
        """The one model's name, or "facebook/opt-1.3b and 5 more models"."""
        names = list(dict.fromkeys(entry.model for entry in self.entries))
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more models"


def table_plan(table: ImportedTable, file_name: str) -> Plan:
    """The run's plan: no deployment and no trial, since nothing of it was planned here.

    The digest covers the entries: nothing else tells two imports apart.
    """
    entries = [asdict(entry) for entry in table.entries]
    text = json.dumps([table.layout.value, entries], sort_keys=True, separators=(",", ":"))
    return Plan(
        experiment=experiment_name(file_name),
        model=table.models,
        deployments=(),
        trials=(),
        overrides=(),
        digest=sha256(text.encode()).hexdigest(),
    )


def experiment_name(file_name: str) -> str:
    """The file's name without its end, fit for a folder's name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", PurePath(file_name).stem)[:100].lstrip(".")
    return name or "imported"


def uncorrected(facts: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Of a page of ours, which has the slips no more."""
    return tuple((name, text) for name, text in facts if not name.startswith(CORRECTED))


def out_of_memory(word: str) -> TrialEnd:
    """The end of an entry whose cell has that word."""
    return TrialEnd(Outcome.OUT_OF_MEMORY, f"the imported table says `{word}`")


OK = TrialEnd(Outcome.OK, "")
