"""What a sweep shows while it runs: lines, and on a terminal a status that stays below them.

Both are written between runs only. Nothing is drawn by a thread: a redraw between a send and
its reply would be part of the latency.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tgi_bench.analysis.remaining import Remaining, most_stages
from tgi_bench.drive.stage import Progress, StageAsk
from tgi_bench.errors import LaunchError
from tgi_bench.inert import on_one_line
from tgi_bench.observation import Outcome, Phase, ServerFacts, StepObservation, TrialEnd
from tgi_bench.plan.load_trial import ClosedLoop, Find, LoadTrial, OpenLoop
from tgi_bench.plan.plan import BatchTrial, Deployment, Plan
from tgi_bench.report.durations import duration

if TYPE_CHECKING:
    from tgi_bench.analysis.planned import TrialEstimate

_MARKS = {
    Outcome.OK: "ok",
    Outcome.OUT_OF_MEMORY: "OOM",
    Outcome.HOST_OUT_OF_MEMORY: "HOST OOM",
    Outcome.SKIPPED: "skipped",
    Outcome.REFUSED: "refused",
    Outcome.TIMEOUT: "TIMEOUT",
    Outcome.SHARD_DIED: "DIED",
    Outcome.SERVER_DIED: "DIED",
    Outcome.LAUNCH_FAILED: "NOT STARTED",
    Outcome.FAILED: "FAILED",
}
_LOG_LINES = 10
_SECONDS_BETWEEN_PROGRESS = 2.0
_SECONDS_BETWEEN_LOAD_LINES = 10.0
_REASON_LENGTH = 90
_NOTHING = Progress(share=None, ended=0, failed=0, tokens=0)
_LEAST_LEFT_S = 0.05
"""Less is not worth a word."""


class PlainLines:
    """One line for each thing that happens."""

    def __init__(
        self, console: Console, plan: Plan, estimates: Mapping[str, TrialEstimate], done: int
    ) -> None:
        self._console = console
        self._total = len(plan.trials) + len(plan.load_trials)
        self._done = done
        self.remaining = Remaining(plan, estimates)
        self._began_ns = 0
        self._last = ""
        self._said_at = 0.0
        self._earlier = self._step = _NOTHING
        self.trying = ""

    def skip_done(self, trials: Sequence[BatchTrial | LoadTrial]) -> None:
        """These have their end from before."""
        for trial in trials:
            self.remaining.ended(trial, None)

    def launching(self, deployment: Deployment) -> None:
        """A server is about to be started."""
        self._said_at = time.monotonic()
        self._say(f"starting {deployment.deployment_id} ({deployment.launcher})")

    def progress(self, deployment: Deployment, text: str) -> None:
        """What its log says that it is doing; not every word of a start that goes quickly."""
        now = time.monotonic()
        if now - self._said_at >= _SECONDS_BETWEEN_PROGRESS:
            self._said_at = now
            self._say(f"         {deployment.deployment_id}: {text}")

    def ready(self, deployment: Deployment, facts: ServerFacts) -> None:
        """It is ready."""
        kind = "simulated, " if facts.simulated else ""
        self._say(
            f"ready    {deployment.deployment_id} ({kind}in {duration(facts.ready_ns / 1e9)})"
        )

    def launch_failed(self, deployment: Deployment, error: LaunchError) -> None:
        """It did not become ready."""
        self._say_whole(f"NOT STARTED {deployment.deployment_id}: {on_one_line(str(error))}")
        for line in error.log_tail[-_LOG_LINES:]:
            self._say(f"  | {line}")

    def trial_begins(self, trial: BatchTrial) -> None:
        """The first warm-up is next."""
        self._began_ns = time.monotonic_ns()
        self._last = ""

    def run_ended(self, trial: BatchTrial, observations: Sequence[StepObservation]) -> None:
        """Keep the last latencies for the trial's line."""
        self._last = latencies(observations) or self._last

    def load_begins(self, trial: LoadTrial, ask: StageAsk) -> None:
        """A load is about to be sent; of a search, with the value that it tries."""
        if ask.index == 0:
            self._began_ns = time.monotonic_ns()
            self._earlier = self._step = _NOTHING
        self._earlier, self._step = added(self._earlier, self._step), _NOTHING
        self._last = ""
        self._said_at = time.monotonic()
        self.trying = "" if trial.find is None else _trying(trial.find, ask)
        if self.trying:
            self._say(f"trying   {trial.trial_id}: {self.trying}")

    def load_tried(self, trial: LoadTrial, ask: StageAsk, met: bool) -> None:
        """One load of a search is over: which way the search goes."""
        word = "SLOs met" if met else "SLOs missed"
        self._say(f"tried    {trial.trial_id}: {asked(ask)}: {word}, {counts(self._step)}")

    def load_progress(self, trial: LoadTrial, progress: Progress) -> None:
        """Keep the counts for the trial's line; a long load says now and then how far it is."""
        self._step = progress
        self._last = counts(added(self._earlier, progress))
        now = time.monotonic()
        if progress.share is not None and now - self._said_at >= _SECONDS_BETWEEN_LOAD_LINES:
            self._said_at = now
            value = f"{self.trying}: " if self.trying else ""
            said = f"{value}{progress.share:.0%}, {counts(progress)}"
            self._say(f"         {trial.trial_id}: {said}")

    def trial_ended(self, trial: BatchTrial | LoadTrial, end: TrialEnd) -> None:
        """A trial has its end."""
        took_s = (time.monotonic_ns() - self._began_ns) / 1e9 if end.outcome is Outcome.OK else None
        self.remaining.ended(trial, took_s)
        self._done += 1
        detail = self._last if end.outcome is Outcome.OK else _short(end.reason)
        self._say(
            f"{self._position()} {_MARKS[end.outcome]:<8} {trial.trial_id}  {detail}{self._left()}"
        )

    def _position(self) -> str:
        width = len(str(self._total))
        return f"[{self._done:>{width}}/{self._total}]"

    def _left(self) -> str:
        seconds = self.remaining.seconds()
        return (
            "" if seconds is None or seconds < _LEAST_LEFT_S else f"  (~{duration(seconds)} left)"
        )

    def _say(self, line: str) -> None:
        self._say_whole(fitting(self._console, on_one_line(line)))

    def _say_whole(self, line: str) -> None:
        # A terminal's lines end between words; a file keeps them as they are.
        whole = not self._console.is_terminal
        self._console.print(line, markup=False, highlight=False, soft_wrap=whole)


