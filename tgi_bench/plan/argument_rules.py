"""What is wrong with an engine's arguments: TGI's by its table, others' by their form only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tgi_bench.errors import Problem
from tgi_bench.plan.engines import Engine, engine_spec
from tgi_bench.plan.launcher_args import check
from tgi_bench.plan.plan import ArgumentValue
from tgi_bench.plan.secret_words import is_secret_name

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)


def argument_problems(
    engine: Engine, version: str, arguments: Sequence[tuple[str, ArgumentValue]]
) -> tuple[Problem, ...]:
    """Every problem of these arguments; the key path is the argument's name."""
    spec = engine_spec(engine)
    secret = tuple(
        Problem(
            name,
            "is a secret, and arguments are recorded: hand it on by name, as in "
            f"server.env: [{spec.api_key_variable if name == 'api_key' else name.upper()}]",
        )
        for name, value in arguments
        if value is not None and _is_secret(engine, name)
    )
    if secret:
        return secret
    if engine is Engine.TGI:
        return check(version, arguments)
    return tuple(
        Problem(name, f"is no name of an argument of {spec.title}, as in tensor_parallel_size")
        for name, _ in arguments
        if not _NAME.fullmatch(name)
    )


def _is_secret(engine: Engine, name: str) -> bool:
    """Of other engines than TGI, whose arguments no table knows, by the name alone too."""
    if name.replace("-", "_") in engine_spec(engine).secret_arguments:
        return True
    return engine is not Engine.TGI and is_secret_name(name)


def model_arguments(engine: Engine) -> frozenset[str]:
    """The arguments that would name the model, which has a key of its own."""
    spec = engine_spec(engine)
    flags = (spec.model_flag, spec.image_model_flag, spec.hub_model_flag)
    return frozenset(flag.lstrip("-").replace("-", "_") for flag in flags if flag)
