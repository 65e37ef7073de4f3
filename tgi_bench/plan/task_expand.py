"""An experiment of direct mode to its plan: models, then a trial for each task and batch size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.plan.plan import Override, Plan
from tgi_bench.plan.whole import digest_of, digested, require_batch_within, require_trials_within
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
