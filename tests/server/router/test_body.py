"""The JSON door."""

from __future__ import annotations

import pytest

from tgi_bench.server.router.body import BodyError, Fields, parse

JSON = "application/json"


@pytest.mark.parametrize(
    ("payload", "content_type", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"{", JSON, 400),
        (b"", JSON, 400),
        (b"\xff", JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b'{"a": NaN}', JSON, 400),
        (b'{"a": "\\uD800"}', JSON, 400),
        (b"[]", JSON, 422),
        (b"1", JSON, 422),
    ],
)
def test_what_is_no_object_is_refused(payload: bytes, content_type: str, status: int) -> None:
    with pytest.raises(BodyError) as caught:
        parse(payload, content_type)
    assert caught.value.status == status


def test_values_are_read_by_type() -> None:
    body = parse(b'{"a": 1, "b": 1.5, "c": "x", "d": true, "e": ["p", "q"], "f": null}', JSON)
    assert body.count("a") == 1
    assert body.number("a") == 1.0
    assert body.number("b") == 1.5
    assert body.text("c") == "x"
    assert body.flag("d") is True
    assert body.texts("e") == ("p", "q")
    assert body.texts("c") == ("x",)
    assert body.count("f") is None
    assert body.has("f")
    assert not body.has("g")


@pytest.mark.parametrize("value", [-1, 2**32, 1.0, "1", True, [1]])
def test_a_count_is_an_unsigned_integer_of_32_bits(value: object) -> None:
    with pytest.raises(BodyError, match="a: invalid type"):
        Fields({"a": value}).count("a")


def test_a_wrong_value_names_its_path() -> None:
    body = Fields({"parameters": {"seed": "x"}, "messages": [{}, 1]})
    inner = body.mapping("parameters")
    assert inner is not None
    with pytest.raises(BodyError, match="parameters: seed: invalid type"):
        inner.seed("seed")
    with pytest.raises(BodyError, match=r"messages\[1\]: invalid type"):
        body.mappings("messages")
    with pytest.raises(BodyError, match="missing field `inputs`"):
        body.required_text("inputs")


def test_a_surrogate_pair_is_text() -> None:
    assert parse(b'{"a": "\\ud83d\\ude00"}', JSON).text("a") == "\N{GRINNING FACE}"


@pytest.mark.parametrize("value", ["1", True, 10**400, 1e39, float("inf")])
def test_a_number_fits_32_bits(value: object) -> None:
    with pytest.raises(BodyError, match="a: invalid type"):
        Fields({"a": value}).number("a")
