"""What is wrong with launcher arguments, found before anything starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tgi_bench.engines.arguments import (
    ArgumentSpec,
    ArgumentValue,
    Kind,
    SettingValue,
    choice_since,
    spans,
    specs_by_name,
)
from tgi_bench.engines.versions import Version, parse_version
from tgi_bench.errors import InputError, Problem
from tgi_bench.words import shown, suggestion

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


_INTEGERS = re.compile(r"\d{1,9}(,\d{1,9})*", re.ASCII)
FLOAT32_MAX = (2 - 2**-23) * 2.0**127
"""The largest value of the launcher's numbers, which are 32-bit floats."""

_SHOWN_BOUND = 2**16
_BITSANDBYTES = ("bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4")


def check(version: str, arguments: Sequence[tuple[str, ArgumentValue]]) -> tuple[Problem, ...]:
    """Every problem of these arguments for that version; the key path is the argument's name.

    None is "not given" and fits every argument. Raises InputError on a bad version.
    """
    known = parse_version(version)
    found = [problem for name, value in arguments for problem in _check_one(known, name, value)]
    return tuple(found) if found else conflicts(known, dict(arguments))


def _check_one(version: Version, name: str, value: ArgumentValue) -> tuple[Problem, ...]:
    spec = specs_by_name(version).get(name)
    message = _absent(version, name) if spec is None else _misfit(version, spec, value)
    return () if message is None else (Problem(name, message),)


def _absent(version: Version, name: str) -> str:
    found = spans(name)
    if not found:
        nearest = suggestion(name, specs_by_name(version))
        return f"is no argument of text-generation-launcher {version}{nearest}"
    when = " and ".join(
        f"from {since} on" if until is None else _closed(since, until) for since, until in found
    )
    return f"is an argument of text-generation-launcher {when}, not of {version}"


def _closed(since: str, until: str) -> str:
    return f"of {since} only" if since == until else f"from {since} to {until}"


def _misfit(version: Version, spec: ArgumentSpec, value: ArgumentValue) -> str | None:
    if value is None:
        return None
    match spec.kind:
        case Kind.TEXT | Kind.TEXTS:
            fits = isinstance(value, str)
        case Kind.FLAG | Kind.BOOLEAN:
            fits = isinstance(value, bool)
        case Kind.FLOAT:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            fits = is_number and abs(float(value)) <= FLOAT32_MAX
        case Kind.INTEGERS:
            fits = not isinstance(value, bool) and _INTEGERS.fullmatch(str(value)) is not None
        case Kind.INTEGER:
            return _integer_misfit(spec, value)
        case Kind.CHOICE:
            return _choice_misfit(version, spec, value)
    return None if fits else f"must be {spec.kind}, not {shown_with_type(value)}"


def _integer_misfit(spec: ArgumentSpec, value: ArgumentValue) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return f"must be an integer, not {shown_with_type(value)}"
    if value < spec.minimum:
        return f"must be at least {spec.minimum}, not {value}"
    if value > spec.maximum:
        return f"{above(spec)}, not {shown(value)}"
    return None


def above(spec: ArgumentSpec) -> str:
    """What a too large integer is told; the bound of a 32- or 64-bit type helps nobody."""
    if spec.maximum > _SHOWN_BOUND:
        return f"must be an integer that fits {spec.maximum.bit_length()} bits"
    return f"must be at most {spec.maximum}"


def _choice_misfit(version: Version, spec: ArgumentSpec, value: ArgumentValue) -> str | None:
    allowed = [choice.value for choice in spec.choices]
    if value in allowed:
        return None
    text = shown(value)
    since = choice_since(spec.name, text)
    if since is not None and parse_version(since) > version:
        hint = f"; `{text}` came with {since}"
    else:
        hint = suggestion(text, allowed)
    return (
        f"{shown_with_type(value)} is not allowed in text-generation-launcher {version}; "
        f"allowed: {', '.join(('null', *allowed))}{hint}"
    )


