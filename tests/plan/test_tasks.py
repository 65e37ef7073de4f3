"""Experiments of direct mode: what is refused, in which words, and what they become."""

from __future__ import annotations

import pytest

from tgi_bench.errors import ExperimentError
from tgi_bench.plan.experiment_text import load, load_plan, parse_overrides
from tgi_bench.plan.plan import Override, Plan
from tgi_bench.trials.direct import (
    DirectModel,
    Dtype,
    FindBatch,
    GenerateTask,
    SummarizeTask,
    TaskDevice,
)

SMALL = """\
experiment: small
backend: transformers
model: bigcode-inference-benchmark BLOOM
transformers:
  random_weights: true
  device: cpu
  dtype: [fp32, bf16]
  memory_limit: 3g
generate:
  prompt_tokens: [9, 5]
  new_tokens: 100
  batch_size: [4, 1]
  find_batch: {start: 2, highest: 64, tolerance: 0.1}
  runs: 2
summarize:
  document_tokens: 2048
"""


def plan_of(text: str = SMALL, *only: str, sets: tuple[str, ...] = ()) -> Plan:
    return load_plan(text, "e.yaml", parse_overrides(sets), only)[1]


def test_trials_are_grouped_by_model_and_ascend_in_batch_size() -> None:
    plan = plan_of()
    assert [trial.trial_id for trial in plan.task_trials] == [
        f"{dtype}/{task}"
        for dtype in ("fp32", "bf16")
        for task in (
            "generate-p9-n100-b1",
            "generate-p9-n100-b4",
            "generate-p9-n100-find",
            "generate-p5-n100-b1",
            "generate-p5-n100-b4",
            "generate-p5-n100-find",
            "summarize-t2048-c512",
        )
    ]
    assert (plan.deployments, plan.trials, plan.load_trials) == ((), (), ())
    assert [model.model_id for model in plan.direct_models] == ["fp32", "bf16"]
    first, _, find, *_, summary = plan.task_trials
    assert first.model == DirectModel(
        model_id="fp32",
        model="bigcode-inference-benchmark BLOOM",
        random_weights=True,
        weights_seed=0,
        dtype=Dtype.FP32,
        device=TaskDevice.CPU,
        num_shard=1,
        layer_split=1,
        memory_limit_bytes=3 * 2**30,
        load_timeout_s=1200.0,
    )
    assert (first.runs, first.warmups, first.batch_size) == (2, 1, 1)
    assert first.task == GenerateTask(9, 100, 1, None)
    assert find.task == GenerateTask(9, 100, None, FindBatch(2, 64, 0.1))
    assert find.shape is None
    assert first.shape == ("fp32", 9, 100)
    assert summary.task == SummarizeTask(2048, None, 512, 16, 64, 128)
    assert (summary.runs, summary.batch_size, summary.shape) == (3, 1, None)


def test_ways_to_use_several_devices_are_in_the_model_ids() -> None:
    on_cuda = SMALL.replace("device: cpu", "device: cuda").replace("  memory_limit: 3g\n", "")
    split = on_cuda.replace("dtype: [fp32, bf16]", "dtype: 8bit\n  layer_split: [1, 2]")
    assert [m.model_id for m in plan_of(split).direct_models] == [
        "8bit+layer_split-1",
        "8bit+layer_split-2",
    ]
    sharded = plan_of(on_cuda, sets=("transformers.num_shard=4",)).direct_models
    assert [(m.model_id, m.devices) for m in sharded] == [
        ("fp32+num_shard-4", 4),
        ("bf16+num_shard-4", 4),
    ]


def test_only_keeps_values_and_is_an_override() -> None:
    plan = plan_of(SMALL, "dtype=bf16")
    assert [model.model_id for model in plan.direct_models] == ["bf16"]
    assert plan.overrides == (Override("only.dtype", "bf16"),)
    assert plan.digest != plan_of().digest
    assert plan_of().digest == plan_of(SMALL.replace("[4, 1]", "[1, 4]")).digest


def test_what_wants_a_server_refuses_direct_mode() -> None:
    with pytest.raises(ExperimentError, match="direct mode, without a server"):
        load(SMALL, "e.yaml")
