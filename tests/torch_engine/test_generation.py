"""Static batches in this process: their tokens are those of transformers' own generate."""

from __future__ import annotations

import random

import pytest

from tests.torch_engine.needs_torch import skip_without_torch

skip_without_torch()

from tests.torch_engine.tiny import CONFIGS, POSITIONS, VOCAB, expected, loaded  # noqa: E402
from tgi_bench.torch_engine.generation import forward, generate  # noqa: E402


def prompts(seed: int, lengths: list[int]) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(1, VOCAB) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("family", CONFIGS)
def test_tokens_are_those_of_generate(family: str) -> None:
    model = loaded(family)
    asked = prompts(1, [1, 17, 4, 4, 30])
    made = generate(model, asked, 12)
    assert [list(row) for row in made.tokens] == [expected(model, p, 12) for p in asked]
    # A model that says one token for ever would agree with any mask.
    assert len({token for row in made.tokens for token in row}) > 5


def test_a_step_for_every_token() -> None:
    made = generate(loaded("llama"), prompts(2, [5, 9]), 4)
    assert len(made.step_ends_ns) == 4
    assert made.prefill_ns > 0
    assert len(made.decode_ns) == 3
    assert min(made.decode_ns) > 0
    assert made.prefill_ns + sum(made.decode_ns) == made.total_ns
    assert [len(row) for row in made.tokens] == [4, 4]


def test_one_new_token_is_the_prefill_step() -> None:
    made = generate(loaded("bloom"), prompts(3, [6]), 1)
    assert made.decode_ns == ()
    assert made.total_ns == made.prefill_ns


@pytest.mark.parametrize(
    ("asked", "new_tokens", "message"),
    [
        ([], 1, "0 prompts"),
        ([[1]], 0, "0 new tokens"),
        ([[1], []], 1, "no token"),
        ([[VOCAB]], 1, f"outside 0 .. {VOCAB - 1}"),
        ([[-1]], 1, "outside 0"),
        ([[1] * 90], 8, f"more than the {POSITIONS} positions"),
    ],
)
def test_what_a_model_cannot_take(asked: list[list[int]], new_tokens: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(loaded("gpt2"), asked, new_tokens)


def test_a_sequence_may_fill_every_position() -> None:
    made = generate(loaded("gpt2"), [[1] * (POSITIONS - 7)], 8)
    assert len(made.tokens[0]) == 8


def test_a_model_without_positions_goes_beyond() -> None:
    assert loaded("bloom").max_positions is None
    assert len(generate(loaded("bloom"), [[1] * POSITIONS], 8).tokens[0]) == 8


def test_one_forward_pass() -> None:
    assert forward(loaded("llama"), prompts(5, [16, 16])).latency_ns > 0
