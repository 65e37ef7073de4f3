"""Prompts that a server sees as exactly as many tokens as were asked, and how that is known.

They are composed of words whose tokens are known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, cycle, islice

from tgi_bench.ask import Asker, Asking
from tgi_bench.dialects.abilities import asked, tokens_of
from tgi_bench.dialects.dialect import Abilities, Ask
from tgi_bench.drive.load_files import TokenizerFile
from tgi_bench.errors import InputError
from tgi_bench.inert import shortened
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.plan.prompts import WORDS, batch_prompts
from tgi_bench.plan.workload import RequestSpec
from tgi_bench.trials.load import FileKind, LoadTrial

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


NOT_EXACT = "not exact: "
"""Begins the sentence where lengths are not, or not known to be, those asked."""

_CHECKED_TOKENS = (64, 97)
"""Lengths of the prompts that are checked, as far as the server's limit allows."""

Seen = Callable[[str], int | None]
"""Tokens that the server says it saw of a prompt that it was sent; None where it does not say."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """How a stage's prompts are made. how: in one sentence, for its record.

    words: None where texts are sent as they are. beside: tokens that the server adds, as of a
    chat template. count: of a generated text, by the tokenizer file; None where there is none.
    words_by: as StageConditions has it.
    """

    how: str
    words: WordTokens | None = None
    beside: int = 0
    count: Callable[[str], int] | None = None
    words_by: str = ""

    def fitted(self, spec: RequestSpec) -> str:
        """Its text with as many tokens as it asks for, where words are known and it asks.

        Of a first prompt these are the tokens that the server sees, in each of its parts; of a
        later turn they are the text's own, for the rest is the conversation's.
        """
        tokens = spec.prompt_tokens
        if self.words is None or tokens is None:
            return spec.text
        if spec.turn:
            return self.words.fitted(spec.text, tokens + self.words.added)
        if spec.parts:
            return self.words.fitted_in_parts(spec.text, spec.parts, self.beside)
        return self.words.fitted(spec.text, tokens - self.beside)


def fitting(url: str, abilities: Abilities, asking: Asking, trial: LoadTrial) -> Fitting:
    """Learn what the trial's prompts need. Raises InputError: its tokenizer file cannot be used,
    or the server does not answer.

    A server that cuts prompts makes them exact by itself. Words are counted all the same where a
    file of the tokenizer is named, where requests share heads, for what is cut is the head, and
    for the later turns of conversations, which nothing is cut of.
    """
    file = None if trial.tokenizer is None else TokenizerFile(trial.tokenizer)
    count = None if file is None else file.count
    if not _has_lengths(trial):
        return Fitting("texts of the file, as they are", count=count)
    with Asker(url, asking) as control:

        def all_asked(texts: Sequence[str]) -> list[int]:
            return [_asked(control, abilities, text) for text in texts]

        if file is not None:
            source = PromptCounter(file.prompt_counts, f"the tokenizer of {trial.tokenizer}")
        elif abilities.tokenize_path is not None:
            source = PromptCounter(all_asked, f"the server's {abilities.tokenize_path}")
        else:
            source = None
        if abilities.truncates and file is None and not (_has_parts(trial) and source):
            return Fitting(_cut_alone(trial), count=count)
        made = fit(abilities, source, lambda text: _seen(control, abilities, text))
    counted = ("server" if file is None else "tokenizer") if made.words is not None else ""
    return replace(made, count=count, words_by=counted)


@dataclass(frozen=True, slots=True)
class PromptCounter:
    """Who counts prompts. name: for the sentence."""

    counts: Counts
    name: str


def fit(abilities: Abilities, source: PromptCounter | None, seen: Seen) -> Fitting:
    """Learn the words' tokens from source, and check with the server what it sees.

    Two prompts are sent for one token each: the first tells what the server adds beside the
    prompt, the second, of another length and other words, whether that holds.
    """
    if source is None:
        return Fitting(
            f"{NOT_EXACT}a word for each token, for the server neither cuts prompts nor counts "
            "tokens; name its tokenizer.json in load.tokenizer"
        )
    words = learn(source.counts)
    whom = f"words counted by {source.name}"
    if not words.fillers or any(count < 1 for count in words.mid.values()):
        return Fitting(f"{NOT_EXACT}a word for each token, for {source.name} does not count words")
    first, second = _checks(abilities, words)
    if source.counts((second,)) != [words.count(second)]:
        return Fitting(f"{NOT_EXACT}{whom}, but a text has other tokens than its words", words)
    first_seen = seen(first)
    if first_seen is None:
        if abilities.dialect.takes_messages:
            why = "the server does not say what its chat template adds"
            return Fitting(f"{NOT_EXACT}{whom}, but {why}", words)
        return Fitting(f"{whom}; not checked, for the server does not say what it saw", words)
    if abilities.dialect.takes_messages:
        whose = "by its chat template"
    else:
        whose = "as a BOS" if first_seen - (words.count(first) or 0) == 1 else "as by a template"
    told = ((first, first_seen), (second, seen(second)))
    spaced = words.after_a_space
    if _beside(words, *told) is None and _beside(spaced, *told) is not None:
        words = spaced
    return _checked(words, (whom, whose), *told)


def _beside(
    words: WordTokens, first: tuple[str, int], second: tuple[str, int | None]
) -> int | None:
    """What the server adds to both prompts; None where it is not the same."""
    beside = first[1] - (words.count(first[0]) or 0)
    return beside if second[1] == (words.count(second[0]) or 0) + beside else None


def _checked(
    words: WordTokens,
    named: tuple[str, str],
    first: tuple[str, int],
    second: tuple[str, int | None],
) -> Fitting:
    """named: who counted the words, and whose the tokens may be that the server adds."""
    whom, whose = named
    beside = first[1] - (words.count(first[0]) or 0)
    expected = (words.count(second[0]) or 0) + beside
    added = f", {beside} more added by the server, {whose}" if beside > 0 else ""
    if second[1] != expected:
        why = f"the server saw {second[1]} tokens where {expected} were expected"
        return Fitting(f"{NOT_EXACT}{whom}{added}; {why}", words, beside)
    if beside < 0:
        why = f"the server saw {-beside} fewer than they have"
        return Fitting(f"{NOT_EXACT}{whom}; {why}", words, beside)
    return Fitting(f"{whom}{added}; checked with the server", words, beside)


def _checks(abilities: Abilities, words: WordTokens) -> tuple[str, str]:
    """Two texts with different first words, of different lengths."""
    most = abilities.max_input_tokens
    lengths = [
        tokens if most is None else max(1, min(tokens, most // 2)) for tokens in _CHECKED_TOKENS
    ]
    texts = [text.split() for text in batch_prompts(0, "exact prompts", 2, max(lengths))]
    for text, word in zip(texts, words.firsts, strict=False):
        text[0] = word
    first, second = (
        words.fitted(" ".join(text), tokens) for text, tokens in zip(texts, lengths, strict=True)
    )
    return first, second


def _has_parts(trial: LoadTrial) -> bool:
    """Whether more than the length of a whole prompt is asked for."""
    workload = trial.workload
    blocks = workload.file is not None and workload.file.kind is FileKind.MOONCAKE
    return workload.shared_prefix is not None or workload.turns is not None or blocks


def _cut_alone(trial: LoadTrial) -> str:
    """What a server's cutting gives where nobody counts words."""
    cut = "cut by the server to the tokens asked"
    if not _has_parts(trial):
        return cut
    if trial.workload.turns is not None and trial.workload.shared_prefix is None:
        return f"{NOT_EXACT}first prompts {cut}; later turns have a word for each token"
    return f"{NOT_EXACT}{cut}, which takes from the heads that are to be shared"


def _has_lengths(trial: LoadTrial) -> bool:
    """Whether its prompts have lengths: those of a file with texts do not."""
    file = trial.workload.file
    return file is None or file.kind not in (FileKind.JSONL, FileKind.SHAREGPT)


def _asked(control: Asker, abilities: Abilities, text: str) -> int:
    found = tokens_of(control, abilities, text)
    if found is None:
        raise InputError(
            f"{control.url}{abilities.tokenize_path} counted the first text and not "
            f'"{shortened(text[:60])}"'
        )
    return found


def _seen(control: Asker, abilities: Abilities, text: str) -> int | None:
    """By a request for one token, not streamed, that the server is not asked to cut."""
    able = replace(abilities, truncates=False)
    ask = Ask(prompt=text, messages=(), prompt_tokens=None, output_tokens=1)
    _, reading = asked(control, able, ask, stream=False)
    if reading.outcome is not RequestOutcome.OK:
        raise InputError(
            f"{control.url} refused a prompt of {len(text.split())} words: {reading.reason}"
        )
    return reading.prompt_tokens
