"""server.embedded with the engine `transformers`: from YAML to plan, and to a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tgi_bench.errors import ExperimentError
from tgi_bench.launch.embedded import command_of
from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.plan.plan import Deployment, TransformersOptions

TEXT = """
experiment: real
model: some/model
server:
  launcher: embedded
  version: 3.3.7
  embedded: {%s}
batches: {sequence_length: 16, decode_length: 4, batch_size: [1], runs: 1}
"""


def deployment(embedded: str) -> Deployment:
    return load_plan(TEXT % embedded, "real.yaml")[1].deployments[0]


def words_of(embedded: str) -> tuple[str, ...]:
    words = command_of(deployment(embedded), Path("/tmp/s/shard"), 4321)
    return words[words.index("--accelerator") + 2 : words.index("--model-id")]


def test_the_simulated_engine_has_no_options() -> None:
    assert deployment("engine: simulated").host is None
    assert deployment("engine: simulated").simulated
    assert words_of("") == ()
    assert "--master-port" not in command_of(deployment(""), Path("/tmp/s/shard"), 4321)


def test_defaults() -> None:
    made = deployment("engine: transformers")
    assert made.host == TransformersOptions("auto", False, 0, False)
    assert not made.simulated
    assert words_of("engine: transformers") == ("--device", "auto")


def test_options_reach_the_command_line() -> None:
    said = "engine: transformers, device: cuda, layer_split: true, random_weights: true"
    said += ", weights_seed: 4"
    assert deployment(said).host == TransformersOptions("cuda", True, 4, True)
    assert words_of(said) == (
        "--device",
        "cuda",
        "--random-weights",
        "--weights-seed",
        "4",
        "--layer-split",
    )
    words = command_of(deployment(said), Path("/tmp/s/shard"), 4321)
    assert words[words.index("--master-port") + 1] == "4321"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("engine: torch", "server.embedded.engine: must be one of simulated, transformers"),
        ("engine: transformers, device: tpu", "server.embedded.device: must be one of auto, cpu"),
        ("engine: transformers, weights_seed: -1", "server.embedded.weights_seed"),
    ],
)
def test_what_is_refused(said: str, message: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        deployment(said)
    assert message in str(caught.value)
