"""The requests of a load: exact lengths, distinct heads, files, conversations, seeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from math import exp
from statistics import fmean, median, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.errors import InputError
from tgi_bench.plan.corpus import Corpus, Entry
from tgi_bench.plan.prompts import HEAD_WORDS, WORDS, DistinctTexts
from tgi_bench.plan.workload import RequestSpec, requests
from tgi_bench.trials.draws import sequence
from tgi_bench.trials.lengths import lengths, mean_tokens
from tgi_bench.trials.load import (
    Empirical,
    FileKind,
    Fixed,
    Length,
    LogNormal,
    Normal,
    SharedPrefix,
    Turns,
    Uniform,
    Workload,
    WorkloadFile,
)

PLAIN = Workload(Fixed(40), Fixed(8), None, None, None, 0)


def first(
    amount: int, workload: Workload = PLAIN, stream: str = "t", corpus: Corpus | None = None
) -> list[RequestSpec]:
    return list(islice(requests(workload, stream, corpus), amount))


def of_file(*entries: Entry, kind: FileKind = FileKind.JSONL) -> tuple[Workload, Corpus]:
    file = WorkloadFile("f", kind, shuffle=False)
    return Workload(None, None, file, None, None, 0), Corpus(entries, 0, "f")


def words(spec: RequestSpec) -> list[str]:
    return spec.text.split(" ")


def test_a_request() -> None:
    one, two = first(2)
    assert (one.conversation, one.turn, two.conversation, two.turn) == (0, 0, 1, 0)
    assert (one.prompt_tokens, one.output_tokens, one.think_ns, one.at_ns) == (40, 8, 0, None)
    assert len(words(one)) == len(words(two)) == 40
    assert set(words(one)) <= set(WORDS)


@given(st.integers(0, 500), st.integers(-(2**63), 2**63), st.integers(0, 99))
def test_a_text_has_its_words_and_begins_a_longer_one(amount: int, number: int, seed: int) -> None:
    texts = DistinctTexts(seed, "s")
    text = texts.text(number, amount)
    assert len(text.split()) == amount
    assert texts.text(number, amount + 37).startswith(text)


def test_no_two_texts_begin_alike() -> None:
    specs = first(20_000, replace(PLAIN, prompt=Fixed(6)))
    assert len({tuple(words(spec)[:HEAD_WORDS]) for spec in specs}) == 20_000
    neighbours = {words(spec)[0] for spec in specs[: len(WORDS)]}
    assert len(neighbours) == len(WORDS)


def test_short_texts_are_as_different_as_can_be() -> None:
    ones = {spec.text for spec in first(len(WORDS), replace(PLAIN, prompt=Fixed(1)))}
    assert len(ones) == len(WORDS)
    twos = {spec.text for spec in first(5000, replace(PLAIN, prompt=Fixed(2)))}
    assert len(twos) == 5000


@pytest.mark.parametrize("cut", [1, 5, 20, 33, 100])
def test_texts_differ_early_where_only_their_last_tokens_are_kept(cut: int) -> None:
    specs = first(3000, replace(PLAIN, prompt=Fixed(300)))
    heads = Counter(tuple(words(spec)[cut : cut + 40]) for spec in specs)
    assert max(heads.values()) == 1


def test_seeds_and_streams_give_other_texts() -> None:
    assert first(5) == first(5)
    heads = {
        tuple(words(spec)[:HEAD_WORDS])
        for workload, stream in ((PLAIN, "t"), (PLAIN, "u"), (replace(PLAIN, seed=1), "t"))
        for spec in first(100, workload, stream)
    }
    assert len(heads) == 300


def test_each_start_has_texts_of_its_own_where_no_seed_is_given() -> None:
    drawn = replace(PLAIN, prompt=Uniform(20, 60), output=Uniform(1, 99), seed=None)

    def of(start: str, seed: int | None = None) -> list[RequestSpec]:
        return list(islice(requests(replace(drawn, seed=seed), "t", None, start=start), 50))

    one, again, other = of("one"), of("one"), of("other")
    assert one == again  # every process of the load client draws them for itself
    assert not {s.text for s in one} & {s.text for s in other}
    assert len({tuple(words(s)[:HEAD_WORDS]) for s in (*one, *other)}) == 100
    sizes = [(s.prompt_tokens, s.output_tokens) for s in other]
    assert sizes == [(s.prompt_tokens, s.output_tokens) for s in of("one", 0)]
    assert of("one", 0) == of("other", 0) != one


def test_the_text_is_the_same_on_every_machine() -> None:
    """Stored runs name their seed: a change here changes what it means."""
    workload = Workload(Uniform(5, 9), LogNormal(30, 0.5, 1, 99), None, None, None, 0)
    assert [(s.text, s.output_tokens) for s in first(2, workload)] == [
        ("day nation minute tree stage lot", 33),
        ("man nation minute tree box student", 40),
    ]


def drawn(length: Length, amount: int = 20_000) -> list[int]:
    return list(islice(lengths(length, sequence("x")), amount))


def test_uniform_lengths_hold_both_bounds() -> None:
    counts = Counter(drawn(Uniform(3, 6)))
    assert set(counts) == {3, 4, 5, 6}
    assert max(counts.values()) < 1.1 * min(counts.values())


def test_normal_lengths() -> None:
    values = drawn(Normal(500, 100, 1, 2000))
    assert fmean(values) == pytest.approx(500, rel=0.01)
    assert pstdev(values) == pytest.approx(100, rel=0.03)


def test_a_normal_length_cut_by_its_bounds_is_what_is_left_and_no_heap_at_them() -> None:
    """Half of a normal distribution has its mean at deviation x sqrt(2 / pi)."""
    values = drawn(Normal(1000, 100, 1000, 2000))
    assert min(values) == 1000
    assert fmean(values) == pytest.approx(1000 + 79.8, abs=1.5)
    assert Counter(values)[1000] < 200  # of 20,000 about 160 are its share


def test_log_normal_lengths() -> None:
    values = drawn(LogNormal(300, 0.8, 1, 10**7))
    assert median(values) == pytest.approx(300, rel=0.03)
    assert fmean(values) == pytest.approx(300 * exp(0.32), rel=0.03)
    assert mean_tokens(LogNormal(300, 0.8, 1, 10**7)) == pytest.approx(300 * exp(0.32))


def test_empirical_lengths() -> None:
    counts = Counter(drawn(Empirical((7, 9), (3, 1))))
    assert counts[7] / counts[9] == pytest.approx(3, rel=0.05)
    assert set(drawn(Empirical((1, 2, 3)))) == {1, 2, 3}
    assert mean_tokens(Empirical((7, 9), (3, 1))) == 7.5


@given(
    st.integers(1, 1000),
    st.integers(0, 1000),
    st.floats(0.001, 1e7),
    st.floats(0, 1),
    st.integers(0, 99),
)
def test_drawn_lengths_stay_within_their_bounds(
    lowest: int, wide: int, deviation: float, middle: float, seed: int
) -> None:
    highest = lowest + wide
    mean = lowest + middle * wide
    for length in (
        Normal(mean, deviation, lowest, highest),
        LogNormal(mean, min(deviation, 10), lowest, highest),
    ):
        values = list(islice(lengths(length, sequence(seed)), 50))
        assert all(lowest <= value <= highest for value in values)
        assert lowest <= mean_tokens(length) <= highest


def test_one_more_draw_of_a_kind_leaves_the_others_as_they_are() -> None:
    """The prompts' lengths do not change with the distribution of the outputs'."""
    drawn = replace(PLAIN, prompt=Uniform(1, 99))
    other = replace(drawn, output=Uniform(1, 9), shared_prefix=SharedPrefix(5, 3))
    assert [s.prompt_tokens for s in first(50, drawn)] == [
        s.prompt_tokens for s in first(50, other)
    ]


def test_a_shared_prefix() -> None:
    workload = replace(PLAIN, shared_prefix=SharedPrefix(30, 2))
    specs = first(200, workload)
    assert {len(words(spec)) for spec in specs} == {40}
    prefixes = Counter(tuple(words(spec)[:30]) for spec in specs)
    assert len(prefixes) == 2
    assert min(prefixes.values()) > 60
    assert len({tuple(words(spec)[30:34]) for spec in specs}) == 200
    assert not set(prefixes) & {tuple(words(s)[:30]) for s in first(200, workload, "other")}


def test_conversations_come_one_after_the_other() -> None:
    workload = replace(PLAIN, turns=Turns(Uniform(1, 3), 5), shared_prefix=SharedPrefix(30, 1))
    specs = first(100, workload)
    turns: dict[int, list[RequestSpec]] = {}
    for spec in specs:
        turns.setdefault(spec.conversation, []).append(spec)
    assert [s.conversation for s in specs] == sorted(s.conversation for s in specs)
    whole = list(turns.values())[:-1]
    assert {len(conversation) for conversation in whole} == {1, 2, 3}
    for conversation in whole:
        assert [spec.turn for spec in conversation] == list(range(len(conversation)))
        assert [spec.think_ns for spec in conversation] == [0, 5, 5][: len(conversation)]
    assert len({tuple(words(s)[:30]) for s in specs if s.turn == 0}) == 1
    assert len({tuple(words(s)[:4]) for s in specs if s.turn > 0}) == sum(
        spec.turn > 0 for spec in specs
    )


def test_a_files_prompts_come_again_as_they_are() -> None:
    workload, corpus = of_file(
        Entry(text="one"), Entry(messages=(("user", "two"),), output_tokens=3)
    )
    specs = first(4, workload, corpus=corpus)
    assert [(s.text, s.messages, s.output_tokens) for s in specs] == [
        ("one", (), 128),
        ("", (("user", "two"),), 3),
        ("one", (), 128),
        ("", (("user", "two"),), 3),
    ]
    assert [s.conversation for s in specs] == [0, 1, 2, 3]
    assert {s.prompt_tokens for s in specs} == {None}


def test_the_workloads_output_length_goes_before_the_files() -> None:
    workload, corpus = of_file(Entry(text="one", output_tokens=3))
    (spec,) = first(1, replace(workload, output=Fixed(9)), corpus=corpus)
    assert spec.output_tokens == 9


def test_a_shuffled_file_has_each_request_once_a_round() -> None:
    workload, corpus = of_file(*(Entry(text=str(i)) for i in range(50)))
    file = WorkloadFile("f", FileKind.JSONL, shuffle=True)
    texts = [s.text for s in first(100, replace(workload, file=file), corpus=corpus)]
    rounds = texts[:50], texts[50:]
    assert all(sorted(one, key=int) == [str(i) for i in range(50)] for one in rounds)
    assert rounds[0] != rounds[1]
    assert rounds[0] != [str(i) for i in range(50)]


def test_a_file_of_lengths_gets_new_texts_each_round() -> None:
    workload, corpus = of_file(Entry(prompt_tokens=12, output_tokens=5), kind=FileKind.CSV)
    specs = first(3, workload, corpus=corpus)
    assert [len(words(s)) for s in specs] == [12, 12, 12]
    assert len({words(s)[0] for s in specs}) == 3
    prefixed = replace(workload, shared_prefix=SharedPrefix(100, 1))
    specs = first(3, prefixed, corpus=corpus)
    assert [len(words(s)) for s in specs] == [12, 12, 12]
    assert len({tuple(words(s)[:11]) for s in specs}) == 1
    assert len({s.text for s in specs}) == 3


def test_a_trace_ends_with_its_file_and_keeps_its_times() -> None:
    workload, corpus = of_file(
        Entry(prompt_tokens=1, output_tokens=1, at_ns=0),
        Entry(prompt_tokens=1, output_tokens=1, at_ns=7),
        kind=FileKind.AZURE,
    )
    assert [s.at_ns for s in requests(workload, "t", corpus, once=True)] == [0, 7]
    assert [s.at_ns for s in first(3, workload, corpus=corpus)] == [None] * 3


def test_like_hash_ids_are_like_blocks() -> None:
    workload, corpus = of_file(
        Entry(prompt_tokens=1100, output_tokens=1, at_ns=0, hash_ids=(4, 5, 6)),
        Entry(prompt_tokens=1536, output_tokens=1, at_ns=0, hash_ids=(4, 7, 6)),
        Entry(prompt_tokens=600, output_tokens=1, at_ns=0, hash_ids=(4,)),
        Entry(prompt_tokens=10, output_tokens=1, at_ns=0, hash_ids=(2**62, 1)),
        kind=FileKind.MOONCAKE,
    )
    a, b, c, d = (words(s) for s in requests(workload, "t", corpus, once=True))
    assert [len(text) for text in (a, b, c, d)] == [1100, 1536, 600, 10]
    assert a[:512] == b[:512] == c[:512]
    assert a[512:516] != b[512:516]
    assert a[1024:] == b[1024:1100]
    assert len({tuple(text[512:516]) for text in (a, b, c)}) == 3


def test_turns_of_a_files_conversations() -> None:
    workload, corpus = of_file(
        Entry(text="a", later=("b", "c", "d")), Entry(text="e"), kind=FileKind.SHAREGPT
    )
    specs = first(5, replace(workload, turns=Turns(Fixed(3), 9)), corpus=corpus)
    assert [(s.conversation, s.turn, s.text, s.think_ns) for s in specs] == [
        (0, 0, "a", 0),
        (0, 1, "b", 9),
        (0, 2, "c", 9),
        (1, 0, "e", 0),
        (2, 0, "a", 0),
    ]
    assert [s.text for s in first(3, workload, corpus=corpus)] == ["a", "e", "a"]


def test_a_trace_without_times() -> None:
    workload, corpus = of_file(Entry(text="a"))
    with pytest.raises(InputError, match=r"^f: has no times, .* a column `time_s`"):
        requests(workload, "t", corpus, once=True)
    with pytest.raises(ValueError, match="a trace goes with a file"):
        requests(PLAIN, "t", None, once=True)


def test_a_file_without_its_corpus() -> None:
    workload, corpus = of_file(Entry(text="a"))
    with pytest.raises(ValueError, match="a corpus goes with"):
        requests(workload, "t", None)
    with pytest.raises(ValueError, match="a corpus goes with"):
        requests(PLAIN, "t", corpus)


def test_a_files_answers_say_how_long_ours_are_to_be_where_they_are_counted() -> None:
    entry = Entry(text="a", later=("b", "c", "d"), answers=("one two", "", "three words here", ""))
    workload, corpus = of_file(entry, kind=FileKind.SHAREGPT)
    talk = replace(workload, turns=Turns(Fixed(4), 0))
    counting = replace(corpus, count_tokens=lambda text: len(text.split()))

    def asked(of: Workload, file: Corpus) -> list[int | None]:
        return [spec.output_tokens for spec in first(4, of, corpus=file)]

    assert asked(talk, counting) == [2, 128, 3, 128]
    assert asked(workload, counting) == [2, 2, 2, 2]
    assert asked(talk, corpus) == [128] * 4
    assert asked(replace(talk, output=Fixed(9)), counting) == [9] * 4
