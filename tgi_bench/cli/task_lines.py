"""What a sweep of direct mode shows while it runs: a line for each thing that happens."""

from __future__ import annotations

from rich.console import Console

from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Plan
from tgi_bench.plan.task_trial import DirectModel, TaskTrial
from tgi_bench.report.durations import counted, duration
from tgi_bench.task_observation import DirectFacts, TaskRun

_MARKS = {
    Outcome.OK: "ok",
    Outcome.OUT_OF_MEMORY: "OOM",
    Outcome.HOST_OUT_OF_MEMORY: "HOST OOM",
    Outcome.SKIPPED: "skipped",
    Outcome.TIMEOUT: "TIMEOUT",
    Outcome.LAUNCH_FAILED: "NOT LOADED",
}
_REASON_LENGTH = 200


class TaskLines:
    """Written between runs only."""

    def __init__(self, console: Console, plan: Plan, done: int) -> None:
        self._console = console
        self._total = len(plan.task_trials)
        self._done = done
        self._last = ""

    def loading(self, model: DirectModel) -> None:
        """A model is about to be loaded."""
        self._say(f"loading  {model.model_id}")

    def loaded(self, model: DirectModel, facts: DirectFacts) -> None:
        """It is there."""
        took = duration(facts.load_ns / 1e9)
        self._say(
            f"loaded   {model.model_id} ({facts.parameters:,} parameters in {facts.dtype} on "
            f"{counted(facts.devices, 'device')} {facts.device}, in {took})"
        )

    def task_begins(self, trial: TaskTrial, batch_size: int) -> None:
        """The first warm-up is next."""
        self._last = ""
        if trial.batch_size is None:
            self._say(f"trying   {trial.trial_id}: batch size {batch_size}")

    def task_run(self, trial: TaskTrial, run: TaskRun) -> None:
        """Keep the last wall time for the trial's line."""
        if run.outcome is Outcome.OK:
            wall_ns = run.ended_ns - run.began_ns
            rate = sum(call.new_tokens for call in run.calls) * 1e9 / wall_ns
            self._last = f"{duration(wall_ns / 1e9)} a run, {rate:.1f} tokens/s"

    def task_ended(self, trial: TaskTrial, end: TrialEnd) -> None:
        """A trial has its end."""
        self._done += 1
        width = len(str(self._total))
        mark = _MARKS.get(end.outcome, "FAILED")
        detail = self._last if end.outcome is Outcome.OK else end.reason[:_REASON_LENGTH]
        place = f"[{self._done:>{width}}/{self._total}]"
        self._say(f"{place} {mark:<8} {trial.trial_id}  {detail}")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)
