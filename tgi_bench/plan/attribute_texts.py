"""The text below an attribute of a model's source, as its key's description.

pydantic can do this too (`use_attribute_docstrings`), but reads each class's source at import,
which is most of a start; a JSON Schema and a refusal need it later, or never.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise

from pydantic import BaseModel, JsonValue

Schema = dict[str, JsonValue]


def with_texts(schema: Schema, root: type[BaseModel]) -> Schema:
    """The schema of a subclass of root, each property described by its attribute's text.

    A schema's "title" names its class; classes of the same name must not be below root.
    """
    texts = {kind.__name__: texts_of(kind) for kind in _subclasses(root)}
    definitions = schema.get("$defs")
    inner = definitions if isinstance(definitions, dict) else {}
    described = {
        name: _described(definition, texts) if isinstance(definition, dict) else definition
        for name, definition in inner.items()
    }
    return {**_described(schema, texts), "$defs": described} if inner else _described(schema, texts)


def texts_of(kind: type[BaseModel]) -> dict[str, str]:
    """By its key in the file: the bare string after each annotated attribute of the class's own.

    {} where its source is not at hand, as in a package without it.
    """
    try:
        source = inspect.getsource(kind)
    except OSError:
        return {}
    (definition,) = (
        node for node in ast.parse(textwrap.dedent(source)).body if isinstance(node, ast.ClassDef)
    )
    texts: dict[str, str] = {}
    for node, following in pairwise(definition.body):
        match node, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[kind.model_fields[name].alias or name] = inspect.cleandoc(text)
    return texts


def _subclasses(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _subclasses(kind)


def _described(definition: Schema, texts: dict[str, dict[str, str]]) -> Schema:
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
