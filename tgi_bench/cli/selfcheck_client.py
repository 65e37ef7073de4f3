"""The load client as `tgi-bench selfcheck` runs it: one stage, every request kept in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.drive.load import run_stage
from tgi_bench.drive.preparation import LoadTarget, prepare
from tgi_bench.drive.stage_ask import Listener, Progress, StageAsk
from tgi_bench.observation import LoadStage, RequestObservation
from tgi_bench.plan.load_trial import LoadTrial


def run_load(url: str, trial: LoadTrial) -> tuple[LoadStage, Sequence[RequestObservation]]:
    """Send the trial's load to a server; the stage and its requests."""
    prepared = prepare(LoadTarget(url, engine="", model="", api_key=None), trial)
    requests: list[RequestObservation] = []
    stage = run_stage(
        prepared,
        StageAsk(index=0, repeat=0, arrivals=trial.arrivals),
        Listener(record=requests.extend, progress=_unseen),
    )
    return stage, requests


def _unseen(_progress: Progress) -> None:
    """Nobody watches: nothing is drawn while a load is measured."""
