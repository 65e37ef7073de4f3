"""server.embedded with the engine `transformers`: from YAML to plan, and to a command line."""

from __future__ import annotations

from pathlib import Path

from tests.launch.deployments import command_of, embedded, transformers
from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.plan.plan import Deployment

TEXT = """
experiment: real
model: some/model
server:
  launcher: embedded
  version: 3.3.7
  embedded: {%s}
batches: {sequence_length: 16, decode_length: 4, batch_size: [1], runs: 1}
"""


def deployment(keys: str) -> Deployment:
    return load_plan(TEXT % keys, "real.yaml")[1].deployments[0]


def words_of(keys: str) -> tuple[str, ...]:
    words = command_of(deployment(keys), Path("/tmp/s/shard"), 4321)
    # The accelerator is one that is simulated: a model that runs is started without it.
    first = words.index("--engine") + 2
    if deployment(keys).simulated:
        assert words[first] == "--accelerator"
        first += 2
    return words[first : words.index("--model-id")]


def test_the_simulated_engine_has_no_options() -> None:
    assert deployment("engine: simulated").launcher == embedded()
    assert deployment("engine: simulated").simulated
    assert words_of("") == ()
    assert "--master-port" not in command_of(deployment(""), Path("/tmp/s/shard"), 4321)


def test_defaults() -> None:
    made = deployment("engine: transformers")
    assert made.launcher == transformers("auto")
    assert not made.simulated
    assert words_of("engine: transformers") == ("--device", "auto")


def test_options_reach_the_command_line() -> None:
    said = "engine: transformers, device: cuda, layer_split: true, random_weights: true"
    said += ", weights_seed: 4"
    assert deployment(said).launcher == transformers(
        "cuda", random_weights=True, weights_seed=4, layer_split=True
    )
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


def test_no_accelerator_is_planned_of_a_model_that_runs() -> None:
    assert deployment("engine: transformers").planned_accelerator is None
    assert deployment("accelerator: H100-SXM").planned_accelerator == "H100-SXM"


def test_other_launchers_read_the_accelerator_beside_any_engine() -> None:
    """`plan` estimates for it, and the engine is then nobody's."""
    text = TEXT % "engine: transformers, accelerator: H100-SXM"
    made = load_plan(text.replace("launcher: embedded", "launcher: process"), "real.yaml")[1]
    assert made.deployments[0].planned_accelerator == "H100-SXM"
