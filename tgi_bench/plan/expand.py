"""An experiment to its plan: constant x variable, then a trial for each batch and each load."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.engines.engine import argument_problems
from tgi_bench.engines.versions import (
    NEWEST,
    parse_version,
    tag_of,
    version_of_image,
)
from tgi_bench.errors import ExperimentError, InputError, Problem
from tgi_bench.launch.deployment import deployment_id
from tgi_bench.launch.launcher import Launcher, ServerAsked
from tgi_bench.plan.experiment import Experiment
from tgi_bench.plan.matrix import Combination, combinations
from tgi_bench.plan.plan import (
    BatchTrial,
    Deployment,
    Engine,
    LauncherArgument,
    Override,
    Plan,
    Timeouts,
)
from tgi_bench.plan.whole import digest_of, digested, require_batch_within, require_trials_within
from tgi_bench.trials.batch import BatchKeys, batch_trials
from tgi_bench.trials.load_keys import load_trials, trial_count


def expand(
    experiment: Experiment, only: Sequence[str] = (), overrides: Sequence[Override] = ()
) -> Plan:
    """The plan of an experiment: a pure function, with the same ids and digest everywhere.

    only: "num_shard=1,2" keeps these values of a variable argument; each is recorded as an
    override. Raises ExperimentError: arguments that this version's launcher does not take, an
    image that is missing, a matrix that is empty or too large.
    """
    version, assumed = _version(experiment)
    chosen, restrictions = combinations(experiment.server, version, only)
    _check_arguments(experiment, version, chosen)
    launcher = _launcher(experiment, version, len(chosen))
    deployments = tuple(_deployment(experiment, launcher, c, version, assumed) for c in chosen)
    trials = () if experiment.batches is None else _batches(experiment.batches, deployments)
    require_trials_within("load", len(deployments) * trial_count(experiment.load or ()))
    loads = load_trials(
        experiment.load or (), [deployment.deployment_id for deployment in deployments]
    )
    measured = {
        "experiment": experiment.experiment,
        "model": experiment.model,
        "deployments": [deployment.fields for deployment in deployments],
        "trials": [digested(trial) for trial in trials],
    }
    if loads:  # runs of batches alone keep the digest that they were recorded with
        measured["load_trials"] = [digested(trial) for trial in loads]
    return Plan(
        experiment=experiment.experiment,
        model=experiment.model,
        deployments=deployments,
        trials=trials,
        overrides=(*overrides, *restrictions),
        digest=digest_of(**measured),
        load_trials=loads,
    )


def _version(experiment: Experiment) -> tuple[str, bool]:
    """TGI's version, and whether it had to be assumed; another engine's as it is written."""
    server = experiment.server
    if Engine(server.engine) is not Engine.TGI:
        return server.version or tag_of(server.image or ""), False
    tagged = version_of_image(server.image) if server.image else None
    if (
        server.version
        and tagged
        and _parsed("server.version", server.version) != _parsed("server.image", tagged)
    ):
        message = f"`{server.version}` is not what the image's tag says: {tagged}"
        raise ExperimentError(Problem("server.version", message))
    if server.version:
        return _parsed("server.version", server.version), False
    if tagged:
        return _parsed("server.image", tagged), False
    return NEWEST, True


def _parsed(key_path: str, text: str) -> str:
    try:
        return str(parse_version(text))
    except InputError as error:
        raise ExperimentError(Problem(key_path, str(error))) from None


def _check_arguments(experiment: Experiment, version: str, chosen: Sequence[Combination]) -> None:
    """Every problem of every combination, once."""
    engine = Engine(experiment.server.engine)
    constant = tuple(experiment.server.constant.items())
    found: dict[Problem, None] = {}
    for combination in chosen:
        paths = {name: f"server.constant.{name}" for name, _ in constant}
        names = (name for name, _ in combination.values)
        paths.update(zip(names, combination.key_paths, strict=True))
        for problem in argument_problems(engine, version, (*constant, *combination.values)):
            # A rule may name an argument that was left at its default.
            key_path = paths.get(problem.key_path, f"server.constant.{problem.key_path}")
            found[Problem(key_path, problem.message)] = None
    if found:
        raise ExperimentError(*found)


def _launcher(experiment: Experiment, version: str, deployments: int) -> Launcher:
    """The launcher with its keys. Raises ExperimentError where these do not fit together."""
    server = experiment.server
    launcher = server.launcher_asked()
    asked = ServerAsked(
        engine=Engine(server.engine),
        image=server.image,
        version=version,
        version_key="server.version" if server.version else "server.image",
        deployments=deployments,
        loads=bool(experiment.load),
    )
    if problems := tuple(launcher.problems(asked)):
        raise ExperimentError(*problems)
    return launcher


def _deployment(
    experiment: Experiment,
    launcher: Launcher,
    combination: Combination,
    version: str,
    assumed: bool,
) -> Deployment:
    server = experiment.server
    constant = (LauncherArgument(name, value, False) for name, value in server.constant.items())
    variable = (LauncherArgument(name, value, True) for name, value in combination.values)
    timeouts = server.timeouts
    return Deployment(
        deployment_id=deployment_id(combination.values),
        launcher=launcher,
        model=experiment.model,
        image=server.image,
        tgi_version=version,
        version_assumed=assumed,
        arguments=(*constant, *variable),
        accelerator=server.embedded.accelerator,
        engine=Engine(server.engine),
        env=tuple(server.env),
        timeouts=Timeouts(timeouts.pull_s, timeouts.download_s, timeouts.load_s, timeouts.probe_s),
    )


def _batches(keys: BatchKeys, deployments: Sequence[Deployment]) -> tuple[BatchTrial, ...]:
    count = len(deployments) * len(keys.sequence_length) * len(keys.batch_size)
    require_trials_within("batches", count)
    require_batch_within("batches", keys.batch_size, keys.sequence_length)
    return batch_trials(keys, [deployment.deployment_id for deployment in deployments])
