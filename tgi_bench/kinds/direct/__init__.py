"""Direct mode: generate and summarize by a model in a process of tgi-bench's own."""

from __future__ import annotations

from typing import Any

from tgi_bench.kinds.kind import PlannedTrial, Session, TrialKind, View
from tgi_bench.plan.plan import Plan


def _planned(plan: Plan) -> tuple[PlannedTrial, ...]:
    return tuple(
        PlannedTrial(t.trial_id, None, t.model.model_id, t, t.shape, t.batch_size)
        for t in plan.task_trials
    )


def _view() -> View[Any]:
    from tgi_bench.kinds.direct.page import VIEW

    return VIEW


def _session() -> Session:
    from tgi_bench.kinds.direct.run import session

    return session


KIND = TrialKind("direct", _planned, _view, _session)
