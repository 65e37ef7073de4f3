"""The launcher's command line, written for a server and read as the launcher itself reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tgi_bench.errors import InputError
from tgi_bench.plan.launcher_args.check import FLOAT32_MAX, above, conflicts
from tgi_bench.plan.launcher_args.table import ArgumentSpec, Kind, SettingValue, specs_by_name
from tgi_bench.plan.launcher_args.version import Version, parse_version
from tgi_bench.plan.nearest import shown, suggestion
from tgi_bench.plan.plan import ArgumentValue

_INTEGER = re.compile(r"\+?\d+", re.ASCII)
_MOST_DIGITS = 4000
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class LauncherSettings:
    """Every argument of one version with its value, defaults filled in.

    values: (name, value) in the launcher's order; None is "not given and no default".
    """

    version: str
    values: tuple[tuple[str, SettingValue], ...]

    def value(self, name: str) -> SettingValue:
        """The value of one argument; KeyError where this version has no such argument."""
        for known, value in self.values:
            if known == name:
                return value
        raise KeyError(name)


def command_line(
    version: str, model: str, arguments: Sequence[tuple[str, ArgumentValue]]
) -> tuple[str, ...]:
    """The words after `text-generation-launcher`; arguments that `check` has passed.

    An argument whose value is None is not passed, nor is a flag that is false.
    """
    specs = specs_by_name(parse_version(version))
    words = ["--model-id", model]
    for name, value in arguments:
        words.extend(_words(specs[name], value))
    return tuple(words)


def _words(spec: ArgumentSpec, value: ArgumentValue) -> tuple[str, ...]:
    if value is None:
        return ()
    match spec.kind:
        case Kind.FLAG:
            return (spec.flag,) if value is True else ()
        case Kind.TEXTS:
            return tuple(word for text in str(value).split(",") for word in (spec.flag, text))
        case _:
            text = shown(value) if isinstance(value, bool) else str(value)
            # A separate word that starts with a dash would be read as another flag.
            return (f"{spec.flag}={text}",) if text.startswith("-") else (spec.flag, text)


def parse_command_line(
    version: str, argv: Sequence[str], environ: Mapping[str, str]
) -> LauncherSettings:
    """The settings of a launcher's command line: a flag beats its variable beats the default.

    Raises InputError with one sentence, as the launcher would refuse it.
    """
    known = parse_version(version)
    specs = specs_by_name(known)
    given = _flags(known, argv)
    values: dict[str, SettingValue] = {}
    for name, spec in specs.items():
        if name in given:
            values[name] = _value(spec, given[name], _flag_in_words(spec))
        elif spec.env is not None and spec.env in environ:
            values[name] = _variable(spec, environ[spec.env])
        else:
            values[name] = spec.default
    for problem in conflicts(known, values):
        raise InputError(f"--{problem.key_path.replace('_', '-')}: {problem.message}")
    return LauncherSettings(version, tuple(values.items()))


def _flags(version: Version, argv: Sequence[str]) -> dict[str, list[str]]:
    """The texts given to each flag, by argument name; [] for a bare flag."""
    specs = specs_by_name(version)
    by_flag = {spec.flag: spec for spec in specs.values()}
    by_flag.update({f"-{spec.short}": spec for spec in specs.values() if spec.short})
    given: dict[str, list[str]] = {}
    words = iter(argv)
    for word in words:
        flag, text = _split(word)
        spec = by_flag.get(flag)
        if spec is None:
            nearest = suggestion(flag, by_flag) if flag.startswith("--") else ""
            raise InputError(
                f"`{flag}` is no argument of text-generation-launcher {version}{nearest}"
            )
        if spec.name in given and spec.kind is not Kind.TEXTS:
            raise InputError(f"{_flag_in_words(spec)} is given twice")
        texts = given.setdefault(spec.name, [])
        if spec.kind is Kind.FLAG:
            if text is not None:
                raise InputError(f"{_flag_in_words(spec)} takes no value, but `{text}` was given")
            continue
        if text is None:
            text = next(words, None)
            if text is None or (text.startswith("-") and text != "-"):
                raise InputError(f"{_flag_in_words(spec)} needs a value: {spec.kind}")
        texts.append(text)
    return given


def _split(word: str) -> tuple[str, str | None]:
    """`--flag=text`, `-p8080` and `-p=8080` as flag and text; a lone flag with None."""
    if word.startswith("--"):
        flag, equals, text = word.partition("=")
        return flag, text if equals else None
    if word.startswith("-") and len(word) > 2:
        return word[:2], word[2:].removeprefix("=")
    return word, None


def _flag_in_words(spec: ArgumentSpec) -> str:
    return f"{spec.flag}/-{spec.short}" if spec.short else spec.flag


def _variable(spec: ArgumentSpec, text: str) -> SettingValue:
    where = f"the environment variable {spec.env}"
    if spec.kind is Kind.FLAG:
        return _boolean(text, where)
    return _value(spec, [text], where)


def _value(spec: ArgumentSpec, texts: list[str], where: str) -> SettingValue:
    match spec.kind:
        case Kind.FLAG:
            return True
        case Kind.TEXTS:
            return tuple(texts)
        case Kind.TEXT:
            return texts[0]
        case Kind.BOOLEAN:
            return _boolean(texts[0], where)
        case Kind.INTEGERS:
            return tuple(_integer(spec, text, where) for text in texts[0].split(","))
        case Kind.INTEGER:
            return _integer(spec, texts[0], where)
        case Kind.FLOAT:
            return _float(texts[0], where)
        case Kind.CHOICE:
            return _choice(spec, texts[0], where)


def _boolean(text: str, where: str) -> bool:
    if text not in _BOOLEANS:
        raise InputError(f"{where} must be `true` or `false` in lower case, not `{shown(text)}`")
    return _BOOLEANS[text]


def _integer(spec: ArgumentSpec, text: str, where: str) -> int:
    value = None
    if _INTEGER.fullmatch(text):
        value = int(text) if len(text) <= _MOST_DIGITS else spec.maximum + 1
    if value is None or value < spec.minimum:
        raise InputError(
            f"{where} must be an integer of at least {spec.minimum}, not `{shown(text)}`"
        )
    if value > spec.maximum:
        raise InputError(f"{where} {above(spec)}, not `{shown(text)}`")
    return value


def _float(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where} must be a number, not `{shown(text)}`") from None
    if not abs(value) <= FLOAT32_MAX:
        raise InputError(f"{where} must be a finite 32-bit number, not `{shown(text)}`")
    return value


def _choice(spec: ArgumentSpec, text: str, where: str) -> str:
    allowed = [choice.value for choice in spec.choices]
    if text not in allowed:
        raise InputError(
            f"{where} does not allow `{shown(text)}`; allowed: {', '.join(allowed)}"
            f"{suggestion(text, allowed)}"
        )
    return text
