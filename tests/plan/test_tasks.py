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


def said(text: str, *only: str, sets: tuple[str, ...] = ()) -> str:
    with pytest.raises(ExperimentError) as caught:
        plan_of(text, *only, sets=sets)
    return str(caught.value)


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("backend: transformers", "backend: torch", "e.yaml:2: backend: must be one of transform"),
        ("  dtype: [fp32, bf16]", "  dtype: [fp31]", "transformers.dtype: must be of fp32, fp16"),
        ("  dtype: [fp32, bf16]", "  dtype: [bf16, bf16]", "holds `bf16` twice"),
        ("  dtype: [fp32, bf16]", "  dtype: 4bit", "`4bit` needs CUDA"),
        ("device: cpu", "device: auto", "memory_limit: needs `device: cpu`"),
        ("  memory_limit: 3g", "  memory_limit: 3t", "must be a size such as `1g`"),
        ("  memory_limit: 3g", "  num_shard: 2\n  layer_split: 2", "two ways to use several"),
        ("  memory_limit: 3g", "  num_shard: 5000", "must be at most 1024, not 5000"),
        ("start: 2", "start: 65", "generate.find_batch.start: is above `highest`, which is 64"),
        ("tolerance: 0.1", "tolerance: 0", "find_batch.tolerance: must be more than 0"),
        ("  batch_size: [4, 1]\n", "  batch_sizes: 4\n", "did you mean `batch_size`?"),
        ("document_tokens: 2048", "chunk_tokens: 512", "needs one of `document_tokens` and `file`"),
        ("document_tokens: 2048", "document_tokens: 8\n  file: a", "needs one of"),
        (
            "document_tokens: 2048",
            "document_tokens: 8\n  chunk_tokens: 255",
            "summarize.chunk_tokens: must be at least 256, twice the longer",
        ),
        ("generate:", "server: {launcher: embedded}\ngenerate:", "server: is no key here"),
        ("model: bigcode", "model: -bigcode", "model: must be one line of at most 500"),
    ],
)
def test_what_is_refused(old: str, new: str, message: str) -> None:
    assert SMALL.count(old) == 1
    assert message in said(SMALL.replace(old, new))


def test_a_task_is_needed_and_a_batch_size() -> None:
    head = SMALL.partition("generate:")[0]
    assert "holds neither `generate` nor `summarize`" in said(head)
    without = head + "generate: {prompt_tokens: 1, new_tokens: 1}\n"
    assert "generate: holds neither `batch_size` nor `find_batch`" in said(without)


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("dtype", "write it as name=value"),
        ("batch_size=1", "does not vary; what varies: dtype, num_shard, layer_split"),
        ("dtype=fp16", "`fp16` is no value of `dtype`; allowed: fp32, bf16"),
    ],
)
def test_only_is_refused(only: str, message: str) -> None:
    assert message in said(SMALL, only)


def test_a_matrix_that_is_too_large_is_refused() -> None:
    sizes = ", ".join(map(str, range(1, 30_000)))
    assert "at most 100000 are taken" in said(SMALL.replace("[4, 1]", f"[{sizes}]"))


def test_a_batch_that_no_process_could_hold_is_refused() -> None:
    assert "at most 67108864 are taken" in said(SMALL.replace("[4, 1]", "[1000000000]"))


def test_what_wants_a_server_refuses_direct_mode() -> None:
    with pytest.raises(ExperimentError, match="direct mode, without a server"):
        load(SMALL, "e.yaml")
