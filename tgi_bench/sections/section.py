"""What every section of an experiment file is made of: strict, frozen, without unknown keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from tgi_bench.words import shown

Many = TypeVar("Many", bound=Sequence[object])

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


def refused(message: str) -> PydanticCustomError:
    """What pydantic takes as a refusal in our words."""
    return PydanticCustomError("refused", "{said}", {"said": message})


def texts(value: object, what: str) -> list[str]:
    """A list of strings, refused where it is none. what: should have been given, in words."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise refused(f"must be {what}, not `{shown(value)}`")
    return value


def refused_value(message: str, value: object) -> PydanticCustomError:
    """The same, with what was given at its end."""
    return refused(f"{message}, not `{shown(value)}`")


def no_duplicates(values: Many) -> Many:
    """The values, refused where one comes twice; 1 and true are two values."""
    seen: set[tuple[str, str]] = set()
    for value in values:
        mark = (type(value).__name__, repr(value))
        if mark in seen:
            raise refused(f"holds `{shown(value)}` twice")
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
Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600, allow_inf_nan=False)]
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


class Value:
    """A frozen dataclass that is a mapping of the file, and what the plan and run.db hold of it.

    Made by a program it is not checked again: only what is read is.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Strict in its fields; itself it is read from a mapping, not taken as an instance only."""
        return cast(CoreSchema, {**handler(source), "strict": False})


@dataclass(frozen=True, slots=True)
class FromYaml:
    """Beside a field's type: the file says it in another form than the value's own.

    form: the type of what is written, which the JSON Schema shows. made: the value of it. A run
    file holds the value's own form, and no other is read from it.
    """

    form: Any
    made: Callable[[Any], object] | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        own, written = handler(source), handler.generate_schema(self.form)
        if self.made is not None:
            written = core_schema.no_info_after_validator_function(self.made, written)
        kept = core_schema.wrap_serializer_function_ser_schema(
            lambda value, keep: keep(value), schema=own
        )
        return core_schema.json_or_python_schema(own, written, serialization=kept)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Any:
        while schema["type"] != "json-or-python":  # other marks of the field stand around it
            schema = schema["schema"]
        return handler(schema["python_schema"])


def one_of(words: type[Enum]) -> FromYaml:
    """An enum, by its values."""
    return FromYaml(Literal.__getitem__(tuple(word.value for word in words)), words)


@dataclass(frozen=True, slots=True)
class Sampling(Value):
    """How the next token is chosen; null is "not given", and sent as the neutral value."""

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
