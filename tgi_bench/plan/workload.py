"""The requests of a load, one after the other: the same for a seed and a stream everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, repeat

from tgi_bench.errors import InputError
from tgi_bench.inert import one_line
from tgi_bench.plan.corpus import CSV_TIME, MOONCAKE_BLOCK_TOKENS, Corpus, Entry
from tgi_bench.plan.prompts import DistinctTexts
from tgi_bench.trials.draws import Draw, below, sequence, shuffled, text_seed
from tgi_bench.trials.lengths import MOST_TOKENS, lengths
from tgi_bench.trials.load import Fixed, SharedPrefix, Turns, Workload
from tgi_bench.trials.load_keys import OUTPUT_TOKENS, PROMPT_TOKENS


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """What one request asks.

    conversation, turn: 0-based; requests of one conversation follow each other, each waiting
        think_ns after the answer before (0 for turn 0).
    text: the new prompt, or the new user message of a conversation: at least prompt_tokens words,
        so that a server that truncates to prompt_tokens sees that many; a file's own text as it is.
    parts: of how many of the text's words, and tokens, each part of it is that other requests may
        share: a shared head and the rest, blocks of a trace; () where it is of one piece.
    messages: a file's own (role, text) list instead of text; () where there is none.
    prompt_tokens: None where a file's text is sent as it is.
    at_ns: its time in a trace, from the first one's; None elsewhere.
    """

    conversation: int
    turn: int
    text: str
    messages: tuple[tuple[str, str], ...]
    prompt_tokens: int | None
    output_tokens: int
    think_ns: int
    at_ns: int | None
    parts: tuple[int, ...] = ()


def requests(
    workload: Workload, stream: str, corpus: Corpus | None, once: bool = False, start: str = ""
) -> Iterator[RequestSpec]:
    """A workload's requests, conversation by conversation: all turns of 0, then of 1, ...

    stream: whose they are, as "<trial_id>/<stage>": others have other texts and draws.
    start: as draws.text_seed has it; another one has other texts of the same lengths.
    corpus: what workload.file holds; None without one. once: end with the file, as a trace does,
    whose requests have at_ns; else a file is gone through again and again: its own texts come
    again as they are, texts made for its lengths are new, and a shuffle is another one. A file's
    conversation has as many turns as turns.count says, or as it holds where these are fewer.

    Texts begin differently (see DistinctTexts), but for what shared_prefix or a file's hash_ids
    say is alike; the prefix is part of prompt_tokens, and of turn 0 only. Where neither the
    workload nor the file says output_tokens it is as many as the file's own answer has, where there
    is one and corpus.count_tokens, else 128. at_ns is the file's, not sped up.

    Raises InputError where a trace's file has no times, ValueError where corpus is not given for a
    workload with a file, or for a trace.
    """
    if (workload.file is None) != (corpus is None):
        raise ValueError("a corpus goes with a workload's file, and only with it")
    if once:
        if corpus is None:
            raise ValueError("a trace goes with a file")
        require_times(corpus)
    source = _Source(workload, stream, start)
    return source.synthetic() if corpus is None else source.of_corpus(corpus, once)


def require_times(corpus: Corpus) -> None:
    """Raise InputError where a request has no time; of a table's kinds CSV alone may be without."""
    if not corpus.timed:
        raise InputError(
            f"{one_line(corpus.path)}: has no times, which a trace needs: give it a column "
            f"`{CSV_TIME}`, in seconds"
        )