class LiveScreen:
    """The same lines above, and below them what runs now. Use it as a context manager."""

    def __init__(
        self, console: Console, plan: Plan, estimates: Mapping[str, TrialEstimate], done: int
    ) -> None:
        self._lines = PlainLines(console, plan, estimates, done)
        self._plan = plan
        self._now: list[str] = []
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveScreen:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def skip_done(self, trials: Sequence[BatchTrial | LoadTrial]) -> None:
        """These have their end from before."""
        self._lines.skip_done(trials)

    def launching(self, deployment: Deployment) -> None:
        """A server is about to be started."""
        self._lines.launching(deployment)
        self._draw(f"starting {deployment.deployment_id}", "")

    def progress(self, deployment: Deployment, text: str) -> None:
        """What its log says that it is doing."""
        self._draw(f"starting {deployment.deployment_id}", text)

    def ready(self, deployment: Deployment, facts: ServerFacts) -> None:
        """It is ready."""
        self._lines.ready(deployment, facts)

    def launch_failed(self, deployment: Deployment, error: LaunchError) -> None:
        """It did not become ready."""
        self._lines.launch_failed(deployment, error)

    def trial_begins(self, trial: BatchTrial) -> None:
        """The first warm-up is next."""
        self._lines.trial_begins(trial)
        self._draw(trial.trial_id, _next_run(trial, -1))

    def run_ended(self, trial: BatchTrial, observations: Sequence[StepObservation]) -> None:
        """One warm-up or run is over: show it, and what comes next."""
        self._lines.run_ended(trial, observations)
        if seen := latencies(observations):
            following = _next_run(trial, observations[0].run_index)
            self._draw(trial.trial_id, f"{following}   last: {seen}")

    def load_begins(self, trial: LoadTrial, ask: StageAsk) -> None:
        """A load is about to be sent."""
        self._lines.load_begins(trial, ask)
        self._draw(trial.trial_id, self._lines.trying or asked(ask))

    def load_tried(self, trial: LoadTrial, ask: StageAsk, met: bool) -> None:
        """One load of a search is over."""
        self._lines.load_tried(trial, ask, met)

    def load_progress(self, trial: LoadTrial, progress: Progress) -> None:
        """How far it is: its workers keep the time, so a redraw moves no send."""
        self._lines.load_progress(trial, progress)
        share = "" if progress.share is None else f"{progress.share:.0%}   "
        value = f"{self._lines.trying}: " if self._lines.trying else ""
        self._draw(trial.trial_id, f"{value}{share}{counts(progress)}")

    def trial_ended(self, trial: BatchTrial | LoadTrial, end: TrialEnd) -> None:
        """A trial has its end."""
        self._lines.trial_ended(trial, end)

    def _draw(self, what: str, detail: str) -> None:
        total = len(self._plan.trials) + len(self._plan.load_trials)
        left = self._lines.remaining.trials
        bar = Table.grid(padding=(0, 2))
        seconds = self._lines.remaining.seconds()
        bar.add_row(
            ProgressBar(total=total, completed=total - left, width=30),
            Text(f"{total - left}/{total} trials"),
            Text(
                ""
                if seconds is None or seconds < _LEAST_LEFT_S
                else f"about {duration(seconds)} left"
            ),
        )
        console = self._live.console
        now = Text(fitting(console, on_one_line(f"now: {what}")), style="bold")
        parts: list[RenderableType] = [Text(""), bar, now]
        if detail:
            parts.append(Text(fitting(console, f"     {on_one_line(detail)}")))
        self._live.update(Group(*parts), refresh=True)


