"""A calibration: constants fitted for one accelerator and software stack, and where from.

A YAML file holds one or several of them; calibrations.yaml beside this file those of the published
tables. Software stacks by the names that calibrations have, and which calibration is of one.
Nothing here fits: `fitting` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from math import isfinite

from tgi_bench.errors import InputError
from tgi_bench.estimate.setup import UNCALIBRATED, Constants, Setup, check_names

FILE = "calibrations.yaml"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How far constants fitted without one group of points are off on it, all groups in turn.

    split: what one group is, in words ("one point", "one num_shard").
    error: mean of |estimated / measured - 1| over all points.
    """

    split: str
    groups: int
    error: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted constants with their provenance.

    stack: server and version, or library, in words; figures of another stack are not its own.
    fitted: names and values; every other constant is UNCALIBRATED's.
    source: the run or the published table that it was fitted to.
    noise: relative standard deviation of one measurement that the fit took.
    in_sample_error: mean of |estimated / measured - 1| over the points that it was fitted to;
        uncalibrated_error: the same of UNCALIBRATED.
    """

    accelerator: str
    stack: str
    source: str
    fitted: tuple[tuple[str, float], ...]
    points: int
    noise: float
    in_sample_error: float
    uncalibrated_error: float
    held_out: tuple[HeldOut, ...]

    def __post_init__(self) -> None:
        check_names(tuple(name for name, _ in self.fitted))
        if self.points < len(self.fitted):
            raise InputError(
                f"too few measurements for a calibration: {self.points} for "
                f"{len(self.fitted)} constants"
            )

    @property
    def constants(self) -> Constants:
        """UNCALIBRATED with the fitted ones in place; InputError for one outside its range."""
        return replace(UNCALIBRATED, **dict(self.fitted))

    def strangeness(self, accelerator: str, stack: str) -> str | None:
        """What must be said where it is used for them; None where it was fitted on both."""
        other = []
        if accelerator != self.accelerator:
            other.append(f"{self.accelerator}, not {accelerator}")
        if stack != self.stack:
            other.append(f"{self.stack!r}, not {stack!r}")
        return f"the calibration was fitted on {' and on '.join(other)}" if other else None

    def applied(self, setup: Setup) -> Setup:
        """The setup with its constants; `strangeness` says what must be said beside it."""
        return replace(setup, constants=self.constants)


Choose = Callable[[str, str], Calibration | None]
"""The calibration for an accelerator and a stack; None where there is none."""

Chooser = Callable[[str | None], Choose]
"""What a word for a calibration means; None: no word. It may read a file: InputError."""


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where} is not a mapping of names")
    return value


def _text(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: {key} is missing or not a text")
    return value


def _figure(row: Mapping[str, object], key: str, where: str) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InputError(f"{where}: {key} is missing or not a number")
    return float(value)


def _list(row: Mapping[str, object], key: str, where: str) -> list[object]:
    value = row.get(key)
    if not isinstance(value, list):
        raise InputError(f"{where}: {key} is missing or not a list")
    return value


def _from_row(value: object, where: str) -> Calibration:
    row = _mapping(value, where)
    fitted = _mapping(row.get("fitted"), f"{where}: fitted")
    held_out = [_mapping(one, f"{where}: held_out") for one in _list(row, "held_out", where)]
    calibration = Calibration(
        accelerator=_text(row, "accelerator", where),
        stack=_text(row, "stack", where),
        source=_text(row, "source", where),
        fitted=tuple((name, _figure(fitted, name, where)) for name in fitted),
        points=int(_figure(row, "points", where)),
        noise=_figure(row, "noise", where),
        in_sample_error=_figure(row, "in_sample_error", where),
        uncalibrated_error=_figure(row, "uncalibrated_error", where),
        held_out=tuple(
            HeldOut(
                split=_text(one, "split", where),
                groups=int(_figure(one, "groups", where)),
                error=_figure(one, "error", where),
            )
            for one in held_out
        ),
    )
    _ = calibration.constants  # out-of-range values are refused here, not at first use
    return calibration


def parse(text: str, file: str) -> tuple[Calibration, ...]:
    """The calibrations of a YAML text; InputError in one sentence that names the file."""
    import yaml

    try:
        rows = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{file} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{file} is not a list of calibrations")
    return tuple(
        _from_row(row, f"{file}, calibration {number}") for number, row in enumerate(rows, 1)
    )


def _row(calibration: Calibration) -> dict[str, object]:
    return {
        "accelerator": calibration.accelerator,
        "stack": calibration.stack,
        "source": calibration.source,
        "fitted": {name: float(f"{value:.6g}") for name, value in calibration.fitted},
        "points": calibration.points,
        "noise": calibration.noise,
        "in_sample_error": round(calibration.in_sample_error, 5),
        "uncalibrated_error": round(calibration.uncalibrated_error, 5),
        "held_out": [
            {"split": one.split, "groups": one.groups, "error": round(one.error, 5)}
            for one in calibration.held_out
        ],
    }


def dump(calibrations: tuple[Calibration, ...]) -> str:
    """YAML that `parse` reads; figures to 6 and errors to 5 places."""
    import yaml

    rows = [_row(calibration) for calibration in calibrations]
    return yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=100)


@cache
def published() -> tuple[Calibration, ...]:
    """The calibrations of the published tables."""
    return parse(files(__package__).joinpath(FILE).read_text(encoding="utf-8"), FILE)


def find(accelerator: str, stack: str) -> Calibration | None:
    """The published tables' calibration for exactly that accelerator and stack; None without."""
    for calibration in published():
        if calibration.strangeness(accelerator, stack) is None:
            return calibration
    return None


