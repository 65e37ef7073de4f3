"""models.yaml, accelerators.yaml and what is read from them."""

from __future__ import annotations

import pytest

from tgi_bench.errors import InputError
from tgi_bench.estimate.tables import (
    TableRow,
    accelerator,
    accelerator_names,
    active_linear_parameters,
    linear_parameters,
    model_names,
    model_shape,
    parameters,
    table,
)


@pytest.mark.parametrize("name", model_names())
def test_parameters_reproduce_every_row(name: str) -> None:
    row = table("models.yaml")[name]
    assert parameters(model_shape(name)) == row.integer("computed_params")
    published = row.number("published_params")
    assert published is None or published == row.integer("computed_params")
    assert row.text("source")


def test_tables_are_whole() -> None:
    assert len(model_names()) == 24
    assert len(accelerator_names()) == 18


def test_parameters_by_hand() -> None:
    shape = model_shape("meta-llama/Llama-2-13b")
    # 40 layers of 4 matrices 5120 x 5120 and 3 of 5120 x 13824, 2 norms each and 1 at the end,
    # 2 matrices 32000 x 5120.
    per_layer = 4 * 5120 * 5120 + 3 * 5120 * 13824 + 2 * 5120
    assert parameters(shape) == 40 * per_layer + 5120 + 2 * 32000 * 5120


def test_experts_are_partly_active() -> None:
    shape = model_shape("mistralai/Mixtral-8x7B-v0.1")
    mlp = 32 * 3 * 4096 * 14336
    assert linear_parameters(shape) - active_linear_parameters(shape) == 6 * mlp


@pytest.mark.parametrize(
    ("name", "padded"),
    [
        ("bigscience/bloom", True),
        ("facebook/opt-6.7b", True),
        ("bigcode-inference-benchmark GPT2-MQA", True),
        ("bigcode/starcoder", False),
        ("tiiuae/falcon-40b", False),
        ("EleutherAI/gpt-neox-20b", False),
        ("mistralai/Mistral-7B-v0.1", False),
    ],
)
def test_class_that_serves_the_model(name: str, padded: bool) -> None:
    assert model_shape(name).padded is padded


@pytest.mark.parametrize("name", accelerator_names())
def test_accelerators_are_plausible(name: str) -> None:
    device = accelerator(name)
    nameplate = table("accelerators.yaml")[name].required_number("memory_nameplate_gib")
    assert 0.89 * nameplate < device.usable_bytes / 2**30 < nameplate
    assert device.flop_per_s > device.fp32_flop_per_s
    assert (device.nvlink_bytes_per_s > 0) == (device.nvlink_devices > 1)


def test_accelerator_by_hand() -> None:
    device = accelerator("A100-40GB-SXM")
    assert device.flop_per_s == 312e12
    assert device.bytes_per_s == 1555e9
    assert device.nvlink_bytes_per_s == 300e9
    assert device.usable_bytes / 2**30 == pytest.approx(39.4)
    assert accelerator("T4").usable_bytes / 2**30 == pytest.approx(14.4)
    assert accelerator("V100-SXM2").int8_op_per_s is None


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(InputError, match=r"nearest: [^;]*bigscience/bloomz-7b1-mt"):
        model_shape("bigscience/bloomz-7b1")
    with pytest.raises(InputError, match=r"nearest: [^;]*A100-80GB-SXM"):
        accelerator("a100-sxm")
    with pytest.raises(InputError, match=r"unknown accelerator 'zzzz'; known: A100"):
        accelerator("zzzz")


def test_a_row_of_the_wrong_type_names_itself() -> None:
    row = TableRow("r", {"layers": True, "text": 1, "rate": "x", "flag": 1})
    for read in (row.integer, row.required_number):
        with pytest.raises(TypeError, match="r: layers is True"):
            read("layers")
    with pytest.raises(TypeError, match="r: gone is missing"):
        row.required_number("gone")
    with pytest.raises(TypeError, match="r: text is 1, not a string"):
        row.text("text")
    with pytest.raises(TypeError, match="r: flag is 1, not a boolean"):
        row.flag("flag")
    with pytest.raises(TypeError, match="r: rate is 'x', not a number"):
        row.number("rate")
    assert row.number("gone") is None
