"""An experiment as its YAML file says it: the models that refuse what they do not know."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)

from tgi_bench.engines.arguments import ArgumentValue
from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.launch import LAUNCHERS, launcher_named
from tgi_bench.launch.embedded import EmbeddedKeys
from tgi_bench.launch.launcher import Launcher
from tgi_bench.sections.refusal import pattern_sentence, refusals
from tgi_bench.sections.section import (
    NAME_PATTERN,
    Seconds,
    Section,
    Word,
    no_duplicates,
    one_or_list,
    refused,
    refused_value,
)
from tgi_bench.trials.batch import BatchKeys
from tgi_bench.trials.direct_keys import DirectExperiment, task_problems
from tgi_bench.trials.load_keys import Loads
from tgi_bench.trials.load_rules import load_problems
from tgi_bench.words import shown

if TYPE_CHECKING:
    # What the command line makes a load of was never YAML.
    from tgi_bench.sections.yaml_tree import Tree


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _argument(value: object) -> ArgumentValue:
    """A scalar as it is; a list of scalars as the launcher's comma list: "1,2,4"."""
    if isinstance(value, list):
        if not value or any(item is None or isinstance(item, list | dict) for item in value):
            raise refused_value(
                "a list as one argument's value must hold strings or numbers", value
            )
        return ",".join(item if isinstance(item, str) else shown(item) for item in value)
    if isinstance(value, float) and not isfinite(value):
        raise refused_value("must be a finite number", value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise refused_value("must be a string, a number, true, false or null", value)


def variable_names(value: object) -> list[str]:
    """Names of environment variables. A value that was written here is not shown again."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise refused(_NAMES_ONLY)
    for name in names:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise refused(_NAMES_ONLY)
    if len(set(names)) < len(names):
        raise refused("holds a name twice")
    return names


_NAMES_ONLY = (
    "must be a list of names of environment variables, as in [HF_TOKEN]: their values come from "
    "the environment that tgi-bench runs in"
)


def _version(value: object) -> object:
    """0.9 without quotes is a number, and 3.10 would lose its zero."""
    if isinstance(value, int | float):
        raise refused_value('must be three numbers in quotes, as in "3.3.7"', value)
    return value


Scalar = str | int | float | bool | None
Argument = Annotated[
    Scalar,
    BeforeValidator(_argument, json_schema_input_type=Scalar | list[str | int | float | bool]),
]
Arguments = Annotated[list[Argument], Field(min_length=1), AfterValidator(no_duplicates)]
MatchedArguments = Annotated[
    list[Argument],
    BeforeValidator(one_or_list, json_schema_input_type=Scalar | list[Scalar]),
    Field(min_length=1),
]


class TimeoutKeys(Section):
    """Seconds that each phase of a start may take."""

    pull_s: Seconds = 3600.0
    """For pulling the image."""
    download_s: Seconds = 3600.0
    """For downloading, and converting, the model's weights."""
    load_s: Seconds = 1200.0
    """For everything else until /health answers: loading, sharding, warming up."""
    probe_s: Seconds = 120.0
    """For the first generated token after that."""


_NAMES = tuple(launcher.name for launcher in LAUNCHERS)


class _WhatServes(Section):
    launcher: Literal[_NAMES]  # type: ignore[valid-type]
    """How a server comes to be."""
    engine: Literal["tgi", "vllm", "sglang", "llamacpp"] = "tgi"
    """Which program serves the model; arguments of others than `tgi` are handed on unchecked."""
    image: Word | None = None
    """The container image; needed by the launcher `docker`. Its tag names TGI's version."""


class _HowItRuns(Section):
    version: Annotated[Word, BeforeValidator(_version)] | None = None
    """TGI's version, `3.3.7`, where the image's tag does not name it."""
    constant: dict[str, Argument] = Field(default_factory=dict)
    """Arguments of text-generation-launcher that every server gets; null is "not given"."""
    variable: dict[str, Arguments] = Field(default_factory=dict)
    """Arguments of text-generation-launcher that vary: a list of values for each."""
    skip: list[Annotated[dict[str, MatchedArguments], Field(min_length=1)]] = Field(
        default_factory=list
    )
    """Combinations to leave out: an entry matches where all its keys match, a list any of."""
    env: Annotated[
        list[str], BeforeValidator(variable_names, json_schema_input_type=str | list[str])
    ] = Field(default_factory=list)
    """Names of environment variables to hand on to the server; values are recorded nowhere."""


class _HowLong(Section):
    timeouts: TimeoutKeys = Field(default_factory=TimeoutKeys)
    """Seconds that each phase of a start may take."""
    embedded: EmbeddedKeys = Field(default_factory=EmbeddedKeys)
    """Read by the launcher `embedded`, and by the estimate that `tgi-bench plan` prints."""


def _sections() -> Iterator[type[Section]]:
    """For each launcher whose keys stand in a mapping of their own that, as a model of one key."""
    for launcher in LAUNCHERS:
        if launcher.section and launcher.section not in _HowLong.model_fields:
            said = f"Read by the launcher `{launcher.name}`."
            key = Field(default_factory=launcher.Keys, description=said)
            keys: Any = {launcher.section: (launcher.Keys, key)}
            yield create_model(f"_{launcher.__name__}Section", __base__=Section, **keys)


_BESIDE = tuple(launcher.Keys for launcher in LAUNCHERS if not launcher.section)


class ServerKeys(
    _HowLong,
    *reversed(tuple(_sections())),  # type: ignore[misc]  # keys that only their launcher reads
    _HowItRuns,
    *reversed(_BESIDE),  # type: ignore[misc]
    _WhatServes,
):
    """The servers to launch: one for each combination of the variable arguments."""

    def launcher_asked(self) -> Launcher:
        """The launcher with its keys."""
        kind = launcher_named(self.launcher)
        given = dict(self)
        if kind.section:
            return kind(given[kind.section])
        own = {name: given[name] for name in kind.Keys.model_fields}
        return kind(kind.Keys.model_construct(**own))


class Experiment(Section):
    """One experiment of tgi-bench."""

    experiment: Annotated[str, Field(pattern=NAME_PATTERN)]
    """Its name, which is its folder's too: letters, digits, `.`, `_`, `-`; at most 100."""
    model: Word
    """The model: an id of the Hugging Face hub, or a path that the server sees."""
    server: ServerKeys
    """The servers to launch."""
    batches: BatchKeys | None = None
    """Batches to send to the shards over gRPC; needed where there is no `load`."""
    load: Loads | None = None
    """Requests to send over HTTP, after the batches: one load or a list of them."""


AnyExperiment = Experiment | DirectExperiment
"""On a server, or in direct mode, which the key `backend` tells."""


def validate_any(tree: Tree) -> AnyExperiment:
    """The experiment that a YAML document's value is; raises ExperimentError as `validate`."""
    if isinstance(tree, dict) and "backend" in tree:
        return _validate_direct(tree)
    return validate(tree)


def _validate_direct(tree: Tree) -> DirectExperiment:
    try:
        experiment = DirectExperiment.model_validate(tree)
    except ValidationError as error:
        raise ExperimentError(*refusals(error, DirectExperiment)) from None
    if problems := task_problems(experiment):
        raise ExperimentError(*(Problem(key_path, text) for key_path, text in problems))
    return experiment


def validate(tree: Tree) -> Experiment:
    """The experiment on a server that a YAML document's value is.

    Raises ExperimentError with every problem and its key path.
    """
    # A lone load is not said to be the first of a list: its keys stand right below `load`.
    lone = isinstance(tree, dict) and not isinstance(tree.get("load"), list)
    try:
        experiment = Experiment.model_validate(tree)
    except ValidationError as error:
        problems = refusals(error, Experiment)
        raise ExperimentError(*(_below_load(p) if lone else p for p in problems)) from None
    if experiment.batches is None and experiment.load is None:
        raise ExperimentError(Problem("", "holds neither `batches` nor `load`: give at least one"))
    loads = experiment.load or []
    paths = ["load" if lone else f"load.{index}" for index in range(len(loads))]
    if problems := load_problems(loads, paths):
        raise ExperimentError(*problems)
    return experiment


def _below_load(problem: Problem) -> Problem:
    """The problem with its key path as it stands in a file with one load and no list."""
    if problem.key_path == "load.0" or problem.key_path.startswith("load.0."):
        return Problem("load" + problem.key_path.removeprefix("load.0"), problem.message)
    return problem


def require_name(name: str, option: str) -> None:
    """Raise ExperimentError where an experiment could not have this name."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ExperimentError(Problem(option, pattern_sentence(NAME_PATTERN, name)))


def to_json(experiment: AnyExperiment) -> str:
    """The experiment for a run file, under the keys that the YAML has."""
    return experiment.model_dump_json(by_alias=True)


def json_schema() -> str:
    """The JSON Schema of the YAML file, for editors: indented, ends in a line's end."""
    # It reads source files: only here, as the texts are needed nowhere else.
    from tgi_bench.sections.refusal import with_texts

    adapter: TypeAdapter[AnyExperiment] = TypeAdapter(AnyExperiment)
    schema = with_texts(adapter.json_schema(mode="validation"))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**head, **schema}, indent=2, ensure_ascii=False) + "\n"
