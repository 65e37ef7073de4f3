"""The options of `tgi-bench serve` that are the embedded server's own; only click is imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What was typed. tgi_version: None is the newest known.

    device to layer_split: read by the engine `transformers`; accelerator, calibration (a file, or a
    published one's stack; None: uncalibrated) and visible_devices by `simulated`.
    """

    tgi_version: str | None
    engine: str
    accelerator: str
    device: str = "auto"
    random_weights: bool = False
    weights_seed: int = 0
    layer_split: bool = False
    calibration: str | None = None
    visible_devices: int = 1


_OPTIONS = (
    click.option("--tgi-version", help="Whose arguments and behaviours to show; the newest known."),
    click.option(
        "--engine",
        default="simulated",
        show_default=True,
        help="What computes a step: simulated, or transformers, which runs the model.",
    ),
    click.option(
        "--accelerator",
        default="A100-40GB-SXM",
        show_default=True,
        help="Whose time and memory the simulated engine takes.",
    ),
    click.option(
        "--calibration",
        metavar="FILE|NAME",
        help="Its fitted constants: of `tgi-bench calibrate`, or a published one's stack.",
    ),
    click.option(
        "--visible-devices",
        type=click.IntRange(1, 1024),
        default=1,
        show_default=True,
        help="GPUs that a model of num_shard 1 is split over, where TGI does so.",
    ),
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="On what the transformers engine runs; auto is CUDA where there is a device.",
    ),
    click.option(
        "--random-weights",
        is_flag=True,
        help="Draw its weights; then a config.json or a model of the table is enough.",
    ),
    click.option(
        "--weights-seed",
        type=click.IntRange(0, 2**63 - 1),
        default=0,
        show_default=True,
        help="Of random weights.",
    ),
    click.option(
        "--layer-split",
        is_flag=True,
        help="Lay whole layers on several CUDA devices, one after the other.",
    ),
)


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options above, handed on as one `options: EngineOptions`; others as they are."""
    own = {field.name for field in fields(EngineOptions)}

    @functools.wraps(command)
    def with_options(**values: Any) -> None:  # click hands over each option by its name
        rest = {name: value for name, value in values.items() if name not in own}
        given = {name: value for name, value in values.items() if name in own}
        command(options=EngineOptions(**given), **rest)

    wrapped: Callable[..., None] = with_options
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
