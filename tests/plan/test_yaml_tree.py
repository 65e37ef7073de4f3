"""YAML to values: what is understood, what is refused, and at which line."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.sections.yaml_tree import YamlError, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None),
        ("", None),
        ("null", None),
        ("true", True),
        ("on", "on"),
        ("no", "no"),
        ("10", 10),
        ("-3", -3),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2023-07-27", "2023-07-27"),
        ("0.9.4", "0.9.4"),
        ("1e3", 1000.0),
        (".5", 0.5),
        (".inf", float("inf")),
        ("'10'", "10"),
        ('"true"', "true"),
        ("!!str 10", "10"),
        ("9" * 40, 10**40 - 1),
        ("9" * 41 + ".0", 1e41),
    ],
)
def test_scalars(text: str, value: object) -> None:
    tree = parse_yaml(f"key: {text}\n").tree
    assert tree == {"key": value}
    assert isinstance(tree, dict)
    assert type(tree["key"]) is type(value)


def test_lines() -> None:
    document = parse_yaml("# head\na: 1\nb:\n  - 2\n  - {c: null,\n     d: on}\n")
    assert document.tree == {"a": 1, "b": [2, {"c": None, "d": "on"}]}
    assert document.lines == {
        "": 2,
        "a": 2,
        "b": 3,
        "b.0": 4,
        "b.1": 5,
        "b.1.c": 5,
        "b.1.d": 6,
    }


def test_an_alias_is_its_anchor() -> None:
    assert parse_yaml("a: &x [1, 2]\nb: *x\n").tree == {"a": [1, 2], "b": [1, 2]}


def _bomb() -> str:
    names = "abcdefghi"
    rows = ["a: &a [" + ",".join("x" * 9) + "]"]
    rows += [f"{new}: &{new} [" + ",".join([f"*{old}"] * 9) + "]" for old, new in pairwise(names)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is empty"),
        ("# nothing\n", 1, "is empty"),
        ("a: 1\n---\nb: 2\n", 2, "a second document starts here"),
        ("a: [1\n", 2, "is no valid YAML, column 1: "),
        ("a: b: c\n", 1, "is no valid YAML, column 5: "),
        ("a: \x00\n", 1, "is no valid YAML"),
        ("a: \udc80\n", 1, "is not UTF-8 text"),
        ("a: 1\nb: 2\na: 3\n", 3, "the key `a` stands twice, first on line 1"),
        ("b:\n  a: 1\n  a: 3\n", 3, "the key `a` stands twice, first on line 2"),
        ("1: 2\n", 1, "a key must be a string, not `1`"),
        ("? [a]\n: 1\n", 1, "a key must be a string, not a list"),
        ("a: !!python/object:os.system x\n", 1, "tag `tag:yaml.org,2002:python/object:os.system`"),
        ("a: !mine {b: 1}\n", 1, "the tag `!mine` is not allowed"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "merge keys"),
        ("a: &x [*x]\n", 1, "the alias `*x` holds itself"),
        ("a: *x\n", 1, "the alias `*x` has no anchor before it"),
        ("[" * 51, 1, "is nested deeper than 50 levels"),
        ("[" * 500_000, 1, "is nested deeper than 50 levels"),
        ("a: " + "x" * 2**20, 1, "bytes long; at most 1048576 are read"),
        ("a: [" + "1," * 100_000 + "]", 1, "holds more than 100000 values"),
        (_bomb(), 6, "holds more than 100000 values, aliases expanded"),
    ],
)
def test_what_is_refused(text: str, line: int, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    assert message in str(caught.value)
    assert caught.value.line == line


@given(st.text(alphabet="ab:-[]{}&*!,'\" \n#?|>%@0", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        document = parse_yaml(text)
    except YamlError:
        return
    assert all(line >= 1 for line in document.lines.values())
