"""Whether to believe a run of direct mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.analysis.rules import (
    Check,
    Failing,
    Rule,
    Seen,
    apply,
    failed,
    limited,
    listed,
    passed,
    unmade,
)
from tgi_bench.analysis.run import Run
from tgi_bench.kinds.batch.rules import LEAST_RUNS, MOST_FIRST_RUN_EXCESS, MOST_SPREAD
from tgi_bench.kinds.direct.figures import TaskFigures, TaskSummary
from tgi_bench.observation import Outcome
from tgi_bench.trials.direct import GenerateTask, SummarizeTask, TaskTrial


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One batch size or document that has figures."""

    task: TaskSummary
    figures: TaskFigures

    @property
    def name(self) -> str:
        """The trial's id, and its batch size where it has several."""
        several = self.task.trial.batch_size is None
        more = f", batch size {self.figures.batch_size}" if several else ""
        return self.task.trial.trial_id + more

    @property
    def trial_id(self) -> str:
        """Of the task."""
        return self.task.trial.trial_id

    @property
    def deployment_id(self) -> None:
        """None: there is no server."""
        return None


def task_checks(run: Run) -> tuple[Check, ...]:
    """Every check of direct mode; one that cannot be made says so and passes."""
    tasks = run.of(TaskSummary)
    rows = [row for task in tasks for row in rows_of(task)]
    return (*(apply(rule, rows) for rule in RULES), _searches(tasks))


def rows_of(task: TaskSummary) -> tuple[TaskRow, ...]:
    """One for each batch size and document that has figures."""
    return tuple(
        TaskRow(task, figures)
        for figures in task.figures
        if figures.runs and figures.end is not None and figures.end.outcome is Outcome.OK
    )


def mends(_run: Run, _task: TaskSummary) -> tuple[str, ...]:
    """What mends a task that failed."""
    return (
        "read the reason and the log in launch/",
        "a timeout is mended by run_timeout_s or transformers.load_timeout_s, a host whose memory "
        "ran out by raising the limit of its cgroup or choosing a smaller batch_size",
    )


def _few_runs(row: TaskRow) -> Seen:
    runs = row.figures.runs
    return Seen(runs < LEAST_RUNS, -runs, f"{runs}")


def _how_many(seen: Sequence[Seen]) -> str:
    counts = sorted({-round(one.measure) for one in seen})
    between = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{between} runs of each"


def _output_length(row: TaskRow) -> Seen:
    trial, figures = row.task.trial, row.figures
    asked = new_tokens_asked(trial, figures)
    if figures.runs != trial.runs or figures.new_tokens is None:
        return Seen(True, 2, f"{figures.runs} of {trial.runs} runs, or of other lengths")
    wrong = asked is not None and figures.new_tokens != asked
    return Seen(wrong, 1, f"{figures.new_tokens} new tokens instead of {asked}")


def new_tokens_asked(trial: TaskTrial, figures: TaskFigures) -> int | None:
    """Of one run; of a summary it is what its calls have, all of the length that was asked."""
    match trial.task:
        case GenerateTask(_, new_tokens):
            return figures.batch_size * new_tokens
        case SummarizeTask(document_tokens=int(tokens), chunk_tokens=chunk):
            maps = -(-tokens // chunk)
            if figures.calls is None:
                return None
            reduces = figures.calls - maps
            return maps * trial.task.map_new_tokens + reduces * trial.task.reduce_new_tokens
        case _:
            return None


def _prompt_length(row: TaskRow) -> Seen | None:
    task, figures = row.task.trial.task, row.figures
    if not isinstance(task, GenerateTask):
        return None
    asked = figures.batch_size * task.prompt_tokens
    text = f"{figures.prompt_tokens} instead of {asked}"
    return Seen(figures.prompt_tokens != asked, 1, text)


def _relative_spread(row: TaskRow) -> float | None:
    """(highest - lowest) / mean of a run's wall time."""
    run = row.figures.run
    if run is None or row.figures.runs < 2 or run.mean <= 0:
        return None
    return (run.highest - run.lowest) / run.mean


def _searches(tasks: Sequence[TaskSummary]) -> Check:
    name = "searches found where memory ends"
    sought = [task for task in tasks if task.trial.batch_size is None and task.end is not None]
    if not sought:
        return unmade(name, "no trial looks for the largest batch size")
    unbounded = tuple(
        Failing(task.trial.trial_id, task.trial.trial_id, None, f"{task.largest.fits} fits")
        for task in sought
        if task.largest is not None and task.largest.too_large is None
    )
    if unbounded:
        finding = listed([f"{row.name} ({row.text})" for row in unbounded])
        return failed(name, finding, "raise generate.find_batch.highest", unbounded)
    return passed(name, f"{len(sought)} of {len(sought)}")


_ROWS = "batch sizes"
RULES: tuple[Rule[TaskRow], ...] = (
    Rule(
        f"at least {LEAST_RUNS} runs",
        _few_runs,
        "no trial has figures",
        "raise generate.runs or summarize.runs",
        _ROWS,
        _how_many,
    ),
    Rule(
        "every run has the asked output length",
        _output_length,
        "no trial has figures",
        "see task_calls in run.db, then measure again",
        _ROWS,
        lambda _: "batch size x new tokens in each, counted by the tokenizer's ids",
    ),
    Rule(
        "prompts have the asked length",
        _prompt_length,
        "no generate trial has figures",
        "report the tokenizer as a bug",
        _ROWS,
        lambda seen: f"counted by the tokenizer's ids, in {len(seen)} batch sizes",
    ),
    limited(
        f"runs of a trial agree within {MOST_SPREAD:.0%}",
        (_relative_spread, MOST_SPREAD),
        "no trial has two runs",
        "raise warmups, keep the machine quiet, or raise runs and compare by p50",
        _ROWS,
    ),
    limited(
        "the first run is no slower than the others",
        (lambda row: row.figures.first_run_excess, MOST_FIRST_RUN_EXCESS),
        "no trial has three runs",
        "raise warmups",
        _ROWS,
    ),
)
