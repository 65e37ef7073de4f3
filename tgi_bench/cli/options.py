"""The options of experiments, of `estimate` and of `serve`; only click is imported.

click hands each on by its name, and the command makes one value of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

Decorated = Callable[[Callable[..., None]], Callable[..., None]]

LISTS = {
    "--accelerator": ("Rows of the table of accelerators.", "A100-40GB-SXM"),
    "--num-shard": ("Tensor-parallel degrees.", "1"),
    "--quantize": ("text-generation-launcher's values; none for none.", "none"),
    "--dtype": ("float16, bfloat16, float32.", "float16"),
    "--batch-size": ("Sequences in a batch.", "1"),
    "--prompt-tokens": ("Prompt tokens of each sequence.", "512"),
    "--new-tokens": ("New tokens of each sequence; prefill emits the first.", "128"),
}
"""Lists of a matrix that is estimated: what each option is of, and its default."""


def together(options: Sequence[Decorated]) -> Decorated:
    """All of them as one decorator, in their order."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def _changes(set_text: str, only_text: str) -> tuple[Decorated, Decorated]:
    """--set and --only."""
    return (
        click.option("--set", "settings", multiple=True, metavar="KEY.PATH=VALUE", help=set_text),
        click.option("--only", multiple=True, metavar="NAME=V,V", help=only_text),
    )


experiment_options = together(
    (
        click.argument("file", metavar="EXPERIMENT", type=click.Path(path_type=Path)),
        *_changes(
            "Put a value in the experiment's place, as in batches.runs=3. Repeatable.",
            "Keep these values of a variable argument, as in num_shard=1,2. Repeatable.",
        ),
        click.option(
            "--launcher",
            metavar="LAUNCHER",
            help="docker, process, embedded or attach, instead of server.launcher.",
        ),
    )
)
"""EXPERIMENT and the options that change it: the fields of an ExperimentRequest."""

estimate_options = together(
    (
        click.argument("experiment", type=click.Path(path_type=Path), required=False),
        click.option(
            "--model",
            multiple=True,
            metavar="NAME|FILE",
            help="A model of the table, or the path of a config.json. Repeatable.",
        ),
        *(
            click.option(name, metavar="V,V", help=f"{text}  [default: {default}]")
            for name, (text, default) in LISTS.items()
        ),
        click.option(
            "--stack",
            metavar="NAME",
            help='Whose code runs, as in "text-generation-inference 0.8"; the newest known TGI.',
        ),
        *_changes(
            "Of an EXPERIMENT, as in sweep. Repeatable.",
            "Of an EXPERIMENT, as in sweep. Repeatable.",
        ),
    )
)
"""EXPERIMENT and its changes, or the options of a matrix."""

engine_options = together(
    (
        click.option(
            "--tgi-version", help="Whose arguments and behaviours to show; the newest known."
        ),
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
)
"""Of the embedded server itself: the fields of its EngineOptions."""