def latencies(observations: Sequence[StepObservation]) -> str:
    """ "prefill 139.8 ms, decode 28.8 ms": of one run, the decode steps' mean; "" for none."""
    ok = [o for o in observations if o.outcome is Outcome.OK]
    prefill = [o.latency_ns for o in ok if o.phase is Phase.PREFILL]
    decode = [o.latency_ns for o in ok if o.phase is Phase.DECODE]
    parts = []
    if prefill:
        parts.append(f"prefill {duration(prefill[0] / 1e9)}")
    if decode:
        parts.append(f"decode {duration(sum(decode) / len(decode) / 1e9)}")
    return ", ".join(parts)


def asked(ask: StageAsk) -> str:
    """ "concurrency 8", "4.5 requests/s"; "" where the arrivals change with time."""
    match ask.arrivals:
        case ClosedLoop(concurrency):
            return f"concurrency {concurrency}"
        case OpenLoop(rate_per_s=rate) if rate is not None:
            return f"{rate:.4g} requests/s"
        case _:
            return ""


def _trying(find: Find, ask: StageAsk) -> str:
    """ "concurrency 8, load 4 of 14 at most"."""
    return f"{asked(ask)}, load {ask.index + 1} of {most_stages(find)} at most"


def counts(progress: Progress) -> str:
    """ "120 requests, 15360 tokens, 2 failed"."""
    requests = f"{progress.ended} request{'' if progress.ended == 1 else 's'}"
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{requests}, {progress.tokens} tokens{failed}"


def added(one: Progress, other: Progress) -> Progress:
    """The counts of both, as of two steps of a search."""
    return Progress(
        share=None,
        ended=one.ended + other.ended,
        failed=one.failed + other.failed,
        tokens=one.tokens + other.tokens,
    )


def fitting(console: Console, line: str) -> str:
    """The line, cropped with "..." where it is wider than the terminal; whole in a file."""
    if not console.is_terminal or cell_len(line) <= console.width:
        return line
    return f"{set_cell_size(line, max(0, console.width - 3)).rstrip()}..."


def _short(reason: str) -> str:
    """The reason's beginning: the whole of it is in the report."""
    reason = on_one_line(reason)
    return reason if len(reason) <= _REASON_LENGTH else f"{reason[: _REASON_LENGTH - 3]}..."


def _next_run(trial: BatchTrial, ended: int) -> str:
    following = ended + 1
    if following < trial.warmups:
        return f"warm-up {following + 1} of {trial.warmups}"
    run = following - trial.warmups
    return f"run {run + 1} of {trial.runs}" if run < trial.runs else f"{trial.runs} runs done"
