"""Every rule of a request, with TGI's sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.server.router.serving import LIMITS
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import Version
from tgi_bench.server.router.body import FailureKind, Fields, RequestError
from tgi_bench.server.router.validation import Validator, read_generate
from tgi_bench.torch_engine.tokenizers import WordTokenizer

HEAD = Behaviour((3, 3, 7))
VALIDATOR = Validator(LIMITS, HEAD, WordTokenizer(1000))


@pytest.mark.parametrize(
    ("inputs", "parameters", "reason"),
    [
        ("", {}, "`inputs` cannot be empty"),
        ("a", {"best_of": 2}, "you must use sampling when `best_of` is > 1"),
        (
            "a",
            {"best_of": 2, "do_sample": True, "seed": 0},
            "`seed` must not be set when `best_of` > 1",
        ),
        ("a", {"temperature": 0}, "`temperature` must be strictly positive"),
        ("a", {"temperature": -1.0}, "`temperature` must be strictly positive"),
        ("a", {"repetition_penalty": 0.0}, "`repetition_penalty` must be strictly positive"),
        ("a", {"frequency_penalty": 2.1}, "`frequency_penalty` must be >= -2.0 and <= 2.0"),
        ("a", {"top_p": 1.0}, "`top_p` must be > 0.0 and < 1.0"),
        ("a", {"top_p": 0.0}, "`top_p` must be > 0.0 and < 1.0"),
        ("a", {"typical_p": 1.0}, "`typical_p` must be > 0.0 and < 1.0"),
        ("a", {"top_k": 0}, "`top_k` must be strictly positive"),
        ("a", {"max_new_tokens": 0}, "`max_new_tokens` must be strictly positive"),
        ("a", {"stop": list("abcde")}, "`stop` supports up to 4 stop sequences. Given: 5"),
        ("a", {"top_n_tokens": 6}, "`top_n_tokens` must be >= 0 and <= 5. Given: 6"),
        (
            "a",
            {"truncate": 0},
            "`truncate` must be strictly positive and less than 20. Given: 0",
        ),
        (
            "a",
            {"truncate": 21},
            "`truncate` must be strictly positive and less than 20. Given: 21",
        ),
        (
            "a b c",
            {"max_new_tokens": 38},
            "`inputs` tokens + `max_new_tokens` must be <= 40. "
            "Given: 3 `inputs` tokens and 38 `max_new_tokens`",
        ),
        (
            " a" * 21,
            {"max_new_tokens": 1},
            "`inputs` must have less than 20 tokens. Given: 21",
        ),
        (
            " a" * 41,
            {},
            "`inputs` tokens + `max_new_tokens` must be <= 40. "
            "Given: 41 `inputs` tokens and 0 `max_new_tokens`",
        ),
        ("a", {"grammar": {"type": "regex", "value": "x"}}, "grammar is not supported"),
    ],
)
def test_a_broken_rule_says_which(inputs: str, parameters: dict[str, object], reason: str) -> None:
    request = read_generate(Fields({"inputs": inputs, "parameters": parameters}), HEAD)
    with pytest.raises(RequestError) as caught:
        VALIDATOR.validate(request)
    assert str(caught.value) == f"Input validation error: {reason}"
    assert caught.value.kind is FailureKind.VALIDATION
    assert caught.value.kind.value.status == 422


@pytest.mark.parametrize(
    ("version", "parameters", "expected"),
    [
        ((0, 9, 4), {}, 20),
        ((1, 1, 0), {}, 38),
        ((1, 3, 3), {}, 38),
        ((3, 3, 7), {}, 38),
        ((2, 0, 4), {"max_new_tokens": None}, 38),
        ((2, 0, 4), {"max_new_tokens": 5}, 5),
    ],
)
def test_new_tokens_by_default(
    version: Version, parameters: dict[str, object], expected: int
) -> None:
    behaviour = Behaviour(version)
    validator = Validator(LIMITS, behaviour, WordTokenizer(1000))
    request = read_generate(Fields({"inputs": "a b", "parameters": parameters}), behaviour)
    assert validator.validate(request).stopping.max_new_tokens == expected


def test_a_hundred_new_tokens_by_default_in_between() -> None:
    request = read_generate(Fields({"inputs": "a"}), Behaviour((2, 0, 4)))
    assert request.parameters.max_new_tokens == 100


def test_sampling_depends_on_whether_parameters_are_there() -> None:
    assert read_generate(Fields({"inputs": "a"}), HEAD).parameters.do_sample is True
    body = Fields({"inputs": "a", "parameters": {}})
    assert read_generate(body, HEAD).parameters.do_sample is False


def test_neutral_values_fill_what_is_not_given() -> None:
    valid = VALIDATOR.validate(
        read_generate(Fields({"inputs": "a b c", "parameters": {"truncate": 2, "seed": 0}}), HEAD)
    )
    assert (valid.choice.temperature, valid.choice.top_p, valid.choice.top_k) == (1.0, 1.0, 0)
    assert valid.choice.seed == 0
    assert (valid.input_tokens, valid.truncate) == (2, 2)
    assert not valid.stopping.ignore_eos_token


@pytest.mark.parametrize("best_of", [0, 3])
def test_best_of_has_a_limit(best_of: int) -> None:
    assert VALIDATOR.best_of(None) == 1
    assert VALIDATOR.best_of(2) == 2
    with pytest.raises(RequestError, match=f"`best_of` must be > 0 and <= 2. Given: {best_of}"):
        VALIDATOR.best_of(best_of)


def test_best_of_can_be_disabled() -> None:
    validator = Validator(replace(LIMITS, max_best_of=1), HEAD, WordTokenizer(1000))
    with pytest.raises(RequestError, match="not allowed for this endpoint"):
        validator.best_of(2)


@pytest.mark.parametrize(
    ("enabled", "version", "told"),
    [(True, (3, 0, 0), True), (False, (3, 0, 0), False), (False, (2, 4, 1), True)],
)
def test_prompt_log_probabilities_need_a_flag_from_3_0_0(
    enabled: bool, version: Version, told: bool
) -> None:
    limits = replace(LIMITS, enable_prefill_logprobs=enabled)
    validator = Validator(limits, Behaviour(version), WordTokenizer(1000))
    parameters = {"decoder_input_details": True, "max_new_tokens": 1}
    request = read_generate(Fields({"inputs": "a", "parameters": parameters}), HEAD)
    assert validator.validate(request).prefill_logprobs is told
