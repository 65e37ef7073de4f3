"""`tgi-bench load URL`: the options as the experiment that a file would have said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tgi_bench.cli.files import require_files
from tgi_bench.cli.load_options import FLAGS, OPTION_OF, OPTIONS, URL, Given
from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.inert import one_line
from tgi_bench.plan.expand import expand
from tgi_bench.plan.experiment import Experiment, validate
from tgi_bench.plan.plan import ANY_MODEL, Plan

if TYPE_CHECKING:
    from tgi_bench.sections.yaml_tree import Tree

_KEY = re.compile("|".join((*map(re.escape, FLAGS), r"(?:load|server)\.[a-z_]+(?:\.[a-z_]+)*")))


def load_plan_of(typed: Given) -> tuple[Experiment, Plan]:
    """The experiment and its plan. Raises ExperimentError, each problem said of its option."""
    tree = load_tree(typed)
    try:
        experiment = validate(tree)
        plan = expand(experiment)
    except ExperimentError as error:
        raise _said_of_options(error) from None
    require_files(plan)
    return experiment, plan


def load_tree(typed: Given) -> Tree:
    """The tree that a file of the same meaning has; what was not given is not in it.

    Raises ExperimentError where an option's text is not of its form.
    """
    found: dict[str, Tree] = {
        "experiment": "load",
        "model": ANY_MODEL,
        "server.launcher": "attach",
        "server.url": typed[URL][0],
    }
    if "--file-kind" in typed and "--file" not in typed:
        raise ExperimentError(Problem("--file-kind", "is read with --file only"))
    for option in OPTIONS:
        if option.name in typed:
            found.update(dict.fromkeys(option.keys, option.value(typed[option.name])))
    if found.keys().isdisjoint(("load.concurrency", "load.rate", "load.trace", "load.find")):
        found["load.concurrency"] = 1
    return _nested(found)


def _nested(flat: Mapping[str, Tree]) -> Tree:
    """Mappings below mappings, of values by their key paths."""
    tree: dict[str, Tree] = {}
    below: dict[str, dict[str, Tree]] = {}
    for path, value in flat.items():
        key, _, rest = path.partition(".")
        if rest:
            below.setdefault(key, {})[rest] = value
        else:
            tree[key] = value
    return tree | {key: _nested(values) for key, values in below.items()}


def in_options(text: str) -> str:
    """A remedy's key paths as the options of `tgi-bench load`; those without one stay."""
    return _KEY.sub(lambda found: _option_for(found[0]), text)


def _option_for(key_path: str) -> str:
    if key_path in FLAGS:
        return FLAGS[key_path]
    option, _ = _option_of(key_path)
    # `--find` takes no bounds.
    return key_path if not option or key_path.startswith("load.find") else option


def _said_of_options(error: ExperimentError) -> ExperimentError:
    """The same problems, each with its option instead of its key path; one that two key paths of
    an option have is said once."""
    sentences: dict[str, None] = {}
    for problem in error.problems:
        option, inner = _option_of(problem.key_path)
        place = f"{inner}: " if inner else ""
        head = f"{option}: " if option else ""
        sentences[one_line(f"{head}{place}{problem.message}")] = None
    said = ExperimentError(*error.problems)
    said.args = ("\n".join(sentences),)
    return said


def _option_of(key_path: str) -> tuple[str, str]:
    """The option, and what is left of the path below it; the whole path where there is none."""
    steps = key_path.split(".")
    for length in range(len(steps), 0, -1):
        option = OPTION_OF.get(".".join(steps[:length]))
        if option is not None:
            inner = steps[length:]
            # A list of one is typed as a value: its index says nothing.
            return option, ".".join(inner) if inner != ["0"] else ""
    return "", key_path
