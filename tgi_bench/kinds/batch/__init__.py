"""Static batches over gRPC: prefill and decode steps."""

from __future__ import annotations

from typing import Any

from tgi_bench.kinds.kind import PlannedTrial, Session, TrialKind, View
from tgi_bench.plan.plan import Plan


def _planned(plan: Plan) -> tuple[PlannedTrial, ...]:
    return tuple(
        PlannedTrial(t.trial_id, t.deployment_id, None, t, t.shape, t.batch_size)
        for t in plan.trials
    )


def _view() -> View[Any]:
    from tgi_bench.kinds.batch.page import VIEW

    return VIEW


def _session() -> Session:
    from tgi_bench.kinds.batch.run import session

    return session


KIND = TrialKind("batch", _planned, _view, _session, on_ranks=True)
