"""What pydantic found wrong, in this project's sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tgi_bench.errors import Problem
from tgi_bench.plan.nearest import shown, suggestion

_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than_equal": ("le", "must be at most"),
}


NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._\-]{0,99}$"
WORD_PATTERN = r"^[^\s\-][^\s]{0,499}$"
SIZE_PATTERN = r"^[1-9][0-9]*[bkmg]?$"
_PATTERNS = {
    NAME_PATTERN: "must be a name of at most 100 letters, digits, `.`, `_` and `-` that begins "
    "with a letter, a digit or `_`",
    WORD_PATTERN: "must be one word of at most 500 characters that does not begin with `-`",
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
        case "extra_forbidden":
            return _unknown(detail["loc"], root)
        case "missing":
            return f"is missing{_described(detail['loc'], root)}"
        case "literal_error":
            allowed = _literals(detail["loc"], root)
            nearest = suggestion(shown(given), allowed)
            return f"must be one of {', '.join(allowed)}, not {_with_type(given)}{nearest}"
        case "string_pattern_mismatch":
            return pattern_sentence(str(context["pattern"]), given)
        case "too_short":
            return "must hold at least one value"
        case "finite_number":
            return f"must be a finite number, not {shown(given)}"
        case _:
            return detail["msg"]


def _bound(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _with_type(value: object) -> str:
    return f"the string `{shown(value)}`" if isinstance(value, str) else f"`{shown(value)}`"


def _unknown(loc: Sequence[int | str], root: type[BaseModel]) -> str:
    keys = list(_model_at(loc[:-1], root).model_fields)
    nearest = suggestion(str(loc[-1]), keys)
    return f"is no key here; allowed: {', '.join(keys)}{nearest}"


def _described(loc: Sequence[int | str], root: type[BaseModel]) -> str:
    description = _field_at(loc, root).description
    if not description:
        return ""
    head, _, rest = description.rstrip(".").partition(" ")
    return f": {head.lower() if head.istitle() else head} {rest}"


def _literals(loc: Sequence[int | str], root: type[BaseModel]) -> list[str]:
    annotation = _field_at(loc, root).annotation
    return [str(value) for value in get_args(annotation)] if _is_literal(annotation) else []


def _is_literal(annotation: object) -> bool:
    return get_origin(annotation) is Literal


def _field_at(loc: Sequence[int | str], root: type[BaseModel]) -> FieldInfo:
    return _model_at(loc[:-1], root).model_fields[str(loc[-1])]


def _model_at(loc: Sequence[int | str], root: type[BaseModel]) -> type[BaseModel]:
    """The model that stands at a place; every step of it is a field that holds a model."""
    model = root
    for step in loc:
        inner = model.model_fields[str(step)].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            raise TypeError(f"{'.'.join(map(str, loc))} holds no model")
        model = inner
    return model
