"""Which token comes next: penalties, warpers, the watermark, seeds and log probabilities."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from tests.torch_engine.needs_torch import skip_without_torch

skip_without_torch()

import torch  # noqa: E402

from tgi_bench.torch_engine.choosing import (  # noqa: E402
    ChoiceRow,
    Chooser,
    Manner,
    choose,
    prompt_logprobs,
)

CPU = torch.device("cpu")
LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0])


def row(manner: Manner = Manner(), ids: tuple[int, ...] = (3,), top: int = 0) -> ChoiceRow:  # noqa: B008
    return ChoiceRow(Chooser(manner, CPU), ids, top)


def changed(manner: Manner, ids: tuple[int, ...] = (3,)) -> list[float]:
    return [float(x) for x in Chooser(manner, CPU).changed(LOGITS, ids).tolist()]


def test_greedy_takes_the_best_and_its_log_probability() -> None:
    ids, chosen = choose(torch.stack((LOGITS, LOGITS.flip(0))), [row(), row()])
    assert ids.tolist() == [[0], [3]]
    total = math.log(sum(math.exp(x) for x in LOGITS.tolist()))
    assert [c.token for c in chosen] == [0, 3]
    assert [c.logprob for c in chosen] == pytest.approx([2.0 - total] * 2, abs=1e-6)
    assert [c.top for c in chosen] == [(), ()]


def test_alternatives_of_those_who_asked() -> None:
    _, chosen = choose(torch.stack((LOGITS, LOGITS)), [row(top=9), row(top=1)])
    assert [token for token, _ in chosen[0].top] == [0, 1, 2, 3]
    assert [token for token, _ in chosen[1].top] == [0]
    assert sum(math.exp(logprob) for _, logprob in chosen[0].top) == pytest.approx(1)


def test_half_precision_is_chosen_in_32_bits() -> None:
    logits = torch.linspace(-4, 4, 1000).to(torch.float16)[None]
    _, chosen = choose(logits, [row()])
    wanted = logits.float().log_softmax(-1)[0, -1]
    assert chosen[0].logprob == pytest.approx(float(wanted), abs=1e-5)


@pytest.mark.parametrize(
    ("manner", "ids", "scores"),
    [
        (Manner(temperature=0.5), (3,), [4.0, 2.0, 0.0, -2.0]),
        (Manner(top_k=2), (3,), [2.0, 1.0, -math.inf, -math.inf]),
        # A positive score is divided, a negative one multiplied.
        (Manner(repetition_penalty=2.0), (0, 3), [1.0, 1.0, 0.0, -2.0]),
        # Of four tokens so far three are 0 and one is 1.
        (Manner(frequency_penalty=2.0), (0, 0, 1, 0), [0.5, 0.5, 0.0, -1.0]),
        # 0.64 + 0.24 reach 0.8; one of them would not.
        (Manner(top_p=0.8), (3,), [2.0, 1.0, -math.inf, -math.inf]),
    ],
)
def test_changed_scores(manner: Manner, ids: tuple[int, ...], scores: list[float]) -> None:
    assert changed(manner, ids) == pytest.approx(scores)


def test_penalties_come_before_the_temperature() -> None:
    manner = Manner(repetition_penalty=2.0, temperature=0.5)
    assert changed(manner, (0,)) == pytest.approx([2.0, 2.0, 0.0, -2.0])


def test_typical_keeps_what_is_near_the_entropy() -> None:
    # The last has 0.03, far from the entropy; the first is farther from it than the second.
    assert changed(Manner(typical_p=0.2))[1] == pytest.approx(1.0)
    assert changed(Manner(typical_p=0.2))[3] == -math.inf


def test_the_watermark_favours_the_half_that_the_last_token_chooses() -> None:
    first, second = changed(Manner(watermark=True), (3,)), changed(Manner(watermark=True), (3, 2))
    added = [round(after - before, 3) for after, before in zip(first, LOGITS.tolist(), strict=True)]
    assert sorted(added) == [0.0, 0.0, 2.0, 2.0]
    assert changed(Manner(watermark=True), (1, 3)) == first
    assert any(changed(Manner(watermark=True), (last,)) != first for last in (0, 1, 2)) or second


@pytest.mark.parametrize(
    ("manner", "samples"),
    [
        (Manner(), False),
        (Manner(do_sample=True), True),
        (Manner(temperature=0.9), True),
        (Manner(top_k=1), True),
        (Manner(top_p=0.9), True),
        (Manner(typical_p=0.9), True),
        (Manner(repetition_penalty=1.2, watermark=True, frequency_penalty=1.0), False),
    ],
)
def test_a_warper_asks_for_sampling(manner: Manner, samples: bool) -> None:
    assert manner.samples is samples
    assert manner.plain is (manner == Manner())


def test_a_sample_has_the_models_distribution() -> None:
    asked = row(Manner(do_sample=True, seed=7))
    drawn = Counter(choose(LOGITS[None], [asked])[1][0].token for _ in range(4000))
    for token, probability in enumerate(LOGITS.softmax(-1).tolist()):
        # Five standard deviations of a binomial count.
        spread = 5 * math.sqrt(4000 * probability * (1 - probability))
        assert abs(drawn[token] - 4000 * probability) < spread


def test_a_seed_says_its_tokens_whatever_stands_beside_it() -> None:
    manner = Manner(do_sample=True, seed=2**64 - 1)
    alone, among = row(manner), row(manner)
    neighbours = [row(Manner(do_sample=True, seed=1)), among, row()]
    three = torch.stack((LOGITS, LOGITS, LOGITS))
    for _ in range(20):
        single = choose(LOGITS[None], [alone])[1][0]
        assert choose(three, neighbours)[1][1] == single
    other = [choose(LOGITS[None], [row(Manner(do_sample=True, seed=s))])[1][0] for s in range(20)]
    assert len({chosen.token for chosen in other}) > 1


def test_a_samples_log_probability_is_that_of_the_changed_scores() -> None:
    asked = row(Manner(top_k=1, seed=0))
    assert choose(LOGITS[None], [asked])[1][0].logprob == pytest.approx(0.0)


def test_prompt_tokens() -> None:
    logits = torch.stack((LOGITS, LOGITS.flip(0), LOGITS))
    found = prompt_logprobs(logits, [2, 1, 3])
    wanted = (float(LOGITS.log_softmax(-1)[1]), float(LOGITS.flip(0).log_softmax(-1)[3]))
    assert found == pytest.approx(wanted)
