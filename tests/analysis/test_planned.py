"""What the estimate says of a plan's trials."""

from __future__ import annotations

import pytest

from tgi_bench.analysis.planned import KV_POOL, MEMORY, plan_estimate
from tgi_bench.estimate.calibration import calibration_named, find, provenance, stack_of, tgi_stack
from tgi_bench.plan.expand import expand
from tgi_bench.plan.experiment_text import load
from tgi_bench.plan.plan import Plan

TEXT = """experiment: e
model: {model}
server:
  launcher: embedded
  version: "{version}"
  embedded: {{accelerator: A100-40GB-SXM}}
  constant: {{{constant}}}
batches: {{sequence_length: 1000, decode_length: 8, batch_size: [1, 32, 4000], runs: 1}}
"""
LLAMA = "meta-llama/Meta-Llama-3-8B"
BLOOMZ = "bigscience/bloomz-7b1-mt"
VERSIONS = ("0.8.2", "0.9.0")


def plan_of(
    model: str, constant: str = "", version: str = "3.3.7", on: str = "A100-40GB-SXM"
) -> Plan:
    text = TEXT.format(model=model, version=version, accelerator=on, constant=constant)
    return expand(load(text, "e.yaml"))


@pytest.mark.parametrize(
    ("constant", "obstacles"),
    [
        ("max_batch_prefill_tokens: 32000", ["", "", MEMORY]),
        # The pool takes what a warm-up of 4,096 tokens left: 32 prompts have no room beside it.
        ("", ["", KV_POOL, MEMORY]),
        # Half the device less 15 GiB of weights is a pool of 4 GiB at most, 32 times 1008 tokens
        # of 128 KiB each.
        ("cuda_memory_fraction: 0.5", ["", KV_POOL, MEMORY]),
    ],
)
def test_what_stands_in_the_way(constant: str, obstacles: list[str]) -> None:
    plan = plan_of(LLAMA, constant)
    known = plan_estimate(plan, lambda _word: find).trials
    assert [known[trial.trial_id].obstacle for trial in plan.trials] == obstacles
    assert [known[trial.trial_id].fits for trial in plan.trials] == [not one for one in obstacles]


def test_a_padded_model_has_no_pool() -> None:
    plan = plan_of(BLOOMZ, "cuda_memory_fraction: 0.8")
    known = plan_estimate(plan, lambda _word: find).trials
    assert [known[trial.trial_id].obstacle for trial in plan.trials] == ["", MEMORY, MEMORY]


def test_before_0_9_there_was_no_pool() -> None:
    """Its router has no such argument; the pool's room is told by the version alone."""
    known = [plan_estimate(plan_of(LLAMA, "", version), lambda _word: find) for version in VERSIONS]
    assert [estimate.unknown for estimate in known] == [(), ()]
    assert [stack_of(tgi_stack(version)).kv_pool for version in VERSIONS] == [False, True]
    assert [stack_of(tgi_stack(version)).prompt_logprobs for version in VERSIONS] == [True, False]


def test_what_is_said_of_a_calibration() -> None:
    name = "text-generation-inference 0.8"
    own = calibration_named(name, "A100-40GB-SXM")
    plan = plan_of(BLOOMZ, version="0.8.2")
    assert plan_estimate(plan, lambda _word: find).calibrations == ()  # embedded, without a word
    text = TEXT.replace("embedded: {{", f"embedded: {{{{calibration: {name}, ")
    for version, strange in (("0.8.2", False), ("0.9.4", True)):
        made = text.format(model=BLOOMZ, version=version, constant="")
        plan = expand(load(made, "e.yaml"))
        said = plan_estimate(plan, lambda _word: lambda _accelerator, _stack: own).calibrations
        assert said[0] == provenance(own)
        assert [one.startswith("NOT OF THIS STACK: the calibration was") for one in said[1:]] == (
            [True] if strange else []
        )
