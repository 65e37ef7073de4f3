"""Prompts: exact length, no common head, the same everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.record.samples import trial
from tgi_bench.plan.prompts import WORDS, batch_prompts, prompts_of


def test_words_are_distinct_lower_case_and_many() -> None:
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


@given(st.integers(0, 2**63 - 1), st.text(max_size=20), st.integers(1, 200), st.integers(1, 40))
def test_each_prompt_has_its_words_and_no_two_begin_alike(
    seed: int, trial_id: str, batch_size: int, tokens: int
) -> None:
    prompts = [text.split(" ") for text in batch_prompts(seed, trial_id, batch_size, tokens)]
    assert len(prompts) == batch_size
    assert {len(words) for words in prompts} == {tokens}
    assert len({words[0] for words in prompts}) == batch_size
    assert {word for words in prompts for word in words} <= set(WORDS)


def test_more_prompts_than_words_differ_in_their_first_two() -> None:
    prompts = [text.split(" ") for text in batch_prompts(0, "t", 1000, 3)]
    assert len({tuple(words[:2]) for words in prompts}) == 1000


def test_a_prompt_of_one_word_is_as_different_as_can_be() -> None:
    assert len(set(batch_prompts(0, "t", 1000, 1))) == len(WORDS)


def test_the_same_seed_and_trial_give_the_same_text() -> None:
    assert batch_prompts(0, "t", 4, 8) == batch_prompts(0, "t", 4, 8)
    assert batch_prompts(0, "t", 4, 8) != batch_prompts(1, "t", 4, 8)
    assert batch_prompts(0, "t", 4, 8) != batch_prompts(0, "u", 4, 8)


def test_the_text_is_the_same_on_every_machine() -> None:
    """Stored runs name their seed: a change here changes what it means."""
    assert batch_prompts(0, "default/s4-d8-b2", 2, 4) == (
        "issue couple story area",
        "side business industry line",
    )


def test_each_start_has_prompts_of_its_own_where_no_seed_is_given() -> None:
    own = replace(trial(2), prompt_seed=None)
    assert prompts_of(own, "one") == prompts_of(own, "one")
    assert not set(prompts_of(own, "one")) & set(prompts_of(own, "two"))
    given_one = replace(own, prompt_seed=3)
    assert prompts_of(given_one, "one") == prompts_of(given_one, "two")


@pytest.mark.parametrize(("batch_size", "tokens"), [(0, 1), (1, 0), (-1, 4)])
def test_no_prompts(batch_size: int, tokens: int) -> None:
    with pytest.raises(ValueError, match="no prompts of"):
        batch_prompts(0, "t", batch_size, tokens)
