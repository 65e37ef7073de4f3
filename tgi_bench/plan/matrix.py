"""The combinations of the variable arguments: skip takes some out, --only keeps some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tgi_bench.engines.arguments import ArgumentValue
from tgi_bench.engines.engine import argument_problems, model_arguments
from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.plan.experiment import ServerKeys
from tgi_bench.plan.plan import Engine, Override
from tgi_bench.words import shown, suggestion

MOST_DEPLOYMENTS = 10_000


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable argument; each value keeps the key path that it stands at."""

    name: str
    values: tuple[ArgumentValue, ...]
    key_paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Combination:
    """One value of each variable argument, in the experiment's order, with its key path."""

    values: tuple[tuple[str, ArgumentValue], ...]
    key_paths: tuple[str, ...]


def combinations(
    server: ServerKeys, version: str, only: Sequence[str]
) -> tuple[tuple[Combination, ...], tuple[Override, ...]]:
    """What to launch, the first variable argument varying slowest; and `only` as overrides.

    Raises ExperimentError: a name both constant and variable, a skip entry that cannot match,
    an unknown name or value in `only`, more than MOST_DEPLOYMENTS, or nothing left.
    """
    _refuse(_name_problems(server), _skip_problems(server, version))
    variables = [
        Variable(name, tuple(values), _key_paths(name, len(values)))
        for name, values in server.variable.items()
    ]
    overrides = []
    for text in only:
        position, kept, override = _kept(text, variables)
        variables[position] = kept
        overrides.append(override)
    count = prod(len(variable.values) for variable in variables)
    if count > MOST_DEPLOYMENTS:
        message = f"gives {count} deployments; at most {MOST_DEPLOYMENTS} are taken"
        raise ExperimentError(Problem("server.variable", message))
    left = tuple(c for c in _product(variables) if not _skipped(server, dict(c.values)))
    if not left:
        key_path = "server.skip" if not only else f"--only {only[-1]}"
        raise ExperimentError(Problem(key_path, _emptied(bool(only))))
    return left, tuple(overrides)


def _key_paths(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"server.variable.{name}.{index}" for index in range(count))


def _refuse(*found: tuple[Problem, ...]) -> None:
    problems = [problem for group in found for problem in group]
    if problems:
        raise ExperimentError(*problems)


def _emptied(by_only: bool) -> str:
    return "leaves nothing to run" if by_only else "matches every combination: nothing is left"


def _name_problems(server: ServerKeys) -> tuple[Problem, ...]:
    both = [
        Problem(f"server.variable.{name}", "is constant as well: give it in one of the two")
        for name in server.variable
        if name in server.constant
    ]
    of_model = model_arguments(Engine(server.engine))
    model = [
        Problem(f"server.{part}.{name}", "comes from the key `model`: leave it out here")
        for part, names in (("constant", server.constant), ("variable", server.variable))
        for name in names
        if name.replace("-", "_") in of_model
    ]
    return (*both, *model)


def _skip_problems(server: ServerKeys, version: str) -> tuple[Problem, ...]:
    engine = Engine(server.engine)
    found = []
    for index, entry in enumerate(server.skip):
        for name, values in entry.items():
            key_path = f"server.skip.{index}.{name}"
            if name not in server.variable:
                names = ", ".join(server.variable) or "none"
                nearest = suggestion(name, server.variable)
                found.append(Problem(key_path, f"does not vary; what varies: {names}{nearest}"))
                continue
            # A value that is allowed but not listed may be one that --set took out.
            strange = [v for v in values if not any(_same(v, w) for w in server.variable[name])]
            found.extend(
                Problem(key_path, problem.message)
                for value in strange
                for problem in argument_problems(engine, version, [(name, value)])
            )
    return tuple(found)


def idle_skips(server: ServerKeys) -> tuple[int, ...]:
    """The skip entries, counted from 1, that no combination of the listed values matches."""
    return tuple(
        number
        for number, entry in enumerate(server.skip, start=1)
        if not all(
            any(_same(v, listed) for v in values for listed in server.variable.get(name, ()))
            for name, values in entry.items()
        )
    )


def _kept(text: str, variables: Sequence[Variable]) -> tuple[int, Variable, Override]:
    """`num_shard=1,2` as the position and the rest of the variable argument it restricts."""
    where = f"--only {text}"
    name, equals, wanted = text.partition("=")
    names = [variable.name for variable in variables]
    if not equals or not wanted:
        raise ExperimentError(Problem(where, "write it as name=value or name=value,value"))
    if name not in names:
        allowed = ", ".join(names) or "none"
        nearest = suggestion(name, names)
        raise ExperimentError(Problem(where, f"does not vary; what varies: {allowed}{nearest}"))
    position = names.index(name)
    variable = variables[position]
    words = [wanted] if any(_named(wanted, v) for v in variable.values) else wanted.split(",")
    for word in words:
        if not any(_named(word, value) for value in variable.values):
            allowed = ", ".join(shown(value) for value in variable.values)
            raise ExperimentError(
                Problem(where, f"`{shown(word)}` is no value of `{name}`; allowed: {allowed}")
            )
    chosen = [
        (value, path)
        for value, path in zip(variable.values, variable.key_paths, strict=True)
        if any(_named(word, value) for word in words)
    ]
    kept = Variable(name, tuple(v for v, _ in chosen), tuple(p for _, p in chosen))
    return position, kept, Override(f"only.{name}", wanted)


def _named(word: str, value: ArgumentValue) -> bool:
    text = word.strip()
    return text == shown(value) or (value is None and text == "none")


def _product(variables: Sequence[Variable]) -> list[Combination]:
    names = [variable.name for variable in variables]
    columns = [tuple(zip(v.values, v.key_paths, strict=True)) for v in variables]
    return [
        Combination(
            tuple((name, value) for name, (value, _) in zip(names, row, strict=True)),
            tuple(path for _, path in row),
        )
        for row in product(*columns)
    ]


def _skipped(server: ServerKeys, values: dict[str, ArgumentValue]) -> bool:
    return any(
        all(any(_same(values[name], v) for v in allowed) for name, allowed in entry.items())
        for entry in server.skip
    )


def _same(left: ArgumentValue, right: ArgumentValue) -> bool:
    """Equal and both or neither a boolean: 1 is not true; 1 is 1.0."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)
