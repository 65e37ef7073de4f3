"""An experiment to its plan: constant x variable, then a trial for each batch, load and task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

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
    digest_of,
    digested,
    require_batch_within,
    require_trials_within,
)
from tgi_bench.trials.batch import BatchKeys, batch_trials
from tgi_bench.trials.direct import (
    DirectModel,
    Dtype,
    FindBatch,
    GenerateTask,
    SummarizeTask,
    TaskTrial,
)
from tgi_bench.trials.direct_keys import (
    DirectExperiment,
    GenerateKeys,
    SummarizeKeys,
    TransformersKeys,
)
from tgi_bench.trials.load_keys import load_trials, trial_count
from tgi_bench.words import suggestion

_VARIABLE = ("dtype", "num_shard", "layer_split")


def expand_tasks(
    experiment: DirectExperiment, only: Sequence[str] = (), overrides: Sequence[Override] = ()
) -> Plan:
    """The plan: a pure function, with the same ids and digest everywhere.

    only: "dtype=bf16,fp32" keeps these values of dtype, num_shard or layer_split; each is
    recorded as an override. Raises ExperimentError.
    """
    keys, restrictions = _restricted(experiment.transformers, only)
    models = _models(experiment.model, keys)
    generate = experiment.generate
    require_trials_within("transformers", len(models))
    if generate is not None:
        per_model = len(generate.prompt_tokens) * len(_sizes(generate))
        require_trials_within("generate", len(models) * per_model)
        require_batch_within("generate", generate.batch_size or (), generate.prompt_tokens)
    trials = tuple(
        trial
        for model in models
        for trial in (*_generates(generate, model), *_summaries(experiment.summarize, model))
    )
    return Plan(
        experiment=experiment.experiment,
        model=experiment.model,
        deployments=(),
        trials=(),
        overrides=(*overrides, *restrictions),
        digest=digest_of(
            experiment=experiment.experiment,
            backend=experiment.backend,
            model=experiment.model,
            task_trials=[digested(trial) for trial in trials],
        ),
        task_trials=trials,
    )


def _restricted(
    keys: TransformersKeys, only: Sequence[str]
) -> tuple[TransformersKeys, tuple[Override, ...]]:
    """The keys with the values that `only` keeps."""
    overrides = []
    for text in only:
        where = f"--only {text}"
        name, equals, wanted = text.partition("=")
        if not equals or not wanted:
            raise ExperimentError(Problem(where, "write it as name=value or name=value,value"))
        if name not in _VARIABLE:
            nearest = suggestion(name, _VARIABLE)
            message = f"does not vary; what varies: {', '.join(_VARIABLE)}{nearest}"
            raise ExperimentError(Problem(where, message))
        words = [word.strip() for word in wanted.split(",")]
        listed: Sequence[str | int] = keys.layer_split
        if name != "layer_split":
            listed = keys.dtype if name == "dtype" else keys.num_shard
        values = [str(value) for value in listed]
        for word in words:
            if word not in values:
                message = f"`{word}` is no value of `{name}`; allowed: {', '.join(values)}"
                raise ExperimentError(Problem(where, message))
        kept = [value for value in listed if str(value) in words]
        keys = keys.model_copy(update={name: kept})
        overrides.append(Override(f"only.{name}", wanted))
    return keys, tuple(overrides)


def _models(model: str, keys: TransformersKeys) -> tuple[DirectModel, ...]:
    return tuple(
        DirectModel(
            model_id=_model_id(keys, dtype, num_shard, layer_split),
            model=model,
            random_weights=keys.random_weights,
            weights_seed=keys.weights_seed,
            dtype=dtype,
            device=keys.device,
            num_shard=num_shard,
            layer_split=layer_split,
            memory_limit_bytes=keys.memory_limit_bytes,
            load_timeout_s=keys.load_timeout_s,
        )
        for num_shard, layer_split, dtype in product(keys.num_shard, keys.layer_split, keys.dtype)
    )


def _model_id(keys: TransformersKeys, dtype: Dtype, num_shard: int, layer_split: int) -> str:
    """The dtype, and a way to use several devices where one is listed."""
    parts = [dtype.value]
    if max(keys.num_shard) > 1 or num_shard > 1:
        parts.append(f"num_shard-{num_shard}")
    if max(keys.layer_split) > 1 or layer_split > 1:
        parts.append(f"layer_split-{layer_split}")
    return "+".join(parts)


def _sizes(keys: GenerateKeys) -> list[int | None]:
    """Batch sizes ascending, and None for the search."""
    listed = sorted(keys.batch_size or ())
    return [*listed] if keys.find_batch is None else [*listed, None]


def _generates(keys: GenerateKeys | None, model: DirectModel) -> tuple[TaskTrial, ...]:
    if keys is None:
        return ()
    find = keys.find_batch
    sought = None if find is None else FindBatch(find.start, find.highest, find.tolerance)
    return tuple(
        TaskTrial(
            trial_id=f"{model.model_id}/generate-p{prompt}-n{keys.new_tokens}-"
            + ("find" if size is None else f"b{size}"),
            model=model,
            task=GenerateTask(prompt, keys.new_tokens, size, sought if size is None else None),
            runs=keys.runs,
            warmups=keys.warmups,
            run_timeout_s=keys.run_timeout_s,
            prompt_seed=keys.prompt_seed,
        )
        for prompt in keys.prompt_tokens
        for size in _sizes(keys)
    )


def _summaries(keys: SummarizeKeys | None, model: DirectModel) -> tuple[TaskTrial, ...]:
    if keys is None:
        return ()
    document = "file" if keys.document_tokens is None else f"t{keys.document_tokens}"
    return (
        TaskTrial(
            trial_id=f"{model.model_id}/summarize-{document}-c{keys.chunk_tokens}",
            model=model,
            task=SummarizeTask(
                document_tokens=keys.document_tokens,
                file=keys.file,
                chunk_tokens=keys.chunk_tokens,
                instruction_tokens=keys.instruction_tokens,
                map_new_tokens=keys.map_new_tokens,
                reduce_new_tokens=keys.reduce_new_tokens,
            ),
            runs=keys.runs,
            warmups=keys.warmups,
            run_timeout_s=keys.run_timeout_s,
            prompt_seed=keys.prompt_seed,
        ),
    )


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
