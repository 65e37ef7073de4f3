"""Load over HTTP: requests in closed and open loops."""

from __future__ import annotations

from typing import Any

from tgi_bench.kinds.kind import PlannedTrial, Session, TrialKind, View
from tgi_bench.plan.plan import Plan


def _planned(plan: Plan) -> tuple[PlannedTrial, ...]:
    return tuple(PlannedTrial(t.trial_id, t.deployment_id, None, t) for t in plan.load_trials)


def _view() -> View[Any]:
    from tgi_bench.kinds.load.page import VIEW

    return VIEW


def _session() -> Session:
    from tgi_bench.kinds.load.run import session

    return session


KIND = TrialKind("load", _planned, _view, _session)
