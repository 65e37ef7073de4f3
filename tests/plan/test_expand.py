"""Experiments to plans: order, skip, --only, ids and digest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.errors import ExperimentError
from tgi_bench.launch.deployment import deployment_id
from tgi_bench.plan.expand import expand
from tgi_bench.plan.experiment import Experiment, validate
from tgi_bench.plan.plan import ArgumentValue, Override
from tgi_bench.sections.yaml_tree import Tree, parse_yaml

BLOOMZ = """
experiment: bloomz-7b1-mt
model: bigscience/bloomz-7b1-mt
server:
  launcher: docker
  image: ghcr.io/huggingface/text-generation-inference:0.9.4
  constant: {max_input_length: 1000, max_total_tokens: 1512}
  variable:
    num_shard: [1, 2, 4, 8]
    quantize: [null, bitsandbytes]
  skip:
    - {quantize: bitsandbytes, num_shard: [1, 2, 4]}
batches:
  sequence_length: [1024, 100]
  decode_length: 8
  batch_size: [8, 1]
  runs: 10
"""


def experiment(text: str = BLOOMZ, /, **server: Tree) -> Experiment:
    tree = parse_yaml(text).tree
    assert isinstance(tree, dict)
    keys = tree["server"]
    assert isinstance(keys, dict)
    return validate({**tree, "server": {**keys, **server}})


def ids(plan_of: Experiment, *only: str) -> list[str]:
    return [d.deployment_id for d in expand(plan_of, only).deployments]


def test_the_first_variable_argument_varies_slowest_and_skip_takes_out() -> None:
    assert ids(experiment()) == [
        "num_shard-1+quantize-none",
        "num_shard-2+quantize-none",
        "num_shard-4+quantize-none",
        "num_shard-8+quantize-none",
        "num_shard-8+quantize-bitsandbytes",
    ]
    assert ids(experiment(skip=[]))[:3] == [
        "num_shard-1+quantize-none",
        "num_shard-1+quantize-bitsandbytes",
        "num_shard-2+quantize-none",
    ]


def test_trials_go_by_deployment_then_length_and_ascend_in_batch_size() -> None:
    plan = expand(experiment())
    assert len(plan.trials) == 5 * 2 * 2
    assert [t.trial_id for t in plan.trials[:5]] == [
        "num_shard-1+quantize-none/s1024-d8-b1",
        "num_shard-1+quantize-none/s1024-d8-b8",
        "num_shard-1+quantize-none/s100-d8-b1",
        "num_shard-1+quantize-none/s100-d8-b8",
        "num_shard-2+quantize-none/s1024-d8-b1",
    ]
    assert {t.trial_id.partition("/")[0] == t.deployment_id for t in plan.trials} == {True}


def test_arguments_are_constant_ones_then_variable_ones_with_none_kept() -> None:
    deployment = expand(experiment()).deployments[0]
    assert [(a.name, a.value, a.variable) for a in deployment.arguments] == [
        ("max_input_length", 1000, False),
        ("max_total_tokens", 1512, False),
        ("num_shard", 1, True),
        ("quantize", None, True),
    ]
    assert deployment.num_shard == 1
    assert deployment.quantize is None


def test_nothing_varies() -> None:
    assert ids(experiment(variable={}, skip=[])) == ["default"]


@pytest.mark.parametrize(
    ("keys", "version", "assumed"),
    [
        ({}, "0.9.4", False),
        ({"image": "tgi:latest"}, "3.3.7", True),
        ({"image": "tgi:latest", "version": "1.4.5"}, "1.4.5", False),
        ({"image": "tgi:0.9.4", "version": "v0.9.4"}, "0.9.4", False),
        ({"image": None, "launcher": "process"}, "3.3.7", True),
    ],
)
def test_version(keys: dict[str, Tree], version: str, assumed: bool) -> None:
    deployment = expand(experiment(**keys)).deployments[0]
    assert (deployment.tgi_version, deployment.version_assumed) == (version, assumed)


def test_a_list_as_a_constant_is_the_launchers_comma_list() -> None:
    plan = expand(experiment(image="tgi:3.3.7", constant={"cuda_graphs": [1, 2, 4]}))
    assert plan.deployments[0].argument("cuda_graphs") == "1,2,4"


@pytest.mark.parametrize(
    ("only", "left"),
    [
        (("num_shard=1,4",), ["num_shard-1+quantize-none", "num_shard-4+quantize-none"]),
        (("num_shard=4,1",), ["num_shard-1+quantize-none", "num_shard-4+quantize-none"]),
        (("quantize=bitsandbytes",), ["num_shard-8+quantize-bitsandbytes"]),
        (("num_shard=8", "quantize=null"), ["num_shard-8+quantize-none"]),
        (("num_shard=8", "quantize=none"), ["num_shard-8+quantize-none"]),
    ],
)
def test_only(only: tuple[str, ...], left: list[str]) -> None:
    assert ids(experiment(), *only) == left


def test_only_takes_a_value_that_holds_a_comma() -> None:
    varied = experiment(image="tgi:3.3.7", variable={"cuda_graphs": [[1, 2], 0]}, skip=[])
    plan = expand(varied, ["cuda_graphs=1,2"])
    assert [d.argument("cuda_graphs") for d in plan.deployments] == ["1,2"]


def test_only_is_recorded_after_the_other_overrides() -> None:
    given = Override("batches.runs", "3")
    plan = expand(experiment(), ["num_shard=1"], [given])
    assert plan.overrides == (given, Override("only.num_shard", "1"))


@pytest.mark.parametrize(
    ("only", "key_path"),
    [("num_shard=3", "--only num_shard=3"), ("max_total_tokens=1", "--only max_total_tokens=1")],
)
def test_only_of_nothing_that_varies(only: str, key_path: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        expand(experiment(), [only])
    assert [p.key_path for p in caught.value.problems] == [key_path]


def test_only_that_skip_leaves_nothing_of() -> None:
    with pytest.raises(ExperimentError, match="leaves nothing to run"):
        expand(experiment(), ["num_shard=1", "quantize=bitsandbytes"])


def test_a_problem_of_several_combinations_is_said_once() -> None:
    with pytest.raises(ExperimentError) as caught:
        expand(experiment(constant={"max_input_length": 3000}))
    assert [p.key_path for p in caught.value.problems] == ["server.constant.max_input_length"]


def test_what_is_skipped_is_not_checked_against_the_rules() -> None:
    varied = experiment(
        image="tgi:3.3.7",
        variable={"num_shard": [1, 2], "quantize": [None, "exl2"]},
        skip=[{"quantize": "exl2", "num_shard": 2}],
    )
    assert len(expand(varied).deployments) == 3


def test_a_matrix_too_large_is_counted_and_not_built() -> None:
    names = ("max_best_of", "max_stop_sequences", "max_waiting_tokens", "max_concurrent_requests")
    variable: Tree = {name: list(range(1, 101)) for name in names}
    with pytest.raises(ExperimentError, match="gives 100000000 deployments; at most 10000"):
        expand(experiment(variable=variable, skip=[]))


def test_a_batch_that_no_client_could_hold() -> None:
    huge = BLOOMZ.replace("[8, 1]", "[1000000000]")
    with pytest.raises(ExperimentError, match=r"prompt tokens in one batch.*; at most 67108864"):
        expand(experiment(huge))


def test_the_digest_is_of_what_is_measured() -> None:
    plan = expand(experiment())
    assert plan.digest == expand(experiment(), (), [Override("batches.runs", "10")]).digest
    assert plan.digest != expand(experiment(), ["num_shard=1"]).digest
    assert plan.digest != expand(experiment(BLOOMZ.replace("runs: 10", "runs: 9"))).digest
    assert plan.digest != expand(experiment(BLOOMZ.replace("-7b1-mt", "-7b1"))).digest
    assert plan.digest != expand(experiment(launcher="embedded")).digest
    assert len(plan.digest) == 64


def test_the_digest_is_the_same_on_every_machine() -> None:
    """It is stored in run files: a change here is a change of their format."""
    digest = "a987cb52556e114df07cc4d6d2d0d1216b833efa5aca0c1adc23b84b643e75a0"
    assert expand(experiment()).digest == digest


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ([], "default"),
        ([("num_shard", 2), ("quantize", None)], "num_shard-2+quantize-none"),
        ([("quantize", "bitsandbytes-nf4")], "quantize-bitsandbytes-nf4"),
        ([("json_output", True)], "json_output-true"),
        ([("rope_factor", 0.5)], "rope_factor-0.5"),
    ],
)
def test_deployment_id(variables: list[tuple[str, ArgumentValue]], name: str) -> None:
    assert deployment_id(variables) == name


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=60)
CLOSE = st.sampled_from(
    ["none", "null", "true", "1", "1.0", "a/b", "a_b", "a+b", "", ".", "A", "a"]
)


@given(st.lists(VALUES | CLOSE, min_size=2, max_size=2))
def test_ids_of_different_values_differ_and_are_file_names(values: list[ArgumentValue]) -> None:
    left, right = ([("revision", value), ("x", 1)] for value in values)
    same = type(values[0]) is type(values[1]) and values[0] == values[1]
    assert (deployment_id(left) == deployment_id(right)) == same
    assert len(deployment_id(left)) <= 120
    assert not set(deployment_id(left)) & set("/\\ \0\n:'\"$")


@given(
    st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True),
    st.lists(st.sampled_from([None, "bitsandbytes", "gptq"]), min_size=1, unique=True),
)
def test_without_skip_the_matrix_is_whole(shards: list[int], quantize: list[str | None]) -> None:
    variable: Tree = {"num_shard": list(shards), "quantize": list(quantize)}
    plan = expand(experiment(variable=variable, skip=[]))
    assert [(d.num_shard, d.quantize) for d in plan.deployments] == [
        (n, q) for n in shards for q in quantize
    ]
    assert len({t.trial_id for t in plan.trials}) == len(plan.trials)