class _Source:
    """What the requests of one stream have in common."""

    def __init__(self, workload: Workload, stream: str, start: str) -> None:
        self._workload, self._stream = workload, stream
        self._texts = DistinctTexts(text_seed(workload.seed, start), stream)
        self._numbers = count()
        self._prompts = lengths(workload.prompt or Fixed(PROMPT_TOKENS), self._draw("prompt"))
        self._outputs = (
            None if workload.output is None else lengths(workload.output, self._draw("output"))
        )
        self._group = self._draw("group")

    def _draw(self, what: str) -> Draw:
        """A sequence each, so that one more draw of one kind leaves the others as they are."""
        return sequence(what, self._workload.seed or 0, self._stream)

    def synthetic(self) -> Iterator[RequestSpec]:
        turns = self._workload.turns
        think_ns = 0 if turns is None else turns.think_ns
        for conversation, amount in enumerate(self._turn_counts(turns)):
            for turn in range(amount):
                tokens = next(self._prompts)
                text, parts = self._text(tokens, turn)
                yield RequestSpec(
                    conversation=conversation,
                    turn=turn,
                    text=text,
                    messages=(),
                    prompt_tokens=tokens,
                    output_tokens=self._output(None),
                    think_ns=think_ns if turn else 0,
                    at_ns=None,
                    parts=parts,
                )

    def of_corpus(self, corpus: Corpus, once: bool) -> Iterator[RequestSpec]:
        conversations = count()
        amounts = self._turn_counts(self._workload.turns)
        for entry in self._entries(corpus, once):
            conversation = next(conversations)
            said = entry.output_tokens or self._answered(corpus, entry, 0)
            yield self._of_entry(entry, (conversation, once), said)
            if (turns := self._workload.turns) is not None:
                for turn, text in islice(enumerate(entry.later, start=1), next(amounts) - 1):
                    said = self._answered(corpus, entry, turn)
                    yield self._later(text, (conversation, turn), turns, said)

    def _entries(self, corpus: Corpus, once: bool) -> Iterator[Entry]:
        file = self._workload.file
        order = self._draw("shuffle")
        for _ in range(1) if once else repeat(None):
            if file is not None and file.shuffle:
                yield from (corpus.entries[i] for i in shuffled(order, len(corpus.entries)))
            else:
                yield from corpus.entries

    def _of_entry(self, entry: Entry, place: tuple[int, bool], said: int | None) -> RequestSpec:
        conversation, once = place
        text = entry.text
        parts: tuple[int, ...] = ()
        if entry.prompt_tokens is not None:
            text, parts = (
                self._of_blocks(entry.hash_ids, entry.prompt_tokens)
                if entry.hash_ids
                else self._text(entry.prompt_tokens, turn=0)
            )
        return RequestSpec(
            conversation=conversation,
            turn=0,
            text=text,
            messages=entry.messages,
            prompt_tokens=entry.prompt_tokens,
            output_tokens=self._output(said),
            think_ns=0,
            at_ns=entry.at_ns if once else None,
            parts=parts,
        )

    def _later(
        self, text: str, place: tuple[int, int], turns: Turns, said: int | None
    ) -> RequestSpec:
        conversation, turn = place
        return RequestSpec(
            conversation=conversation,
            turn=turn,
            text=text,
            messages=(),
            prompt_tokens=None,
            output_tokens=self._output(said),
            think_ns=turns.think_ns,
            at_ns=None,
        )

    def _turn_counts(self, turns: Turns | None) -> Iterator[int]:
        return repeat(1) if turns is None else lengths(turns.count, self._draw("turns"))

    def _answered(self, corpus: Corpus, entry: Entry, turn: int) -> int | None:
        """Tokens of the file's own answer; None where it has none or nobody counts."""
        answer = entry.answers[turn] if turn < len(entry.answers) else ""
        if corpus.count_tokens is None or not answer or self._outputs is not None:
            return None
        return min(MOST_TOKENS, max(1, corpus.count_tokens(answer)))

    def _output(self, said: int | None) -> int:
        """The workload's own length goes before the file's."""
        if self._outputs is not None:
            return next(self._outputs)
        return OUTPUT_TOKENS if said is None else said

    def _text(self, tokens: int, turn: int) -> tuple[str, tuple[int, ...]]:
        """A text of its own, after the prefix of its group where turns begin with one; its parts,
        where that is so."""
        shared = self._workload.shared_prefix
        number = next(self._numbers)
        if shared is None or turn > 0:
            return self._texts.text(number, tokens), ()
        # A file's lengths may be shorter than the prefix: the last word stays the request's own.
        prefix = min(shared.tokens, tokens - 1)
        own = self._texts.text(number, tokens - prefix)
        if not prefix:
            return own, ()
        return f"{self._prefix(shared, prefix)} {own}", (prefix, tokens - prefix)

    def _prefix(self, shared: SharedPrefix, words: int) -> str:
        # Requests count up from 0: what they share is numbered below it.
        return self._texts.text(-1 - below(self._group, shared.groups), words)

    def _of_blocks(self, hash_ids: tuple[int, ...], tokens: int) -> tuple[str, tuple[int, ...]]:
        """One id is one block of text, and a part; what the ids do not reach is the request's
        own."""
        parts = []
        sizes = []
        left = tokens
        for hash_id in hash_ids:
            words = min(left, MOONCAKE_BLOCK_TOKENS)
            if words > 0:
                parts.append(self._texts.text(-1 - hash_id, words))
                sizes.append(words)
                left -= words
        if left > 0:
            parts.append(self._texts.text(next(self._numbers), left))
            sizes.append(left)
        return " ".join(parts), tuple(sizes)