def shown_with_type(value: object) -> str:
    """A value with its type where the look of it misleads: the string `10`."""
    return f"the string `{shown(value)}`" if isinstance(value, str) else f"`{shown(value)}`"


def conflicts(version: Version, given: Mapping[str, SettingValue]) -> tuple[Problem, ...]:
    """What that version's launcher (or the server under it) says to arguments taken together.

    An argument that is not given counts with its default; one without a default not at all.
    Source: `main` of launcher/src/main.rs, `serve` of server/text_generation_server/cli.py.
    """
    values: dict[str, SettingValue] = {
        name: spec.default for name, spec in specs_by_name(version).items()
    }
    values.update({name: value for name, value in given.items() if value is not None})
    return (
        *_input_conflicts(version, values),
        *_batch_conflicts(version, values),
        *_quantize_conflicts(version, values),
        *_sharding_conflicts(values),
    )


def _input_conflicts(version: Version, values: Mapping[str, SettingValue]) -> tuple[Problem, ...]:
    newer, older = values.get("max_input_tokens"), values.get("max_input_length")
    if newer is not None and older is not None:
        message = "is the old name of `max_input_tokens`: give one of the two"
        return (Problem("max_input_length", message),)
    name = "max_input_length" if newer is None else "max_input_tokens"
    total = values.get("max_total_tokens")
    # Before 0.9.2 nothing compares the two.
    if version >= (0, 9, 2) and _above(values.get(name), total, equal=True):
        message = f"must be less than `max_total_tokens` ({total}), not {values[name]}"
        return (Problem(name, message),)
    prefill = values.get("max_batch_prefill_tokens")
    # 2.4.0 brought chunked prefill, which ended these two rules.
    if version < (2, 4, 0) and _above(values.get(name), prefill):
        message = f"must be at least `{name}` ({values[name]}), not {prefill}"
        return (Problem("max_batch_prefill_tokens", message),)
    return ()


def _batch_conflicts(version: Version, values: Mapping[str, SettingValue]) -> tuple[Problem, ...]:
    whole = values.get("max_batch_total_tokens")
    if version < (0, 9, 2):
        return ()
    names = ["max_total_tokens"]
    if version < (2, 4, 0):
        names.insert(0, "max_batch_prefill_tokens")
    return tuple(
        Problem(
            "max_batch_total_tokens", f"must be at least `{name}` ({values[name]}), not {whole}"
        )
        for name in names
        if _above(values.get(name), whole)
    )


def _above(left: SettingValue, right: SettingValue, *, equal: bool = False) -> bool:
    if not isinstance(left, int) or not isinstance(right, int):
        return False
    return left > right or (equal and left == right)


def _quantize_conflicts(
    version: Version, values: Mapping[str, SettingValue]
) -> tuple[Problem, ...]:
    quantize, dtype, num_shard = (values.get(n) for n in ("quantize", "dtype", "num_shard"))
    found = []
    if dtype is not None and quantize is not None:
        if version < (1, 2, 0):
            found.append(Problem("dtype", "cannot be given with `quantize`: give one of the two"))
        elif quantize not in _BITSANDBYTES:
            message = f"cannot be given with `quantize` {quantize}, only with bitsandbytes'"
            found.append(Problem("dtype", message))
    if quantize == "exl2" and isinstance(num_shard, int) and num_shard > 1:
        found.append(Problem("num_shard", f"must be 1 with `quantize` exl2, not {num_shard}"))
    return tuple(found)


def _sharding_conflicts(values: Mapping[str, SettingValue]) -> tuple[Problem, ...]:
    found = []
    if values.get("sharded") is True and values.get("num_shard") == 1:
        found.append(Problem("sharded", "cannot be true where `num_shard` is 1"))
    if values.get("ngrok") is True:
        found.extend(
            Problem(name, "must be given with `ngrok`")
            for name in ("ngrok_authtoken", "ngrok_edge")
            if name in values and values[name] is None
        )
    return tuple(found)
