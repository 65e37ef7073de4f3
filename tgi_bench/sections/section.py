"""What every section of an experiment file is made of: strict, frozen, without unknown keys."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from tgi_bench.words import shown

T = TypeVar("T")

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._\-]{0,99}$"
LOAD_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._\-]{0,39}$"
WORD_PATTERN = r"^[^\s\-][^\s]*$"
WORD_CHARACTERS = 500
"""Beside the pattern: within it, compiling took 5 ms for each key that is a word."""
MODEL_PATTERN = r"^[^\s\-]([^\r\n\t]{0,498}[^\s])?$"
SIZE_PATTERN = r"^[1-9][0-9]*[bkmg]?$"


def one_or_list(value: object) -> object:
    """A lone value stands for a list of one."""
    return value if isinstance(value, list) else [value]


def refused_value(message: str, value: object) -> PydanticCustomError:
    """A refusal in our words, with what was given at its end."""
    return PydanticCustomError("refused", "{said}", {"said": f"{message}, not `{shown(value)}`"})


def no_duplicates(values: list[T]) -> list[T]:
    """The list, refused where it holds a value twice; 1 and true are two values."""
    seen: set[tuple[str, str]] = set()
    for value in values:
        mark = (type(value).__name__, repr(value))
        if mark in seen:
            said = f"holds `{shown(value)}` twice"
            raise PydanticCustomError("refused", "{said}", {"said": said})
        seen.add(mark)
    return values


Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
Sizes = Annotated[
    list[Size],
    BeforeValidator(one_or_list, json_schema_input_type=Size | list[Size]),
    Field(min_length=1),
    AfterValidator(no_duplicates),
]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Word = Annotated[str, Field(pattern=WORD_PATTERN, max_length=WORD_CHARACTERS)]


class Section(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        # Each class by itself would be built again within its parent; what a start never reads
        # (texts of attributes, other sections' validators) is made where it is needed.
        defer_build=True,
    )


class SamplingKeys(Section):
    """How the next token is chosen; null is "not given"."""

    do_sample: bool = False
    """Sample instead of taking the likeliest token."""
    temperature: Positive | None = None
    """Divides the logits; more than 0."""
    top_k: Size | None = None
    """Keeps the k likeliest tokens."""
    top_p: Share | None = None
    """Keeps the likeliest tokens up to this probability; more than 0, 1 is off."""
    typical_p: Share | None = None
    """Keeps the most typical tokens up to this probability; more than 0, 1 is off."""
    repetition_penalty: Positive | None = None
    """Divides the scores of tokens seen before; 1 is off."""
    watermark: bool = False
    """Watermark the text."""
