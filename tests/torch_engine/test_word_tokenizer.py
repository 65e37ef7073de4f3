from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.torch_engine.tokenizers import TokenSpan, WordTokenizer

TOKENIZER = WordTokenizer(250_880)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("one", ["one"]),
        ("one two", ["one", " two"]),
        (" one", [" one"]),
        ("one ", ["one", " "]),
        ("a, b.", ["a", ",", " b", "."]),
        ("a\n\nb", ["a", "\n\nb"]),
        ("snake_case x", ["snake_case", " x"]),
        ("naïve 東京", ["naïve", " 東京"]),
        ("   ", ["   "]),
    ],
)
def test_tokens_of_a_text(text: str, tokens: list[str]) -> None:
    assert [span.text for span in TOKENIZER.encode(text)] == tokens
    assert TOKENIZER.count(text) == len(tokens)


def test_spans_are_in_characters() -> None:
    first, second = TOKENIZER.encode("é ab")
    assert (first.start, first.stop) == (0, 1)
    assert (second.start, second.stop) == (1, 4)
    assert isinstance(first, TokenSpan)


@given(st.text())
def test_tokens_cover_the_text_and_count_agrees(text: str) -> None:
    spans = TOKENIZER.encode(text)
    assert "".join(span.text for span in spans) == text
    assert TOKENIZER.count(text) == len(spans)
    assert all(0 <= span.id < TOKENIZER.vocab for span in spans)
    assert all(text[span.start : span.stop] == span.text for span in spans)


@given(st.lists(st.integers(0, TOKENIZER.vocab - 1), min_size=1, max_size=20))
def test_generated_words_encode_to_their_ids(ids: list[int]) -> None:
    text = "".join(TOKENIZER.word(token_id) for token_id in ids)
    assert [span.id for span in TOKENIZER.encode(text)] == ids


@pytest.mark.parametrize(("token_id", "word"), [(0, " ba"), (1, " be"), (79, " zu"), (80, " beba")])
def test_word(token_id: int, word: str) -> None:
    assert TOKENIZER.word(token_id) == word
