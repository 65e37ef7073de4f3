"""The transformers engine as a shard uses it: its tokens are those of transformers' generate."""

from __future__ import annotations

import math
import random
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.torch_engine.needs_torch import skip_without_torch

skip_without_torch()

from tests.server.batches import batch, cached, request  # noqa: E402
from tests.torch_engine.text_files import write_model  # noqa: E402
from tests.torch_engine.tiny import CONFIGS, POSITIONS, expected, loaded, spec  # noqa: E402
from tgi_bench.server.behaviour import Behaviour  # noqa: E402
from tgi_bench.server.config import Version  # noqa: E402
from tgi_bench.server.transformers_engine import TransformersEngine  # noqa: E402
from tgi_bench.torch_engine.loading import load  # noqa: E402
from tgi_bench.torch_engine.model import LoadedModel  # noqa: E402
from tgi_bench.wire.messages import (  # noqa: E402
    CachedBatch,
    FinishReason,
    Request,
    StepReply,
    Stopping,
    Warmup,
)


def engine(family: str = "llama", version: Version = (3, 3, 7)) -> TransformersEngine:
    return TransformersEngine(loaded(family), Behaviour(version))


def answer_of(model: LoadedModel, asked: Request) -> list[int]:
    return expected(model, list(model.tokenizer.ids(asked.text)), asked.stopping.max_new_tokens)


