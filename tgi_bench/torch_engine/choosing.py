"""Which token comes next, and how probable it was.

As TGI's padded class does it: penalties and the watermark change the scores, then temperature,
top_k, top_p and typical_p; a request that asks for any of the four samples, as one that says so.
Log probabilities are those of the changed scores, in 32 bits. The four warpers and the
repetition penalty are transformers' own, which TGI takes too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

Change = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From token ids [1, tokens] and scores [1, vocab] to scores."""

_GAMMA, _DELTA, _HASH_KEY = 0.5, 2.0, 15485863
"""TGI's defaults of the watermark: the green share, its bonus, the key of the seed."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How one request's tokens are chosen; the defaults are greedy and change nothing."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0
    do_sample: bool = False
    seed: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    watermark: bool = False

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn; a warper that has an effect says so too."""
        return self.do_sample or self._warps

    @property
    def plain(self) -> bool:
        """Whether the most probable token is taken, of scores as they are."""
        return not (
            self.samples
            or self.watermark
            or self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
        )

    @property
    def _warps(self) -> bool:
        return self.temperature != 1.0 or self.top_k > 0 or self.top_p < 1.0 or self.typical_p < 1.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """One row's next token. top: ids and log probabilities of its alternatives, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Chooser:
    """Chooses one request's tokens. Its random numbers depend on its seed alone."""

    def __init__(self, manner: Manner, device: torch.device) -> None:
        self.manner = manner
        self._changes = _changes(manner)
        self._generator: torch.Generator | None = None
        if manner.samples:
            self._generator = torch.Generator(device)
            self._generator.manual_seed(manner.seed)

    def changed(self, logits: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
        """A row's scores [vocab] after penalties and warpers. ids: prompt and new tokens."""
        scores = logits[None].float().clone()
        so_far = torch.tensor([list(ids)], device=logits.device)
        for change in self._changes:
            scores = change(so_far, scores)
        return scores[0]

    def pick(self, logprobs: torch.Tensor) -> torch.Tensor:
        """The next token of log probabilities [vocab], as a scalar on the device."""
        if self._generator is None:
            return logprobs.argmax()
        # The largest of p_i / e_i, e_i exponential, is i with probability p_i.
        noise = torch.empty_like(logprobs).exponential_(1, generator=self._generator)
        return logprobs.exp().div_(noise).argmax()


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """What choosing needs of one request. ids: its prompt and new tokens."""

    chooser: Chooser
    ids: Sequence[int]
    top_n_tokens: int


def choose(logits: torch.Tensor, rows: Sequence[ChoiceRow]) -> tuple[torch.Tensor, list[Chosen]]:
    """The next token of every row of logits [batch, vocab]: on the device [batch, 1], and here."""
    with torch.inference_mode():
        special = [at for at, row in enumerate(rows) if not row.chooser.manner.plain]
        scores = logits
        if special:
            scores = logits.float().clone()
            for at in special:
                scores[at] = rows[at].chooser.changed(logits[at], rows[at].ids)
        best, ids = scores.max(dim=-1)
        if special:
            logprobs = scores.log_softmax(dim=-1)
            for at in special:
                ids[at] = rows[at].chooser.pick(logprobs[at])
            taken = logprobs.gather(1, ids[:, None])[:, 0]
        else:
            # Only the maximum's: log_softmax would write the whole vocabulary again.
            taken = best.float() - scores.float().logsumexp(dim=-1)
        top = _alternatives(scores, rows)
        packed = torch.stack((ids.double(), taken.double())).tolist()
    chosen = [
        Chosen(int(token), logprob, alternatives)
        for token, logprob, alternatives in zip(packed[0], packed[1], top, strict=True)
    ]
    return ids[:, None], chosen


def prompt_logprobs(logits: torch.Tensor, ids: Sequence[int]) -> tuple[float, ...]:
    """The log probability of each prompt token but the first, of logits [tokens, vocab]."""
    with torch.inference_mode():
        following = torch.tensor(list(ids[1:]), device=logits.device)[:, None]
        found = logits[:-1].float().log_softmax(dim=-1).gather(1, following)[:, 0]
        return tuple(float(value) for value in found.tolist())


def _alternatives(
    scores: torch.Tensor, rows: Sequence[ChoiceRow]
) -> list[tuple[tuple[int, float], ...]]:
    most = max(row.top_n_tokens for row in rows)
    if not most:
        return [()] * len(rows)
    logprobs, ids = scores.float().log_softmax(dim=-1).topk(min(most, scores.shape[-1]))
    pairs = zip(ids.tolist(), logprobs.tolist(), strict=True)
    return [
        tuple(zip(found[: row.top_n_tokens], values[: row.top_n_tokens], strict=True))
        for row, (found, values) in zip(rows, pairs, strict=True)
    ]


def _changes(manner: Manner) -> tuple[Change, ...]:
    """In TGI's order."""
    changes: list[Change] = []
    if manner.watermark:
        changes.append(_watermark)
    if manner.repetition_penalty != 1.0:
        changes.append(RepetitionPenaltyLogitsProcessor(penalty=manner.repetition_penalty))
    if manner.frequency_penalty != 0.0:
        changes.append(_frequency_penalty(manner.frequency_penalty))
    if manner.temperature != 1.0:
        changes.append(TemperatureLogitsWarper(manner.temperature))
    if manner.top_k:
        changes.append(TopKLogitsWarper(top_k=manner.top_k))
    if manner.top_p < 1.0:
        changes.append(TopPLogitsWarper(top_p=manner.top_p))
    if manner.typical_p < 1.0:
        changes.append(TypicalLogitsWarper(mass=manner.typical_p))
    return tuple(changes)


def _frequency_penalty(penalty: float) -> Change:
    """score - penalty x the token's share of the tokens so far."""

    def change(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        share = torch.full(ids.shape, 1 / ids.shape[1], device=ids.device)
        counted = torch.zeros_like(scores).scatter_add_(1, ids, share.to(scores.dtype))
        return scores - penalty * counted

    return change


def _watermark(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A bonus for the green half of the vocabulary, which the last token chooses.

    Source: Kirchenbauer et al., A Watermark for Large Language Models (arXiv 2301.10226).
    """
    generator = torch.Generator(scores.device)
    generator.manual_seed(_HASH_KEY * int(ids[0, -1]))
    vocab = scores.shape[-1]
    green = torch.randperm(vocab, generator=generator, device=scores.device)[: int(vocab * _GAMMA)]
    scores = scores.clone()
    scores[:, green] += _DELTA
    return scores
