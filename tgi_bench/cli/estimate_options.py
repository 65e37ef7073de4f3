"""The options of `tgi-bench estimate`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tgi_bench.errors import InputError

if TYPE_CHECKING:
    from tgi_bench.cli.estimate_command import MatrixOptions
    from tgi_bench.cli.experiment_file import ExperimentRequest

_DEFAULTS = {
    "accelerator": "A100-40GB-SXM",
    "num_shard": "1",
    "quantize": "none",
    "dtype": "float16",
    "batch_size": "1",
    "prompt_tokens": "512",
    "new_tokens": "128",
}


def estimate_options(command: Callable[..., None]) -> Callable[..., None]:
    """EXPERIMENT or the options of a matrix, handed on as one `matrix`."""

    @click.argument("experiment", type=click.Path(path_type=Path), required=False)
    @click.option(
        "--model",
        multiple=True,
        metavar="NAME|FILE",
        help="A model of the table, or the path of a config.json. Repeatable.",
    )
    @_listed("accelerator", "Rows of the table of accelerators.")
    @_listed("num_shard", "Tensor-parallel degrees.")
    @_listed("quantize", "text-generation-launcher's values; none for none.")
    @_listed("dtype", "float16, bfloat16, float32.")
    @_listed("batch_size", "Sequences in a batch.")
    @_listed("prompt_tokens", "Prompt tokens of each sequence.")
    @_listed("new_tokens", "New tokens of each sequence; prefill emits the first.")
    @click.option(
        "--stack",
        metavar="NAME",
        help='Whose code runs, as in "text-generation-inference 0.8"; the newest known TGI.',
    )
    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY.PATH=VALUE",
        help="Of an EXPERIMENT, as in sweep. Repeatable.",
    )
    @click.option(
        "--only",
        multiple=True,
        metavar="NAME=V,V",
        help="Of an EXPERIMENT, as in sweep. Repeatable.",
    )
    @functools.wraps(command)
    def with_matrix(
        experiment: Path | None,
        settings: tuple[str, ...],
        only: tuple[str, ...],
        calibration: str | None,
        form: str,
        **words: object,
    ) -> None:
        given = {name: value for name, value in words.items() if value not in (None, ())}
        matrix = _asked(experiment, (settings, only), given)
        command(matrix=matrix, calibration=calibration, form=form)

    return with_matrix


def _listed(name: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        metavar="V,V",
        help=f"{text}  [default: {_DEFAULTS[name]}]",
    )


def _asked(
    experiment: Path | None,
    changes: tuple[tuple[str, ...], tuple[str, ...]],
    given: dict[str, object],
) -> MatrixOptions | ExperimentRequest:
    """One of the two; InputError for both, or neither."""
    from tgi_bench.cli.estimate_command import MatrixOptions

    if experiment is not None:
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise InputError(f"{names}: of a matrix, not of an experiment; use --set or --only")
        from tgi_bench.cli.experiment_file import ExperimentRequest

        return ExperimentRequest(experiment, *changes, None)
    if any(changes):
        raise InputError("--set and --only change an EXPERIMENT, and none is given")
    models = given.pop("model", ())
    if not isinstance(models, tuple) or not models:
        raise InputError("give --model, or an EXPERIMENT")
    assumed = "accelerator" not in given
    text = {**_DEFAULTS, **{name: str(value) for name, value in given.items()}}
    stack = text.pop("stack", None)
    return MatrixOptions(model=models, stack=stack, accelerator_assumed=assumed, **text)
