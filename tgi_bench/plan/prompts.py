"""Prompts of an exact length, different from each other from their first words on."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING

from tgi_bench.plan.draws import text_seed

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
