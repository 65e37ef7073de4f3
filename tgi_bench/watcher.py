"""Whom a sweep tells what happens: the screen, or nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tgi_bench.drive.stage import Progress, StageAsk
from tgi_bench.errors import LaunchError
from tgi_bench.observation import ServerFacts, StepObservation, TrialEnd
from tgi_bench.plan.plan import BatchTrial, Deployment, LoadTrial


class Watcher(Protocol):
    """Is told what happens, between the timed steps and never during one."""

    def launching(self, deployment: Deployment) -> None:
        """A server is about to be started."""

    def progress(self, deployment: Deployment, text: str) -> None:
        """It is not ready yet: what its log says that it is doing."""

    def ready(self, deployment: Deployment, facts: ServerFacts) -> None:
        """It is ready."""

    def launch_failed(self, deployment: Deployment, error: LaunchError) -> None:
        """It did not become ready; its trials end here."""

    def trial_begins(self, trial: BatchTrial) -> None:
        """The first warm-up of a trial is next."""

    def run_ended(self, trial: BatchTrial, observations: Sequence[StepObservation]) -> None:
        """One warm-up or run of a trial is over."""

    def trial_ended(self, trial: BatchTrial | LoadTrial, end: TrialEnd) -> None:
        """A trial has its end, whether it was run or not."""

    def load_begins(self, trial: LoadTrial, ask: StageAsk) -> None:
        """A load, or one of those of a search, is about to be sent."""

    def load_tried(self, trial: LoadTrial, ask: StageAsk, met: bool) -> None:
        """One load of a search is over. met: whether it met every SLO."""

    def load_progress(self, trial: LoadTrial, progress: Progress) -> None:
        """About once a second while it is sent: other processes keep its time."""
