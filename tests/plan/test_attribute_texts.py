"""The texts below attributes, as descriptions of a schema and words of a refusal."""

from __future__ import annotations

import inspect
from typing import Annotated

import pytest
from pydantic import Field

from tgi_bench.sections.refusal import texts_of, with_texts
from tgi_bench.sections.section import Section


class InnerKeys(Section):
    """Below the other."""

    begin: Annotated[int, Field(alias="from")] = 0
    """Where it begins.

    In two paragraphs.
    """
    plain: int = 0


class OuterKeys(Section):
    """With one below it."""

    inner: InnerKeys
    """What is within."""
    last: str = ""
    """No text follows the next attribute."""


def test_texts_by_the_keys_of_the_file() -> None:
    assert texts_of(InnerKeys) == {"from": "Where it begins.\n\nIn two paragraphs."}
    assert texts_of(OuterKeys) == {
        "inner": "What is within.",
        "last": "No text follows the next attribute.",
    }


def test_every_level_of_a_schema_is_described() -> None:
    plain = OuterKeys.model_json_schema()
    said = with_texts(plain)
    assert "description" not in str(plain["properties"])
    properties = said["properties"]
    assert isinstance(properties, dict)
    assert properties["inner"] == {"$ref": "#/$defs/InnerKeys", "description": "What is within."}
    inner = said["$defs"]
    assert isinstance(inner, dict)
    assert isinstance(inner["InnerKeys"], dict)
    keys = inner["InnerKeys"]["properties"]
    assert isinstance(keys, dict)
    assert isinstance(keys["from"], dict)
    assert keys["from"]["description"] == "Where it begins.\n\nIn two paragraphs."
    assert list(keys["from"]) == sorted(keys["from"])
    assert keys["plain"] == {"default": 0, "title": "Plain", "type": "integer"}


def test_without_sources_there_are_no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", none)
    assert texts_of(OuterKeys) == {}
