"""Software stacks as calibrations name them, and which calibration is of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import Calibration, find, published

TGI = "text-generation-inference"
TRANSFORMERS = "transformers"
FORWARD = "transformers forward pass with loss"
"""Kernel time of a forward pass, as TorchCAP measures it: no server generates with it."""

_TGI_VERSION = re.compile(rf"{TGI} (\d{{1,3}})\.(\d{{1,3}})(?:\.\d{{1,3}})?", re.ASCII)
_PROMPT_LOGPROBS_UNTIL = (0, 9)
"""Before it TGI answers every prefill with the log-probabilities of its prompts."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What generates. generator, prompt_logprobs: as estimate.setup.Setup has them."""

    name: str
    generator: str
    prompt_logprobs: bool


def tgi_stack(version: str) -> str:
    """The stack of a version of TGI: "0.8.2" is of "text-generation-inference 0.8"."""
    return f"{TGI} {'.'.join(version.split('.')[:2])}"


def stack_of(name: str) -> Stack:
    """The stack of that name; InputError with the nearest one for an unknown name."""
    if found := _TGI_VERSION.fullmatch(name):
        minor = (int(found[1]), int(found[2]))
        return Stack(tgi_stack(f"{minor[0]}.{minor[1]}"), "tgi", minor < _PROMPT_LOGPROBS_UNTIL)
    if name == FORWARD:
        raise InputError(
            f"the stack {name!r} generates nothing: it is of single forward passes, which "
            "`tgi-bench report` estimates beside the table that it was fitted to"
        )
    if name == TRANSFORMERS or name.startswith(f"{TRANSFORMERS} "):
        return Stack(name, "transformers", False)
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
