"""Prompts of a batch and texts of a load, different from each other from their first words on.

A load's text is cut into chunks. Each begins with HEAD_WORDS words that encode a number which no
other chunk of a stream has soon, and goes on with words of a pool that all texts share: so texts
are quick to make, and two of them differ early even where a server keeps only their last tokens.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING

from tgi_bench.trials.draws import below, sequence, text_seed

if TYPE_CHECKING:
    from tgi_bench.plan.plan import BatchTrial

_TEXT = """
    time year people way day man thing woman life child world school state family student group
    country problem hand part place case week company system program question work government
    number night point home water room mother area money story fact month lot right study book
    eye job word business issue side kind head house service friend father power hour game line
    end member law car city community name president team minute idea kid body information back
    parent face others level office door health person art war history party result change
    morning reason research girl guy moment air teacher force education foot boy age policy
    music market sense nation plan college interest death experience effect use class control
    field development role effort rate heart drug show leader light voice wife police mind
    price report decision son view relationship town road arm difference value building action
    season society tax director position player record paper space ground form event official
    matter center couple site project activity star table need court oil situation cost industry
    figure street image phone data picture practice piece land product doctor wall patient
    worker news test movie north love support technology step baby computer type attention film
    tree source truth summer board sea color rock bank stage letter sun stone glass bird fire
    box floor garden river train window bridge king ship snow wind blood bed bar hat map
    """
WORDS: tuple[str, ...] = tuple(_TEXT.split())
"""Common English words; each is at least one token in any tokenizer."""


def batch_prompts(seed: int | str, trial_id: str, batch_size: int, tokens: int) -> tuple[str, ...]:
    """batch_size texts of exactly `tokens` words each: a server that truncates to `tokens`
    tokens, keeping the last ones, sees that many of each.

    No two begin with the same word, or where there are more prompts than words, with the
    same two or three words, as far as `tokens` allows. The same for the same seed and trial on
    every machine and version of Python. seed: as draws.text_seed gives it. batch_size and tokens
    are at least 1, else ValueError.
    """
    if batch_size < 1 or tokens < 1:
        raise ValueError(f"no prompts of {batch_size} x {tokens} tokens")
    digest = sha256(f"{seed}\n{trial_id}".encode()).digest()
    # Python keeps only random() the same from version to version, not choices() or sample().
    draw = Random(int.from_bytes(digest)).random
    head = min(_head_length(batch_size), tokens)
    first, count = int(draw() * len(WORDS) ** head), len(WORDS)
    return tuple(
        " ".join(
            [
                *head_words(first + index, head),
                *[WORDS[int(draw() * count)] for _ in range(tokens - head)],
            ]
        )
        for index in range(batch_size)
    )


def prompts_of(trial: BatchTrial, start: str) -> tuple[str, ...]:
    """A trial's prompts: of its seed, or where it has none of the start."""
    seed = text_seed(trial.prompt_seed, start)
    return batch_prompts(seed, trial.trial_id, trial.batch_size, trial.sequence_length)


def _head_length(batch_size: int) -> int:
    """Words that tell batch_size prompts apart."""
    length = 1
    while len(WORDS) ** length < batch_size:
        length += 1
    return length


def head_words(number: int, length: int) -> tuple[str, ...]:
    """The number's last `length` digits, the least first, with WORDS as the digits."""
    words = []
    for _ in range(length):
        number, digit = divmod(number, len(WORDS))
        words.append(WORDS[digit])
    return tuple(words)


HEAD_WORDS = 4
_CODES: int = len(WORDS) ** HEAD_WORDS
_CHUNK_WORDS = 32
_POOL_CHUNKS = 512
_CHUNK_STRIDE = 2_654_435_761
"""Prime: a text's chunks have numbers far from those of the texts before and after it."""
_POOL_STRIDE = 197
"""Prime to _POOL_CHUNKS: neighbours begin at different places of the pool."""


class DistinctTexts:
    """Texts by number, of one stream; another stream has others."""

    def __init__(self, seed: int | str, stream: str) -> None:
        """seed: as draws.text_seed gives it."""
        draw = sequence("texts", seed, stream)
        self._first = below(draw, _CODES)
        body = _CHUNK_WORDS - HEAD_WORDS
        self._pool = [
            tuple(WORDS[below(draw, len(WORDS))] for _ in range(body)) for _ in range(_POOL_CHUNKS)
        ]
        self._joined = [" ".join(words) for words in self._pool]

    def text(self, number: int, words: int) -> str:
        """`words` words, separated by one space; "" for 0.

        Of one number a shorter text is the beginning of a longer one. Texts of two numbers that
        are less than _CODES apart differ in their first HEAD_WORDS words, if they have them;
        neighbours differ in the first.
        """
        chunks, rest = divmod(words, _CHUNK_WORDS)
        parts: list[str] = []
        code, place = self._first + number, number * _POOL_STRIDE
        for _ in range(chunks):
            parts += head_words(code, HEAD_WORDS)
            parts.append(self._joined[place % _POOL_CHUNKS])
            code, place = code + _CHUNK_STRIDE, place + 1
        if rest:
            parts += head_words(code, HEAD_WORDS)[:rest]
            parts += self._pool[place % _POOL_CHUNKS][: max(0, rest - HEAD_WORDS)]
        return " ".join(parts)
