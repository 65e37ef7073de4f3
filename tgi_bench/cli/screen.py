"""What a sweep shows while it runs: lines, and on a terminal a status that stays below them.

Both are written between runs only. Nothing is drawn by a thread: a redraw between a send and
its reply would be part of the latency.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tgi_bench.analysis.remaining import Remaining
from tgi_bench.errors import LaunchError
from tgi_bench.inert import on_one_line
from tgi_bench.kinds.running import Watcher
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Plan
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
_SECONDS_BETWEEN_WAITS = 2.0
_SECONDS_BETWEEN_LOAD_LINES = 10.0
_REASON_LENGTH = 90
_LEAST_LEFT_S = 0.05
"""Less is not worth a word."""


class Screen(Watcher):
    """A line for each thing that happens; on a terminal, as a context manager, a status below.

    done: trials that have their end from before.
    """

    def __init__(
        self,
        console: Console,
        plan: Plan,
        estimates: Mapping[str, TrialEstimate],
        done: Collection[str] = (),
    ) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._remaining = Remaining(plan, estimates)
        self._total = self._remaining.trials
        for trial_id in done:
            self._remaining.ended(trial_id, None)
        self._began_ns = 0
        self._said_at = 0.0
        self._result = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def starting(self, host_id: str, word: str, detail: str = "") -> None:
        """A line, and the status until it is ready."""
        self._now(f"{word} {host_id}")
        self._say(f"{word:<8} {host_id} {detail}".rstrip())

    def waiting(self, host_id: str, text: str) -> None:
        """Not every word of a start that goes quickly."""
        self._now(f"starting {host_id}", text)
        self._now_and_then(_SECONDS_BETWEEN_WAITS, f"{host_id}: {text}")

    def ready(self, host_id: str, word: str, detail: str) -> None:
        """A line."""
        self._now("")
        self._say(f"{word:<8} {host_id} {detail}")

    def not_started(self, host_id: str, error: LaunchError) -> None:
        """Why, and the end of its log."""
        self._now("")
        self._say_whole(f"NOT STARTED {host_id}: {on_one_line(str(error))}")
        for line in error.log_tail[-_LOG_LINES:]:
            self._say(f"  | {line}")

    def begins(self, trial_id: str, now: str = "") -> None:
        """No line of its own: its end has one."""
        self._began_ns = time.monotonic_ns()
        self._said_at = time.monotonic()
        self._result = ""
        self._now(trial_id, now)

    def part_begins(self, trial_id: str, now: str) -> None:
        """A line: a part may take long."""
        self._now(trial_id, now)
        self._say(f"trying   {trial_id}: {now}")

    def part_ended(self, trial_id: str, said: str) -> None:
        """A line."""
        self._now(trial_id)
        self._say(f"tried    {trial_id}: {said}")

    def going(self, trial_id: str, now: str, result: str, line: str = "") -> None:
        """Kept for the trial's line; what takes long says now and then how far it is."""
        self._result = result
        self._now(trial_id, now)
        if line:
            self._now_and_then(_SECONDS_BETWEEN_LOAD_LINES, f"{trial_id}: {line}")

    def ended(self, trial_id: str, end: TrialEnd) -> None:
        """A line: how it ended, and what came of it."""
        took_s = (time.monotonic_ns() - self._began_ns) / 1e9 if end.outcome is Outcome.OK else None
        self._remaining.ended(trial_id, took_s)
        detail = self._result if end.outcome is Outcome.OK else _short(end.reason)
        done, width = self._total - self._remaining.trials, len(str(self._total))
        left = self._left("  (~{} left)")
        self._now("")
        self._say(
            f"[{done:>{width}}/{self._total}] {_MARKS[end.outcome]:<8} {trial_id}  {detail}{left}"
        )

    def _left(self, form: str) -> str:
        seconds = self._remaining.seconds()
        return "" if seconds is None or seconds < _LEAST_LEFT_S else form.format(duration(seconds))

    def _now_and_then(self, every_s: float, line: str) -> None:
        now = time.monotonic()
        if now - self._said_at >= every_s:
            self._say(f"         {line}")

    def _say(self, line: str) -> None:
        self._say_whole(fitting(self._console, on_one_line(line)))

    def _say_whole(self, line: str) -> None:
        self._said_at = time.monotonic()
        # A terminal's lines end between words; a file keeps them as they are.
        whole = not self._console.is_terminal
        self._console.print(line, markup=False, highlight=False, soft_wrap=whole)

    def _now(self, what: str, detail: str = "") -> None:
        """The status from now on, drawn at once; "": nothing runs. A line redraws it."""
        if not self._live.is_started:
            return
        done = self._total - self._remaining.trials
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=self._total, completed=done, width=30),
            Text(f"{done}/{self._total} trials"),
            Text(self._left("about {} left")),
        )
        parts: list[RenderableType] = [Text(""), bar]
        if what:
            line = fitting(self._console, on_one_line(f"now: {what}"))
            parts.append(Text(line, style="bold"))
        if detail:
            parts.append(Text(fitting(self._console, f"     {on_one_line(detail)}")))
        self._live.update(Group(*parts), refresh=True)


def fitting(console: Console, line: str) -> str:
    """The line, cropped with "..." where it is wider than the terminal; whole in a file."""
    if not console.is_terminal or cell_len(line) <= console.width:
        return line
    return f"{set_cell_size(line, max(0, console.width - 3)).rstrip()}..."


def _short(reason: str) -> str:
    """The reason's beginning: the whole of it is in the report."""
    reason = on_one_line(reason)
    return reason if len(reason) <= _REASON_LENGTH else f"{reason[: _REASON_LENGTH - 3]}..."
