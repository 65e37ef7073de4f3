"""The ids that run files, resumed sweeps and reports know a trial by: they stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.plan.plan import Plan

ROOT = Path(__file__).parents[2]
FILES = (
    *sorted(ROOT.glob("experiments/*.yaml")),
    *sorted(ROOT.glob("tests/plan/experiments/*.yaml")),
)


def test_ids_stay(golden: Callable[[str, str], None]) -> None:
    pages = []
    for file in FILES:
        _, plan = load_plan(file.read_text(encoding="utf-8"), file.name)
        pages.append(f"{file.relative_to(ROOT)}\n" + "".join(f"  {id_}\n" for id_ in ids(plan)))
    golden("trial_ids.txt", "\n".join(pages))


def ids(plan: Plan) -> list[str]:
    """Of all that is planned, in the order in which it is run."""
    places = [d.deployment_id for d in plan.deployments] + [m.model_id for m in plan.direct_models]
    found = [trial.trial_id for trial in plan.trials]
    found += [trial.trial_id for trial in plan.load_trials]
    found += [trial.trial_id for trial in plan.task_trials]
    assert len(set(places)) == len(places)
    assert len(set(found)) == len(found)
    return [*places, *found]
