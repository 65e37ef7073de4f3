"""A model's own tokenizer: special tokens, cut prompts, text that grows token by token."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch_engine.needs_torch import skip_without_torch

skip_without_torch()

from tests.torch_engine.text_files import BEGIN, END, VOCAB, rewrite_config, write_model  # noqa: E402
from tests.torch_engine.tiny import spec, write_config  # noqa: E402
from tgi_bench.errors import InputError  # noqa: E402
from tgi_bench.torch_engine.architecture import model_config  # noqa: E402
from tgi_bench.torch_engine.loading import load  # noqa: E402
from tgi_bench.torch_engine.tokenizers import (  # noqa: E402
    IncrementalText,
    TextTokenizer,
    WordTokenizer,
    tokenizer_of,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> TextTokenizer:
    return tokenizer_of(str(folder), model_config(spec(folder)), random=True)


def test_special_tokens_are_counted(tokenizer: TextTokenizer) -> None:
    spans = tokenizer.encode("hello")
    assert spans[0].id == BEGIN
    assert [(span.text, span.start, span.stop) for span in spans] == [
        ("<s>", 0, 0),
        ("hell", 0, 4),
        ("o", 4, 5),
    ]
    assert tokenizer.count("hello") == 3
    assert tokenizer.ids("hello") == tuple(span.id for span in spans)
    assert tokenizer.ids("hello", special=False) == tokenizer.ids("hello")[1:]
    assert tokenizer.special_ids == {BEGIN, END}
    assert tokenizer.end_ids == {END}
    assert tokenizer.vocab == VOCAB


def test_what_is_cut_is_the_texts_head(tokenizer: TextTokenizer) -> None:
    whole = tokenizer.ids("hello world")
    assert tokenizer.ids("hello world", 3) == (BEGIN, *whole[-2:])
    assert tokenizer.ids("hello world", 100) == whole
    assert tokenizer.ids("hello world") == whole


def test_text_grows_by_whole_characters(tokenizer: TextTokenizer) -> None:
    answer = " wo€ 😀!"
    prompt, new = tokenizer.ids("hell"), tokenizer.ids(answer, special=False)
    growing = IncrementalText(tokenizer, prompt)
    added = [growing.added(token) for token in new]
    assert "".join(added) == answer
    assert "€" in added
    assert "😀" in added
    assert added.count("") == 2 + 3  # the bytes before the last of each
    assert IncrementalText.answer(tokenizer, prompt, new) == answer


def test_special_tokens_stand_in_the_stream_and_not_in_the_answer(
    tokenizer: TextTokenizer,
) -> None:
    prompt, new = tokenizer.ids("he"), (*tokenizer.ids("ll", special=False), END)
    growing = IncrementalText(tokenizer, prompt)
    assert [growing.added(token) for token in new] == ["ll", "</s>"]
    assert IncrementalText.answer(tokenizer, prompt, new) == "ll"


def test_the_model_has_it(folder: Path) -> None:
    model = load(spec(folder))
    assert model.tokenizer.count("hello") == 3
    assert model.end_ids == {END, 0}  # 0: the configuration's own


def test_random_weights_without_one_have_words(tmp_path: Path) -> None:
    folder = write_config(tmp_path / "bare", "llama")
    found = tokenizer_of(str(folder), model_config(spec(folder)), random=True)
    assert isinstance(found, WordTokenizer)
    assert found.vocab == 211
    assert load(spec(folder)).end_ids == frozenset()


def test_real_weights_need_one(tmp_path: Path) -> None:
    folder = write_config(tmp_path / "bare", "llama")
    with pytest.raises(InputError, match=r"no tokenizer of .* can be read"):
        tokenizer_of(str(folder), model_config(spec(folder)), random=False)


def test_one_of_another_model(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    rewrite_config(folder, vocab_size=100)
    with pytest.raises(InputError, match="ids up to 262, but the model's vocab_size is 100"):
        tokenizer_of(str(folder), model_config(spec(folder)), random=True)
