"""Reports of direct mode: what they show."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest

from tests.analysis import task_samples as s
from tests.report.made import as_json, documents
from tgi_bench.kinds.direct.columns import tasks_csv
from tgi_bench.kinds.direct.figures import TaskSummary

Golden = Callable[[str, str], None]


def test_golden_report(golden: Golden) -> None:
    pages = documents(s.whole_run())
    assert list(pages) == ["report.md"]
    golden("tasks_report.md", pages["report.md"])


def test_json_and_csv() -> None:
    run = s.whole_run()
    said = json.loads(as_json(run))
    assert [m["model_id"] for m in said["models"]] == ["fp32", "bf16"]
    assert len(said["tasks"]) == len(run.of(TaskSummary))
    assert said["tasks"][0]["figures"][0]["new_tokens_per_s"] == pytest.approx(9 / 0.062)
    rows = list(csv.DictReader(io.StringIO(tasks_csv(run))))
    assert len(rows) == sum(len(task.figures) for task in run.of(TaskSummary))
    assert {row["outcome"] for row in rows} == {"ok", "out_of_memory", "skipped"}
    assert rows[1]["run_mean_ns"] == ""
