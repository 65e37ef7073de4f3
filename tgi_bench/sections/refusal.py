"""What is said of sections: what pydantic found wrong, and what each key means.

The text below an attribute of a class is its key's description. pydantic can read it too
(`use_attribute_docstrings`), but at import, from each source, which is most of a start; a refusal
and a JSON Schema need it later, or never.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tgi_bench.errors import Problem
from tgi_bench.sections.section import (
    LOAD_NAME_PATTERN,
    MODEL_PATTERN,
    NAME_PATTERN,
    SIZE_PATTERN,
    WORD_PATTERN,
    FromYaml,
    Section,
    Value,
)
from tgi_bench.words import shown, suggestion

Schema = dict[str, JsonValue]

_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "dataclass_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than_equal": ("le", "must be at most"),
}


_PATTERNS = {
    NAME_PATTERN: "must be a name of at most 100 letters, digits, `.`, `_` and `-` that begins "
    "with a letter, a digit or `_`",
    LOAD_NAME_PATTERN: "must be a name of at most 40 letters, digits, `.`, `_` and `-` that begins "
    "with a letter, a digit or `_`",
    WORD_PATTERN: "must be one word of at most 500 characters that does not begin with `-`",
    MODEL_PATTERN: "must be one line of at most 500 characters that does not begin with `-`",
    SIZE_PATTERN: "must be a size such as `1g` or `512m`",
}


def pattern_sentence(pattern: str, given: object) -> str:
    """What a string that does not fit one of the patterns is told."""
    return f"{_PATTERNS[pattern]}, not `{shown(given)}`"


def refusals(error: ValidationError, root: type[BaseModel]) -> tuple[Problem, ...]:
    """One problem for each of pydantic's errors, in the models' order."""
    details = error.errors(include_url=False)
    return tuple(
        Problem(".".join(str(step) for step in detail["loc"]), _message(detail, root))
        for detail in details
    )


def _message(detail: ErrorDetails, root: type[BaseModel]) -> str:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}, not {_with_type(given)}"
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{words} {_bound(context[key])}, not {shown(given)}"
    match kind:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return _unknown(detail["loc"], root)
        case "missing":
            return f"is missing{_described(detail['loc'], root)}"
        case "literal_error":
            allowed = _literals(detail["loc"], root)
            nearest = suggestion(shown(given), allowed)
            return f"must be one of {', '.join(allowed)}, not {_with_type(given)}{nearest}"
        case "string_pattern_mismatch":
            return pattern_sentence(str(context["pattern"]), given)
        case "string_too_long":
            return pattern_sentence(WORD_PATTERN, given)  # no other string has a longest length
        case "string_too_short":
            return "must not be empty"  # no string has another shortest length
        case "too_short" | "too_long":
            return _length_sentence(kind, context)
        case "finite_number":
            return f"must be a finite number, not {shown(given)}"
        case _:
            return detail["msg"]


def _length_sentence(kind: str, context: dict[str, Any]) -> str:
    """How many values a list, or characters a string, must hold."""
    if kind == "too_long":
        return f"must hold at most {context['max_length']} values, not {context['actual_length']}"
    least = context["min_length"]
    return f"must hold at least {'one value' if least == 1 else f'{least} values'}"


def _bound(value: float) -> str:
    whole = isinstance(value, int) or value.is_integer()
    return str(int(value)) if whole else f"{value:g}"


def _with_type(value: object) -> str:
    return f"the string `{shown(value)}`" if isinstance(value, str) else f"`{shown(value)}`"


def _unknown(loc: Sequence[int | str], root: type[BaseModel]) -> str:
    keys = list(_keys(_mapping_at(loc[:-1], root)))
    nearest = suggestion(str(loc[-1]), keys)
    return f"is no key here; allowed: {', '.join(keys)}{nearest}"


def _described(loc: Sequence[int | str], root: type[BaseModel]) -> str:
    description = texts_of(_mapping_at(loc[:-1], root)).get(str(loc[-1]), "")
    if not description:
        return ""
    head, _, rest = description.rstrip(".").partition(" ")
    return f": {head.lower() if head.istitle() else head} {rest}"


def _literals(loc: Sequence[int | str], root: type[BaseModel]) -> list[str]:
    """The strings that a field takes, null beside them left out."""
    _, annotation = _keys(_mapping_at(loc[:-1], root))[str(loc[-1])]
    return [
        str(value)
        for part in _parts(annotation)
        if get_origin(part) is Literal
        for value in get_args(part)
    ]


def _keys(kind: type[BaseModel | Value]) -> dict[str, tuple[str, object]]:
    """By its key in the file (`from` is no name of Python's): a field's name and its annotation."""
    hints = get_type_hints(kind, include_extras=True)
    names = kind.model_fields if issubclass(kind, BaseModel) else kind.__match_args__
    keys = {}
    for name in names:
        beside = get_args(hints[name]) if get_origin(hints[name]) is Annotated else ()
        alias = next((mark.alias for mark in beside if isinstance(mark, FieldInfo)), None)
        keys[alias or name] = (name, hints[name])
    return keys


def _mapping_at(loc: Sequence[int | str], root: type[BaseModel]) -> type[BaseModel | Value]:
    """The class of the mapping at a place; each key on the way is of a field that holds some."""
    kind: type[BaseModel | Value] = root
    for step in loc:
        if isinstance(step, int):
            continue  # an index of a list, whose entries are all of one class
        _, annotation = _keys(kind)[step]
        kind = next(
            part
            for part in _parts(annotation)
            if isinstance(part, type) and issubclass(part, BaseModel | Value)
        )
    return kind


def _parts(annotation: object) -> Iterator[object]:
    """An annotation and all in it, the form that a file has before the value made of it."""
    yield annotation
    inner = get_args(annotation)
    for part in (*inner[1:], *inner[:1]) if get_origin(annotation) is Annotated else inner:
        yield from _parts(part.form if isinstance(part, FromYaml) else part)


def with_texts(schema: Schema) -> Schema:
    """The schema of a section, each property described by its attribute's text.

    A schema's "title" names its class, of which no two are called alike.
    """
    kinds = _subclasses((Section, Value))
    texts = {kind.__name__: texts_of(kind) for kind in kinds}
    definitions = schema.get("$defs")
    inner = definitions if isinstance(definitions, dict) else {}
    described = {
        name: _with_descriptions(definition, texts) if isinstance(definition, dict) else definition
        for name, definition in inner.items()
    }
    whole = _with_descriptions(schema, texts)
    return {**whole, "$defs": described} if inner else whole


def texts_of(kind: type[BaseModel | Value]) -> dict[str, str]:
    """By its key in the file: the bare string after each annotated attribute, inherited or not.

    Without those whose source is not at hand, as in a package without it.
    """
    inherited = (b for b in kind.__bases__ if issubclass(b, BaseModel) and b is not BaseModel)
    texts = {key: text for base in inherited for key, text in texts_of(base).items()}
    return {**texts, **_own_texts(kind)}


def _own_texts(kind: type[BaseModel | Value]) -> dict[str, str]:
    try:
        source = inspect.getsource(kind)
    except OSError:
        return {}
    (definition,) = (
        node for node in ast.parse(textwrap.dedent(source)).body if isinstance(node, ast.ClassDef)
    )
    keys = {name: key for key, (name, _) in _keys(kind).items()}
    texts: dict[str, str] = {}
    for node, following in pairwise(definition.body):
        match node, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[keys[name]] = inspect.cleandoc(text)
    return texts


def _subclasses(
    roots: Iterable[type[BaseModel | Value]],
) -> Iterator[type[BaseModel | Value]]:
    for root in roots:
        yield root
        yield from _subclasses(root.__subclasses__())


def _with_descriptions(definition: Schema, texts: dict[str, dict[str, str]]) -> Schema:
    title, properties = definition.get("title"), definition.get("properties")
    if not isinstance(title, str) or title not in texts or not isinstance(properties, dict):
        return definition
    of_class = texts[title]
    said = {
        name: _sorted({**key, "description": of_class[name]})
        if isinstance(key, dict) and name in of_class
        else key
        for name, key in properties.items()
    }
    return {**definition, "properties": said}


def _sorted(schema: Schema) -> Schema:
    """As pydantic sorts the words of a schema."""
    return dict(sorted(schema.items()))
