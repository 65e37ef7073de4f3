"""Prompts of an exact number of tokens, composed of words whose tokens are known."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, cycle, islice

from tgi_bench.plan.prompts import WORDS

Counts = Callable[[Sequence[str]], list[int]]
"""Tokens of each prompt, those that a tokenizer adds to every prompt included."""


@dataclass(frozen=True, slots=True)
class WordTokens:
    """A tokenizer as far as texts of WORDS need it.

    A text of words w_1 .. w_n with single spaces has head[w_1] + mid[w_2] + .. + mid[w_n] tokens.
    head: of a word that stands alone, with what is added to every prompt. mid: of a word after a
    space. fillers: words that are one token after a space; () where there is none.
    """

    head: dict[str, int]
    mid: dict[str, int]
    fillers: tuple[str, ...]

    def count(self, text: str) -> int | None:
        """Tokens of a text; None where it has a word that is not known, or none."""
        words = text.split()
        try:
            return self.head[words[0]] + sum(self.mid[word] for word in words[1:])
        except (KeyError, IndexError):
            return None

    @property
    def after_a_space(self) -> WordTokens:
        """The same where a text's first word has a space before it, as some chat templates put."""
        added = self.added
        return replace(self, head={word: self.mid[word] + added for word in self.head})

    @property
    def firsts(self) -> tuple[str, ...]:
        """Words of which one more or fewer tokens tell whether a space is before the first word:
        one that is as most are, and one that is not; () where all are alike."""
        added = self.added
        alike = [word for word in self.head if self.head[word] - self.mid[word] == added]
        unlike = [word for word in self.head if self.head[word] - self.mid[word] != added]
        return (alike[0], unlike[0]) if unlike else ()

    @property
    def added(self) -> int:
        """What is added to every prompt, as most words tell: more tokens alone than after a
        space."""
        more = Counter(self.head[word] - self.mid[word] for word in self.head)
        return more.most_common(1)[0][0]

    def fitted(self, text: str, tokens: int) -> str:
        """The text's first words, and fillers where the next word is too long, of that many
        tokens in all.

        A text with a word that is not known comes back as it is. Fewer tokens than its first
        word has cannot be: then it is that word. Without fillers it may be some tokens short.
        """
        words = text.split()
        if not words or any(word not in self.mid for word in words):
            return text
        reached = list(accumulate((self.mid[w] for w in words[1:]), initial=self.head[words[0]]))
        kept = max(1, bisect_right(reached, tokens))
        missing = max(0, tokens - reached[kept - 1]) if self.fillers else 0
        return " ".join([*words[:kept], *islice(cycle(self.fillers), missing)])

    def fitted_in_parts(self, text: str, parts: Sequence[int], beside: int) -> str:
        """The text's parts, of so many words each, every one with as many tokens; the first has
        `beside` less, which the server adds.

        As `fitted` otherwise. Where the first part's own first word is too long, the last part is
        shorter by that, so that the whole has its length.
        """
        words = text.split()
        if any(word not in self.mid for word in words):
            return text
        first = self.fitted(" ".join(words[: parts[0]]), parts[0] - beside)
        made, place = first.split(), parts[0]
        sizes = list(parts[1:])
        if sizes:
            sizes[-1] -= (self.count(first) or 0) - (parts[0] - beside)
        for size, tokens in zip(parts[1:], sizes, strict=True):
            made += self._in_the_middle(words[place : place + size], tokens)
            place += size
        return " ".join(made)

    def _in_the_middle(self, words: Sequence[str], tokens: int) -> list[str]:
        """Of words after a space, so many tokens."""
        reached = [0, *accumulate(self.mid[word] for word in words)]
        kept = max(0, bisect_right(reached, tokens) - 1)
        missing = max(0, tokens - reached[kept]) if self.fillers else 0
        return [*words[:kept], *islice(cycle(self.fillers), missing)]


def learn(counts: Counts) -> WordTokens:
    """Learn the tokens of WORDS: one question a word for head, and few long ones for mid.

    A text of n words that is n tokens longer than its first word alone has one token a word;
    any other is asked again in halves.
    """
    head = dict(zip(WORDS, counts(WORDS), strict=True))
    mid: dict[str, int] = {}
    groups: list[tuple[str, ...]] = [WORDS]
    lead = WORDS[0]
    while groups:
        found = counts([" ".join((lead, *group)) for group in groups])
        halves: list[tuple[str, ...]] = []
        for group, count in zip(groups, found, strict=True):
            tokens = count - head[lead]
            if tokens == len(group) or len(group) == 1:
                mid |= dict.fromkeys(group, tokens // len(group))
            else:
                middle = len(group) // 2
                halves += [group[:middle], group[middle:]]
        groups = halves
    # Fewer than one: this tokenizer joins words, so no sum of them is right.
    fillers = tuple(word for word in WORDS if mid[word] == 1)
    return WordTokens(head, mid, fillers)
