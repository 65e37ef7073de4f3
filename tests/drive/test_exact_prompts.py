"""Prompts of an exact number of tokens, by the server's counts and by a tokenizer file."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tests.dialects.asks import GREEDY, able
from tests.dialects.fake_engines import Engine, serve
from tgi_bench.ask import Asking
from tgi_bench.dialects import speaking
from tgi_bench.dialects.abilities import find_out
from tgi_bench.drive.exact_prompts import Fitting, PromptCounter, fit, fitting, learn
from tgi_bench.drive.load_files import TokenizerFile
from tgi_bench.errors import InputError
from tgi_bench.plan.corpus import Corpus, Entry
from tgi_bench.plan.prompts import WORDS
from tgi_bench.plan.workload import RequestSpec, requests
from tgi_bench.trials.load import (
    ClosedLoop,
    Extent,
    FileKind,
    Fixed,
    LoadTrial,
    SharedPrefix,
    Turns,
    Workload,
    WorkloadFile,
)

TRIAL = LoadTrial(
    trial_id="d/load-c1",
    deployment_id="d",
    spoken="auto",
    stream=True,
    workload=Workload(Fixed(32), Fixed(4), None, None, None, 0),
    arrivals=ClosedLoop(1),
    extent=Extent(None, 8, 0, 0, 0, 0, None),
    slos=(),
    find=None,
    sampling=GREEDY,
    request_timeout_ns=10**10,
    max_in_flight=None,
    workers=None,
    tokenizer=None,
)
TURNS = replace(TRIAL, workload=replace(TRIAL.workload, turns=Turns(Fixed(2), 0)))
SHARED = replace(TRIAL, workload=replace(TRIAL.workload, shared_prefix=SharedPrefix(8, 2)))


def texts(words: int, count: int = 20) -> list[str]:
    draw = Random(7)
    return [" ".join(draw.choices(WORDS, k=words)) for _ in range(count)]


def counts_by(costs: Mapping[str, int], asked: list[int], added: int = 1) -> PromptCounter:
    def counts(prompts: Sequence[str]) -> list[int]:
        asked.append(len(prompts))
        return [added + sum(costs.get(w, 1) for w in p.split()) for p in prompts]

    return PromptCounter(counts, "a table")


LONG = {word: 2 for word in WORDS if len(word) >= 8} | {"map": 3}


def test_words_are_learned_in_few_questions() -> None:
    asked: list[int] = []
    words = learn(counts_by(LONG, asked).counts)
    assert words.mid == {word: LONG.get(word, 1) for word in WORDS}
    assert words.head == {word: 1 + LONG.get(word, 1) for word in WORDS}
    assert asked[:2] == [len(WORDS), 1]
    assert sum(asked) < 2 * len(WORDS)


@pytest.mark.parametrize("tokens", [2, 3, 8, 33, 512])
def test_fitted_to_the_token(tokens: int) -> None:
    source = counts_by(LONG, [])
    words = learn(source.counts)
    for text in texts(tokens):
        fitted = words.fitted(text, tokens)
        least = words.head[text.split()[0]]
        assert source.counts([fitted]) == [max(tokens, least)] == [words.count(fitted)]
        assert fitted.split()[0] == text.split()[0]


def test_a_text_of_other_words_stays() -> None:
    words = learn(counts_by(LONG, []).counts)
    assert words.fitted("no such words", 2) == "no such words"
    assert words.fitted("", 2) == ""
    assert words.count("no such words") is None
    assert words.count("") is None


def spec(text: str, tokens: int | None, turn: int = 0, parts: tuple[int, ...] = ()) -> RequestSpec:
    return RequestSpec(0, turn, text, (), tokens, 1, 0, None, parts)


def seen_by(source: PromptCounter, beside: int, wrong: int = 0) -> object:
    numbers = iter((0, wrong))
    return lambda text: source.counts([text])[0] + beside + next(numbers)


@pytest.mark.parametrize(
    ("spoken", "beside", "wrong", "how"),
    [
        ("completions", 0, 0, "words counted by a table; checked with the server"),
        (
            "chat",
            9,
            0,
            "words counted by a table, 9 more added by the server, by its chat template; checked "
            "with the server",
        ),
        (
            "completions",
            1,
            0,
            "words counted by a table, 1 more added by the server, as a BOS; checked with the "
            "server",
        ),
        (
            "chat",
            9,
            1,
            "not exact: words counted by a table, 9 more added by the server, by its chat "
            "template; the server saw 107 tokens where 106 were expected",
        ),
        (
            "completions",
            -1,
            0,
            "not exact: words counted by a table; the server saw 1 fewer than they have",
        ),
    ],
)
def test_what_the_server_adds(spoken: str, beside: int, wrong: int, how: str) -> None:
    source = counts_by(LONG, [])
    made = fit(able(spoken), source, seen_by(source, beside, wrong))  # type: ignore[arg-type]
    assert (made.how, made.beside) == (how, beside)
    (text,) = texts(40, 1)
    assert source.counts([made.fitted(spec(text, 40))]) == [40 - beside]
    assert made.fitted(spec(text, None)) == text


@pytest.mark.parametrize("spaced", [False, True])
def test_a_template_that_ends_with_a_space(spaced: bool) -> None:
    """Alone some words have one more token than after a space, as after "user: "."""

    def tokens(text: str, spaced: bool) -> int:
        split = 0 if spaced else len(text.split()[0]) // 8
        return split + sum(LONG.get(word, 1) for word in text.split())

    source = PromptCounter(lambda prompts: [1 + tokens(p, False) for p in prompts], "a table")
    made = fit(able("chat"), source, lambda text: 10 + tokens(text, spaced))
    assert made.how == (
        "words counted by a table, 9 more added by the server, by its chat template; checked with "
        "the server"
    )
    for text in texts(40):
        assert 10 + tokens(made.fitted(spec(text, 40)), spaced) == 40
        assert tokens(made.fitted(spec(text, 30, turn=1)), spaced) == 30


@pytest.mark.parametrize(
    ("spoken", "how"),
    [
        ("completions", "words counted by a table; not checked, for the server does not say"),
        ("chat", "not exact: words counted by a table, but the server does not say what its"),
    ],
)
def test_a_server_that_does_not_say(spoken: str, how: str) -> None:
    assert fit(able(spoken), counts_by({}, []), lambda text: None).how.startswith(how)


def test_nobody_counts() -> None:
    made = fit(able("chat"), None, lambda text: 1)
    assert made.how.startswith("not exact: a word for each token")
    assert made.fitted(spec("a b", 1)) == "a b"


def test_a_tokenizer_that_joins_words() -> None:
    pairs = PromptCounter(lambda prompts: [(len(p.split()) + 1) // 2 for p in prompts], "pairs")
    made = fit(able("completions"), pairs, lambda text: 1)
    assert made == Fitting("not exact: a word for each token, for pairs does not count words")


def test_a_tokenizer_whose_texts_are_not_their_words() -> None:
    def counts(prompts: Sequence[str]) -> list[int]:
        return [len(p.split()) + (len(p.split()) == 97) for p in prompts]

    made = fit(able("completions"), PromptCounter(counts, "x"), lambda text: 1)
    assert made.how == "not exact: words counted by x, but a text has other tokens than its words"


def fitted_with(engine: Engine, spoken: str = "completions", trial: LoadTrial = TRIAL) -> Fitting:
    """With a server that was asked what it can do."""
    with serve(engine) as url:
        found = find_out(url, "", speaking(spoken), None, Asking()).abilities
        return fitting(url, found, Asking(), trial)


COUNTED = "words counted by the server's /tokenize"
CUT_ALONE = Engine(owner="x", cuts=True, counts=False)


@pytest.mark.parametrize(
    ("engine", "spoken", "trial", "how"),
    [
        (Engine(), "completions", TRIAL, f"{COUNTED}; checked"),
        (Engine(owner="sglang"), "completions", TRIAL, f"{COUNTED};"),
        (Engine(), "chat", TRIAL, f"{COUNTED}, 5 more added"),
        (Engine(owner="llamacpp"), "chat", TRIAL, f"{COUNTED}, 5"),
        (Engine(owner="x", counts=False), "chat", TRIAL, "not exact: a word for each token"),
        (Engine(cuts=True), "chat", TRIAL, "cut by the server to the tokens asked"),
        # What is cut is the head, and of later turns nothing is.
        (Engine(cuts=True), "completions", SHARED, f"{COUNTED}; checked with the server"),
        (Engine(cuts=True), "completions", TURNS, COUNTED),
        (
            CUT_ALONE,
            "completions",
            SHARED,
            "not exact: cut by the server to the tokens asked, which",
        ),
        (CUT_ALONE, "completions", TURNS, "not exact: first prompts cut by the server"),
    ],
)
def test_with_a_server(engine: Engine, spoken: str, trial: LoadTrial, how: str) -> None:
    made = fitted_with(engine, spoken, trial)
    assert made.how.startswith(how)
    assert made.words_by == ("server" if made.words is not None else "")
    assert (COUNTED in how) is (made.words is not None)
    assert made.count is None
    if made.words is not None:
        for text in texts(32):
            added = engine.template if spoken == "chat" else 0
            assert engine.tokens(made.fitted(spec(text, 32))) + added == 32


def _shared(found: Sequence[str]) -> list[str]:
    """The words that all begin with."""
    columns = zip(*(text.split() for text in found), strict=False)
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]


@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(0, 2),
    st.integers(0, 3),
    st.integers(0, 10**6),
)
def test_shared_heads_have_their_tokens(
    shared: int, own: int, added: int, beside: int, seed: int
) -> None:
    """In tokens, whatever the words cost: of requests of one group, and no more of any two."""
    costs = {word: 1 + (len(word) * seed) % 7 // 3 for word in WORDS} | {"time": 1, "year": 1}
    source = counts_by(costs, [], added)
    made = Fitting("", learn(source.counts), beside)
    prompt = shared + own
    asked = Workload(Fixed(prompt), Fixed(1), None, SharedPrefix(shared, 1), None, seed)
    found = [made.fitted(one) for one in islice(requests(asked, "s", None), 3)]
    least = max(costs.values()) + added + beside  # of a first word
    if shared < least or own < least:
        return
    for text in found:
        assert source.counts([text]) == [prompt - beside]
    alike = _shared(found)
    assert source.counts([" ".join(alike)]) == [shared - beside]


@pytest.mark.parametrize("added", [0, 1])
def test_each_turn_has_its_own_tokens(added: int) -> None:
    source = counts_by(LONG, [], added)
    made = Fitting("", learn(source.counts), 9)
    for text in texts(40):
        first, later = made.fitted(spec(text, 40)), made.fitted(spec(text, 40, turn=1))
        assert source.counts([first]) == [40 - 9]  # the server adds the others
        assert source.counts([later]) == [40 + added]  # nothing is added in the middle


def test_blocks_of_a_trace_have_their_tokens() -> None:
    source = counts_by(LONG, [])
    made = Fitting("", learn(source.counts))
    entry = Entry(prompt_tokens=1100, output_tokens=1, hash_ids=(7, 8, 9))
    other = replace(entry, hash_ids=(7, 8, 5))
    corpus = Corpus((entry, other), 0, "f")
    asked = Workload(None, None, WorkloadFile("f", FileKind.MOONCAKE, False), None, None, 0)
    one, two = (made.fitted(r) for r in islice(requests(asked, "s", corpus), 2))
    assert source.counts([one, two]) == [1100, 1100]
    alike = _shared([one, two])
    assert source.counts([" ".join(alike)]) == [1024]


@pytest.mark.parametrize("kind", [FileKind.JSONL, FileKind.SHAREGPT])
def test_texts_of_a_file_stay(kind: FileKind) -> None:
    workload = replace(TRIAL.workload, prompt=None, file=WorkloadFile("f", kind, False))
    made = fitting("http://x", able("chat"), Asking(), replace(TRIAL, workload=workload))
    assert made == Fitting("texts of the file, as they are")


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    """Words whole or in letters, after <s>; it says that texts are cut to 4 tokens."""
    vocabulary = {"<s>": 0, "[UNK]": 1} | {w: 2 + at for at, w in enumerate(WORDS)}
    for letter in "abcdefghijklmnopqrstuvwxyz":
        vocabulary.setdefault(letter, len(vocabulary))
        vocabulary.setdefault(f"##{letter}", len(vocabulary))
    del vocabulary["time"]
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_a_tokenizer_file(tokenizer_file: Path) -> None:
    for path in (tokenizer_file, tokenizer_file.parent):
        file = TokenizerFile(str(path))
        assert file.prompt_counts(["way", "way time way", "a b c d e f"]) == [2, 7, 7]
        assert file.count("way time way") == 6
    words = learn(file.prompt_counts)
    assert (words.head["time"], words.mid["time"], words.mid["way"]) == (5, 4, 1)


def test_a_load_with_a_tokenizer_file(tokenizer_file: Path) -> None:
    trial = replace(TRIAL, tokenizer=str(tokenizer_file))
    made = fitted_with(Engine(owner="x", counts=False), trial=trial)
    assert made.how.startswith("not exact: words counted by the tokenizer of ")
    assert made.count is not None
    assert made.count("way day") == 2
    assert made.words_by == "tokenizer"


def test_no_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no file"):
        TokenizerFile(str(tmp_path / "no.json"))
    with pytest.raises(InputError, match=r"there is no file .*tokenizer\.json"):
        TokenizerFile(str(tmp_path))
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="is no tokenizer"):
        TokenizerFile(str(path))

    before = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == "tokenizers":
            raise ImportError(name)
        return before(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'tgi-bench\[tokenizer\]'"):
        TokenizerFile(str(path))
