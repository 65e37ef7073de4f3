"""An experiment file's text and the command line's overrides to an experiment and its plan."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.inert import one_line
from tgi_bench.plan.expand import expand, expand_tasks
from tgi_bench.plan.experiment import AnyExperiment, Experiment, validate_any
from tgi_bench.plan.plan import Override, Plan
from tgi_bench.sections.yaml_tree import Document, Tree, YamlError, parse_yaml
from tgi_bench.words import shown

LAUNCHER_KEY = "server.launcher"
_HIDDEN = ("server.env", "server.headers", "server.command")
_SECRET = re.compile(r"token$|key$|secret|password", re.IGNORECASE)


def parse_overrides(settings: Sequence[str], launcher: str | None = None) -> tuple[Override, ...]:
    """The overrides of `--set key.path=value` (its text after --set) and of `--launcher`.

    Raises ExperimentError where a text is not of that form.
    """
    overrides = [_parse_override(text) for text in settings]
    if launcher is not None:
        overrides.append(Override(LAUNCHER_KEY, launcher, "--launcher"))
    return tuple(overrides)


def _parse_override(text: str) -> Override:
    key_path, equals, value = text.partition("=")
    if not equals or not all(key_path.split(".")):
        message = "write it as key.path=value, as in server.launcher=embedded"
        raise ExperimentError(Problem(f"--set {text}", message))
    return Override(key_path, value)


def load(text: str, file: str, overrides: Sequence[Override] = ()) -> Experiment:
    """The experiment on a server of a YAML text, with `overrides` in place of what it says.

    file: as the messages name it. Raises ExperimentError with all problems, each with
    `file:line` where the file holds it and with `--set ...` where the command line does.
    """
    experiment, _ = load_plan(text, file, overrides)
    if isinstance(experiment, Experiment):
        return experiment
    raise ExperimentError(Problem("backend", "makes it one of direct mode, without a server"))


def load_plan(
    text: str, file: str, overrides: Sequence[Override] = (), only: Sequence[str] = ()
) -> tuple[AnyExperiment, Plan]:
    """The same, with its plan; `only` as `expand` takes it."""
    try:
        document = parse_yaml(text)
    except YamlError as error:
        raise error.located(file, {"": error.line}) from None
    try:
        tree = document.tree
        for override in overrides:
            tree = _overridden(tree, override)
        experiment = validate_any(tree)
        if isinstance(experiment, Experiment):
            return experiment, expand(experiment, only, overrides)
        return experiment, expand_tasks(experiment, only, overrides)
    except ExperimentError as error:
        raise _located(error, file, document, overrides) from None


def _overridden(tree: Tree, override: Override) -> Tree:
    """A copy of the tree with one value replaced, and the keys to it made where missing."""
    try:
        value = parse_yaml(override.value).tree if override.value.strip() else None
    except YamlError as error:
        message = "; ".join(problem.message for problem in error.problems)
        raise ExperimentError(Problem(_flag(override), f"its value {message}")) from None
    return _replaced(tree, override.key_path.split("."), value, override)


def _replaced(tree: Tree, steps: Sequence[str], value: Tree, override: Override) -> Tree:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    match tree:
        case dict():
            return {**tree, step: _replaced(tree.get(step), rest, value, override)}
        case list() if step.isdecimal() and int(step[:9]) < len(tree):
            index = int(step)
            inner = _replaced(tree[index], rest, value, override)
            return [*tree[:index], inner, *tree[index + 1 :]]
        case None:
            return {step: _replaced(None, rest, value, override)}
        case list():
            message = f"`{step}` is no position in a list of {len(tree)}"
        case _:
            message = f"there is no key `{step}` in a value that is no mapping"
    raise ExperimentError(Problem(_flag(override), message))


def _flag(override: Override) -> str:
    if override.option == "--launcher":
        return f"--launcher {one_line(override.value)}"
    return one_line(f"--set {override.key_path}={_shown(override)}")


def _shown(override: Override) -> str:
    """The value, unless it is where somebody may have written a secret."""
    secret = override.key_path.startswith(_HIDDEN) or _SECRET.search(override.key_path)
    return "..." if secret else shown(override.value)


def _located(
    error: ExperimentError, file: str, document: Document, overrides: Sequence[Override]
) -> ExperimentError:
    """The same problems, each said to be of the file's line or of the command line."""
    sentences = []
    for problem in error.problems:
        override = _override_of(problem, document, overrides)
        if override is not None:
            inner = problem.key_path[len(override.key_path) :].lstrip(".")
            place = f"{inner}: " if inner else ""
            sentences.append(one_line(f"{_flag(override)}: {place}{problem.message}"))
        elif problem.key_path.startswith("--"):
            sentences.append(str(ExperimentError(problem)))
        else:
            sentences.append(str(ExperimentError(problem).located(file, document.lines)))
    located = ExperimentError(*error.problems)
    located.args = ("\n".join(sentences),)
    return located


def _override_of(
    problem: Problem, document: Document, overrides: Sequence[Override]
) -> Override | None:
    """The last override that the problem's value came with; None where the file gave it."""
    for override in reversed(overrides):
        inside = f"{problem.key_path}.".startswith(f"{override.key_path}.")
        made = problem.key_path not in document.lines and override.key_path.startswith(
            f"{problem.key_path}."
        )
        if problem.key_path and (inside or made):
            return override
    return None
