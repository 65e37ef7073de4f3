"""Experiment files: what is refused, in which words, at which line or option."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.launch.deployments import embedded
from tgi_bench.errors import ExperimentError
from tgi_bench.plan.expand import expand, expand_tasks
from tgi_bench.plan.experiment import Experiment, json_schema, to_json
from tgi_bench.plan.experiment_text import load, load_plan, parse_overrides
from tgi_bench.plan.matrix import idle_skips
from tgi_bench.plan.plan import Override
from tgi_bench.trials.direct_keys import DirectExperiment

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

SMALL = """\
experiment: small
model: org/model
server:
  launcher: docker
  image: tgi:0.9.4
  constant:
    max_input_length: 1000
  variable:
    num_shard: [1, 2]
    quantize: [null, bitsandbytes]
batches:
  sequence_length: 100
  decode_length: 8
  batch_size: [4, 1]
  runs: 2
"""


def said(text: str, sets: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> str:
    with pytest.raises(ExperimentError) as caught:
        load_plan(text, "e.yaml", parse_overrides(sets), only)
    assert caught.value.problems
    return str(caught.value)


def replaced(old: str, new: str) -> str:
    assert SMALL.count(old) == 1
    return SMALL.replace(old, new)


@pytest.mark.parametrize("file", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_experiments_of_this_repository_load(file: Path) -> None:
    experiment, plan = load_plan(file.read_text(), file.name)
    expanded = expand(experiment) if isinstance(experiment, Experiment) else None
    assert plan == (expanded or expand_tasks(cast(DirectExperiment, experiment)))
    assert not any(deployment.version_assumed for deployment in plan.deployments)
    head = file.read_text().splitlines()[0]
    assert head == "# yaml-language-server: $schema=schema.json"


def test_the_schema_is_current() -> None:
    current = (EXPERIMENTS / "schema.json").read_text()
    message = "update it: tgi-bench schema > experiments/schema.json"
    assert current == json_schema(), message


def test_a_scalar_stands_for_a_list_of_one_and_defaults_are_filled() -> None:
    experiment = load(SMALL, "e.yaml")
    assert experiment.batches is not None
    assert experiment.batches.sequence_length == [100]
    assert experiment.batches.warmups == 1
    assert experiment.batches.step_timeout_s == 600
    assert experiment.server.timeouts.load_s == 1200
    assert experiment.batches.prompt_seed is None
    assert experiment.server.embedded.engine == "simulated"


def test_problems_of_the_file_and_of_the_command_line_stand_together() -> None:
    text = said(replaced("runs: 2", "runs: 0"), ("batches.warmups=x",))
    assert text.splitlines() == [
        "e.yaml:15: batches.runs: must be at least 1, not 0",
        "--set batches.warmups=x: must be an integer, not the string `x`",
    ]


def test_an_override_mends_the_file() -> None:
    broken = replaced("runs: 2", "runs: 0")
    overrides = parse_overrides(["batches.runs=3", "batches.sampling.top_k=5"], "embedded")
    experiment, plan = load_plan(broken, "e.yaml", overrides)
    assert isinstance(experiment, Experiment)
    assert experiment.batches is not None
    assert experiment.batches.runs == 3
    assert experiment.batches.sampling.top_k == 5
    assert {d.launcher for d in plan.deployments} == {embedded()}
    assert {d.tgi_version for d in plan.deployments} == {"0.9.4"}
    assert plan.overrides == (
        Override("batches.runs", "3"),
        Override("batches.sampling.top_k", "5"),
        Override("server.launcher", "embedded"),
    )


def test_the_later_of_two_overrides_holds() -> None:
    overrides = parse_overrides(["batches.runs=3", "batches.runs=4"])
    batches = load(SMALL, "e.yaml", overrides).batches
    assert batches is not None
    assert batches.runs == 4


def test_an_override_does_not_reach_through_an_alias() -> None:
    text = replaced("sequence_length: 100", "sequence_length: &s [7, 8]")
    text = text.replace("batch_size: [4, 1]", "batch_size: *s")
    experiment = load(text, "e.yaml", parse_overrides(["batches.batch_size.0=9"]))
    assert experiment.batches is not None
    assert experiment.batches.sequence_length == [7, 8]
    assert experiment.batches.batch_size == [9, 8]


def test_an_unknown_launcher_is_said_of_its_option() -> None:
    with pytest.raises(ExperimentError) as caught:
        load(SMALL, "e.yaml", parse_overrides([], "embeded"))
    assert str(caught.value).startswith("--launcher embeded: must be one of docker, process")


def test_a_run_file_holds_the_experiment_under_the_keys_of_the_yaml() -> None:
    overrides = parse_overrides(
        [
            "server.constant.waiting_served_ratio=2",
            "load={ramp: [{rate: 1, for: 2s}], workload: {prompt_tokens: 16}}",
        ]
    )
    text = to_json(load(SMALL, "e.yaml", overrides))
    assert '"waiting_served_ratio":2' in text
    assert '"for":"2000000000ns"' in text
    assert '"prompt_tokens":{"kind":"fixed","tokens":16}' in text


def test_which_option_named_the_launcher() -> None:
    assert said(SMALL, ("server.launcher=dockr",)).startswith("--set server.launcher=dockr: must")
    both = parse_overrides(("server.launcher=process",), "dockr")
    with pytest.raises(ExperimentError, match=r"^--launcher dockr: must be one of"):
        load_plan(SMALL, "e.yaml", both)
    assert both[1] == Override("server.launcher", "dockr")


def test_an_override_is_shown_on_one_short_line() -> None:
    assert "\n" not in said(SMALL, ("experiment=a\nb",))
    long = said(SMALL, (f"batches.runs={'9' * 5000}",))
    assert long.endswith("its value holds an integer of 5000 digits; at most 40 are read")
    assert len(long) < 200


@pytest.mark.parametrize(
    ("skip", "idle"),
    [
        ("[]", ()),
        ("[{num_shard: 1}]", ()),
        ("[{num_shard: 4}]", (1,)),
        ("[{num_shard: [4, 2]}, {num_shard: 1, quantize: gptq}]", (2,)),
    ],
)
def test_skip_entries_that_match_nothing(skip: str, idle: tuple[int, ...]) -> None:
    experiment, _ = load_plan(SMALL, "e.yaml", parse_overrides((f"server.skip={skip}",)))
    assert isinstance(experiment, Experiment)
    assert idle_skips(experiment.server) == idle


def test_a_long_string_in_a_list_is_kept_whole() -> None:
    long = "x" * 200
    setting = f"server.constant.cors_allow_origin=[{long}, y]"
    _, plan = load_plan(SMALL, "e.yaml", parse_overrides((setting,)))
    assert plan.deployments[0].argument("cors_allow_origin") == f"{long},y"