TGI = "text-generation-inference"
TRANSFORMERS = "transformers"
FORWARD = "transformers forward pass with loss"
"""Kernel time of a forward pass, as TorchCAP measures it: no server generates with it."""

_TGI_VERSION = re.compile(rf"{TGI} (\d{{1,3}})\.(\d{{1,3}})(?:\.\d{{1,3}})?", re.ASCII)
PROMPT_LOGPROBS_UNTIL = (0, 9)
"""Before it TGI answers every prefill with the log-probabilities of its prompts."""

KV_POOL_SINCE = (0, 9)
"""From it on flash models keep their KV cache in blocks that the warm-up allocates."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What generates. generator, prompt_logprobs: as estimate.setup.Setup has them.

    kv_pool: whether flash models keep their KV cache in a pool that the warm-up allocates.
    """

    name: str
    generator: str
    prompt_logprobs: bool
    kv_pool: bool


def tgi_stack(version: str) -> str:
    """The stack of a version of TGI: "0.8.2" is of "text-generation-inference 0.8"."""
    return f"{TGI} {'.'.join(version.split('.')[:2])}"


def stack_of(name: str) -> Stack:
    """The stack of that name; InputError with the nearest one for an unknown name."""
    if found := _TGI_VERSION.fullmatch(name):
        minor = (int(found[1]), int(found[2]))
        logprobs, pool = minor < PROMPT_LOGPROBS_UNTIL, minor >= KV_POOL_SINCE
        return Stack(tgi_stack(f"{minor[0]}.{minor[1]}"), "tgi", logprobs, pool)
    if name == FORWARD:
        raise InputError(
            f"the stack {name!r} generates nothing: it is of single forward passes, which "
            "`tgi-bench report` estimates beside the table that it was fitted to"
        )
    if name == TRANSFORMERS or name.startswith(f"{TRANSFORMERS} "):
        return Stack(name, "transformers", prompt_logprobs=False, kv_pool=False)
    known = sorted({c.stack for c in published() if c.stack != FORWARD})
    near = get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"nearest: {near[0]!r}; " if near else ""
    raise InputError(
        f"unknown stack {name!r:.80}; {hint}write {TGI} and its version ({TGI} 3.3), or the name "
        f"of a calibrated one: {', '.join(known)}"
    )


def calibration_named(name: str, accelerator: str) -> Calibration:
    """A published calibration by its stack's name, that of the accelerator where there is one.

    InputError with the nearest names. What it was fitted on is for `strangeness` to say.
    """
    own = find(accelerator, name)
    others = [c for c in published() if c.stack == name]
    if own is not None or others:
        return own or others[0]
    known = list(dict.fromkeys(c.stack for c in published()))
    near = get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"nearest: {near[0]!r}; " if near else ""
    raise InputError(
        f"no published calibration is named {name!r:.80}, and there is no such file; {hint}known: "
        f"{'; '.join(known)}"
    )


def of_file(calibrations: tuple[Calibration, ...], accelerator: str, stack: str) -> Calibration:
    """Of a file's calibrations the one nearest to an accelerator and stack; the first at last."""

    def distance(calibration: Calibration) -> int:
        other_stack = calibration.stack != stack
        return 2 * (calibration.accelerator != accelerator) + other_stack

    return min(calibrations, key=distance)


def none_published(accelerator: str, stack: str) -> str:
    """Why there is no calibrated figure, and how to have one."""
    near = [c.stack for c in published() if c.accelerator == accelerator and c.stack != FORWARD]
    others = f" (there: {', '.join(dict.fromkeys(near))})" if near else ""
    return (
        f"No calibration of {stack} on {accelerator} is known: `tgi-bench calibrate RUN` fits one "
        f"to a run, and --calibration takes its file, or by its name one of another stack{others}."
    )


def provenance(calibration: Calibration) -> str:
    """One sentence: what it was fitted on and how far it is off there."""
    held = "; ".join(f"{h.split} held out {h.error:.1%}" for h in calibration.held_out)
    return (
        f"Calibrated on {calibration.stack}, {calibration.accelerator} ({calibration.source}): "
        f"{len(calibration.fitted)} constants, {calibration.points} points; mean error in sample "
        f"{calibration.in_sample_error:.1%}, {held}; uncalibrated "
        f"{calibration.uncalibrated_error:.1%}."
    )


def said_of(calibration: Calibration | None, accelerator: str, stack: str) -> tuple[str, ...]:
    """What must be said beside figures of that accelerator and stack: where the constants come
    from, and where they are another's; without a calibration why there is none."""
    if calibration is None:
        return (none_published(accelerator, stack),)
    strange = calibration.strangeness(accelerator, stack)
    own = (provenance(calibration),)
    return own if strange is None else (*own, f"NOT OF THIS STACK: {strange}.")