@dataclass
class Driver:
    """Prefills, joins, filters and decodes at random, and keeps each request's tokens."""

    shard: TransformersEngine
    rng: random.Random
    tokens: dict[int, list[int]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    held: list[CachedBatch] = field(default_factory=list)

    def take(self, reply: StepReply) -> None:
        for generation in reply.generations:
            assert generation.request_id not in self.texts
            (token,) = generation.tokens
            self.tokens.setdefault(generation.request_id, []).append(token.id)
            if generation.generated_text is not None:
                self.texts[generation.request_id] = generation.generated_text.text
        if reply.cached is None:
            return
        left = [i for i in reply.cached.request_ids if i not in self.texts]
        held = reply.cached
        # As a router does: a shard goes on with who has ended.
        self.held.append(held if len(left) == held.size else self.shard.filter_batch(held.id, left))

    def decode(self) -> None:
        count = self.rng.randint(1, len(self.held))
        joined = [self.held.pop(self.rng.randrange(len(self.held))) for _ in range(count)]
        self.take(self.shard.decode(joined))

    def filter(self) -> None:
        chosen = self.held.pop(self.rng.randrange(len(self.held)))
        kept = self.rng.sample(chosen.request_ids, self.rng.randint(1, chosen.size))
        self.dropped |= set(chosen.request_ids) - set(kept)
        self.held.append(self.shard.filter_batch(chosen.id, kept))


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("seed", range(4))
def test_joined_and_filtered_at_any_step(family: str, seed: int) -> None:
    rng = random.Random(f"{family} {seed}")
    shard = engine(family)
    driver = Driver(shard, rng)
    asked: dict[int, Request] = {}
    for batch_id in range(4):
        for _ in range(rng.randrange(4)):
            if driver.held:
                rng.choice((driver.decode, driver.decode, driver.filter))()
        fresh = [
            request(batch_id * 10 + n, words=rng.randint(1, 25), new=rng.randint(1, 12))
            for n in range(rng.randint(1, 4))
        ]
        asked |= {r.id: r for r in fresh}
        driver.take(shard.prefill(batch(batch_id, *fresh)))
    while driver.held:
        driver.decode()
    model = loaded(family)
    for request_id, tokens in driver.tokens.items():
        want = answer_of(model, asked[request_id])
        if request_id in driver.dropped:
            assert tokens == want[: len(tokens)]
        else:
            assert tokens == want
            assert driver.texts[request_id] == model.tokenizer.text(want)
    assert driver.texts.keys() | driver.dropped == asked.keys()


def test_more_positions_than_the_model_has_are_refused() -> None:
    shard = engine()
    with pytest.raises(ValueError, match=f"the {POSITIONS} positions"):
        shard.prefill(batch(0, request(words=60, new=64)))
    assert shard.prefill(batch(0, request())).generations


def test_prompts_are_cut_at_the_head() -> None:
    model = loaded("llama")
    asked = replace(request(words=20, new=1), truncate=3)
    token = engine().prefill(batch(0, asked)).generations[0].tokens[0]
    kept = list(model.tokenizer.ids(asked.text))[-3:]
    assert token.id == expected(model, kept, 1)[0]


def test_an_empty_prompt_has_one_token() -> None:
    """v1 and v2 have no text chunk to refuse."""
    reply = engine(version=(1, 4, 5)).prefill(batch(0, replace(request(), text="")))
    assert reply.generations[0].tokens[0].id == expected(loaded("llama"), [0], 1)[0]


def test_log_probabilities() -> None:
    import torch

    model = loaded("bloom")
    asked = replace(request(3, words=5, new=2), prefill_logprobs=True, top_n_tokens=3)
    other = replace(request(4, words=9, new=2), top_n_tokens=1)
    reply = engine("bloom").prefill(batch(0, other, asked))
    ids = list(model.tokenizer.ids(asked.text))
    with torch.inference_mode():
        scores = model.network(torch.tensor([ids])).logits[0].log_softmax(-1)
    plain, told = reply.generations
    assert plain.prefill_tokens == ()
    assert [t.id for t in told.prefill_tokens] == ids
    assert math.isnan(told.prefill_tokens[0].logprob)
    wanted = [float(scores[at, token]) for at, token in enumerate(ids[1:])]
    assert [t.logprob for t in told.prefill_tokens[1:]] == pytest.approx(wanted, abs=1e-4)
    best = scores[-1].topk(3)
    (alternatives,) = told.top_tokens
    assert [t.id for t in alternatives] == best.indices.tolist()
    assert [t.logprob for t in alternatives] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert told.tokens[0].logprob == pytest.approx(float(best.values[0]), abs=1e-4)
    assert [len(found) for found in plain.top_tokens] == [1]


def test_a_stop_sequence_ends_a_request_and_not_its_neighbour() -> None:
    model, shard = loaded("llama"), engine()
    asked = request(1, new=8)
    second = model.tokenizer.text(answer_of(model, asked)[1:2])
    stopping = replace(asked.stopping, stop_sequences=("never", second))
    reply = shard.prefill(batch(0, replace(asked, stopping=stopping), request(2, new=8)))
    reply = shard.decode([cached(reply)])
    text = reply.generations[0].generated_text
    assert text is not None
    assert (text.finish_reason, text.generated_tokens) == (FinishReason.STOP_SEQUENCE, 2)
    assert reply.generations[1].generated_text is None
    assert cached(reply).request_ids == (1, 2)
    assert shard.filter_batch(0, [2]).request_ids == (2,)
    assert [g.request_id for g in shard.decode([cached(reply)]).generations] == [2]


def text_model() -> LoadedModel:
    """A model whose tokenizer has an end of sequence."""
    with tempfile.TemporaryDirectory() as folder:
        return load(spec(write_model(Path(folder))))


@pytest.mark.parametrize("ignored", [False, True])
def test_an_end_of_sequence_ends_a_request_unless_it_is_ignored(ignored: bool) -> None:
    model = text_model()
    for number in range(2000):
        asked = replace(request(number, new=8), text=f"he{number}", truncate=64)
        want = answer_of(model, asked)
        ends = [at for at, token in enumerate(want[:-1]) if token in model.end_ids]
        if ends:
            break
    asked = replace(asked, stopping=Stopping(8, ignore_eos_token=ignored))
    shard = TransformersEngine(model, Behaviour((3, 3, 7)))
    reply = shard.prefill(batch(0, asked))
    told = [reply.generations[0].tokens[0]]
    while reply.cached is not None:
        reply = shard.decode([reply.cached])
        told.append(reply.generations[0].tokens[0])
    assert [t.id for t in told] == (want if ignored else want[: ends[0] + 1])
    assert told[ends[0]].special
    text = reply.generations[0].generated_text
    assert text is not None
    reason = FinishReason.LENGTH if ignored else FinishReason.EOS_TOKEN
    assert (text.finish_reason, text.generated_tokens) == (reason, len(told))
    assert "<" not in text.text


def test_a_sampled_request_tells_its_seed_and_does_as_it_says() -> None:
    def sampled(*neighbours: Request) -> tuple[list[int], int | None]:
        shard = engine()
        asked = request(5, new=6, do_sample=True, seed=11, temperature=0.7, top_k=50)
        reply = shard.prefill(batch(0, *neighbours, asked))
        tokens = [reply.generations[-1].tokens[0].id]
        while reply.cached is not None:
            reply = shard.decode([reply.cached])
            tokens.append(reply.generations[-1].tokens[0].id)
        text = reply.generations[-1].generated_text
        assert text is not None
        return tokens, text.seed

    alone, seed = sampled()
    assert seed == 11
    among, _ = sampled(request(1, words=20, new=2), request(2, new=6, do_sample=True, seed=3))
    assert among == alone


def test_the_warm_up_says_what_memory_holds() -> None:
    shard = engine()
    warmup = Warmup(batch(0, request(words=30, new=30)), 64, 64, 96)
    reply = shard.warmup(warmup)
    assert reply.max_supported_total_tokens is not None
    assert reply.max_supported_total_tokens > 1000
    assert (reply.max_input_tokens, reply.max_total_tokens) == (64, 96)
    with pytest.raises(ValueError, match="not found"):
        shard.filter_batch(0, [0])
    assert engine(version=(2, 0, 4)).warmup(warmup).max_total_tokens is None


def test_what_a_shard_says_of_itself() -> None:
    info = engine().info()
    assert (info.requires_padding, info.dtype, info.device_type) == (True, "torch.float32", "cpu")
