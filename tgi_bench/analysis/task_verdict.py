"""Whether to believe a run of direct mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tgi_bench.analysis.load_rows import listed, unchecked
from tgi_bench.analysis.run import Check, Verdict
from tgi_bench.analysis.task_run import TaskFigures, TaskSummary
from tgi_bench.analysis.telemetry import TelemetrySummary
from tgi_bench.analysis.telemetry_checks import telemetry_checks
from tgi_bench.analysis.verdict import LEAST_RUNS, MOST_FIRST_RUN_EXCESS, MOST_SPREAD
from tgi_bench.observation import Outcome
from tgi_bench.plan.task_trial import GenerateTask, SummarizeTask, TaskTrial

Tasks = Sequence[TaskSummary]
_FINE = (Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.SKIPPED)
_RESUME = "go on with `tgi-bench sweep EXPERIMENT --resume`"


def judge_tasks(
    tasks: Tasks, finished: bool, telemetry: Sequence[TelemetrySummary] = ()
) -> Verdict:
    """Every check of direct mode; one that cannot be made says so and passes."""
    return Verdict(
        (
            _ended(tasks, finished),
            _failed(tasks),
            _runs(tasks),
            _output_length(tasks),
            _prompt_length(tasks),
            _spread(tasks),
            _warm_up(tasks),
            _searches(tasks),
            *telemetry_checks(telemetry),
        )
    )


def _with_figures(tasks: Tasks) -> Iterator[tuple[str, TaskSummary, TaskFigures]]:
    """Name, trial and figures of each batch size and document that has some."""
    for task in tasks:
        for figures in task.figures:
            if figures.runs and figures.end is not None and figures.end.outcome is Outcome.OK:
                name = task.trial.trial_id
                if task.trial.batch_size is None:
                    name += f", batch size {figures.batch_size}"
                yield name, task, figures


def _ended(tasks: Tasks, finished: bool) -> Check:
    name = "every trial ended"
    missing = [task.trial.trial_id for task in tasks if task.end is None]
    if missing or not finished:
        what = listed(missing) if missing else "the sweep itself"
        done = len(tasks) - len(missing)
        finding = f"{done} of {len(tasks)} trials ended; not finished: {what}"
        return Check(name, False, finding, _RESUME)
    return Check(name, True, f"{len(tasks)} of {len(tasks)}", "")


def _failed(tasks: Tasks) -> Check:
    """Running out of memory is a result."""
    name = "no trial failed"
    failed = [
        f"{task.trial.trial_id} ({task.end.outcome.value.replace('_', ' ')}: {task.end.reason})"
        for task in tasks
        if task.end is not None and task.end.outcome not in _FINE
    ]
    if failed:
        remedy = (
            "read the reason and the log in launch/; a timeout is mended by run_timeout_s or "
            "transformers.load_timeout_s"
        )
        return Check(name, False, listed(failed), remedy)
    if not any(True for _ in _with_figures(tasks)):
        remedy = "choose a smaller batch_size, prompt_tokens or model, or another dtype"
        return Check(name, False, "no trial has figures", remedy)
    counts: dict[str, int] = {}
    for task in tasks:
        if task.end is not None:
            word = task.end.outcome.value.replace("_", " ")
            counts[word] = counts.get(word, 0) + 1
    return Check(name, True, ", ".join(f"{count} {word}" for word, count in counts.items()), "")


def _runs(tasks: Tasks) -> Check:
    name = f"at least {LEAST_RUNS} runs"
    found = list(_with_figures(tasks))
    few = [f"{what} ({figures.runs})" for what, _, figures in found if figures.runs < LEAST_RUNS]
    if few:
        return Check(name, False, listed(few), "raise generate.runs or summarize.runs")
    if not found:
        return unchecked(name, "no trial has figures")
    counts = sorted({figures.runs for _, _, figures in found})
    between = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return Check(name, True, f"{between} runs of each", "")


def _output_length(tasks: Tasks) -> Check:
    name = "every run has the asked output length"
    wrong = []
    found = list(_with_figures(tasks))
    for what, task, figures in found:
        asked = new_tokens_asked(task.trial, figures)
        if figures.runs != task.trial.runs or figures.new_tokens is None:
            wrong.append(f"{what} ({figures.runs} of {task.trial.runs} runs, or of other lengths)")
        elif asked is not None and figures.new_tokens != asked:
            wrong.append(f"{what} ({figures.new_tokens} new tokens instead of {asked})")
    if wrong:
        return Check(name, False, listed(wrong), "see task_calls in run.db, then measure again")
    if not found:
        return unchecked(name, "no trial has figures")
    return Check(name, True, "batch size x new tokens in each, counted by the tokenizer's ids", "")


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


def _prompt_length(tasks: Tasks) -> Check:
    name = "prompts have the asked length"
    known = [
        (what, task.trial.task, figures)
        for what, task, figures in _with_figures(tasks)
        if isinstance(task.trial.task, GenerateTask)
    ]
    if not known:
        return unchecked(name, "no generate trial has figures")
    wrong = [
        f"{what} ({figures.prompt_tokens} instead of {figures.batch_size * task.prompt_tokens})"
        for what, task, figures in known
        if figures.prompt_tokens != figures.batch_size * task.prompt_tokens
    ]
    if wrong:
        return Check(name, False, listed(wrong), "report the tokenizer as a bug")
    return Check(name, True, f"counted by the tokenizer's ids, in {len(known)} batch sizes", "")


def _spread(tasks: Tasks) -> Check:
    """(highest - lowest) / mean of a run's wall time."""
    return _limited(
        tasks,
        f"runs of a trial agree within {MOST_SPREAD:.0%}",
        (_relative_spread, MOST_SPREAD),
        "no trial has two runs",
        "raise warmups, keep the machine quiet, or raise runs and compare by p50",
    )


def _relative_spread(figures: TaskFigures) -> float | None:
    if figures.run is None or figures.runs < 2 or figures.run.mean <= 0:
        return None
    return (figures.run.highest - figures.run.lowest) / figures.run.mean


def _warm_up(tasks: Tasks) -> Check:
    return _limited(
        tasks,
        "the first run is no slower than the others",
        (lambda figures: figures.first_run_excess, MOST_FIRST_RUN_EXCESS),
        "no trial has three runs",
        "raise warmups",
    )


def _limited(
    tasks: Tasks,
    name: str,
    limit: tuple[Callable[[TaskFigures], float | None], float],
    unmade: str,
    remedy: str,
) -> Check:
    """Whether a share is at most its limit, of every batch size that has it."""
    share, most = limit
    found = [
        (value, what)
        for what, _, figures in _with_figures(tasks)
        if (value := share(figures)) is not None
    ]
    if not found:
        return unchecked(name, unmade)
    above = [f"{what} ({value:.1%})" for value, what in found if value > most]
    if above:
        return Check(name, False, listed(above), remedy)
    worst, what = max(found)
    return Check(name, True, f"at most {max(worst, 0.0):.1%} ({what})", "")


def _searches(tasks: Tasks) -> Check:
    name = "searches found where memory ends"
    sought = [task for task in tasks if task.trial.batch_size is None and task.end is not None]
    if not sought:
        return unchecked(name, "no trial looks for the largest batch size")
    open_ones = [
        f"{task.trial.trial_id} ({task.largest.fits} fits)"
        for task in sought
        if task.largest is not None and task.largest.too_large is None
    ]
    if open_ones:
        return Check(name, False, listed(open_ones), "raise generate.find_batch.highest")
    return Check(name, True, f"{len(sought)} of {len(sought)}", "")
