"""`tgi-bench estimate`: any matrix of configurations, without a server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.cli.files import ExperimentRequest, chooser, model_of
from tgi_bench.cli.options import LISTS
from tgi_bench.cli.output import echo
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import (
    stack_of,
    tgi_stack,
)
from tgi_bench.estimate.grid import Sizes
from tgi_bench.estimate.setup import LARGEST_SIZE, Setup
from tgi_bench.estimate.tables import accelerator
from tgi_bench.report.estimated_answer import (
    CONSTANTS,
    DEFINITIONS,
    STEP_COLUMNS,
    Answers,
    Configuration,
    answers,
    as_csv,
    as_json,
    as_markdown,
    as_rst,
    asked_columns,
    shared,
    tables,
)

if TYPE_CHECKING:
    from tgi_bench.report.table import Table

MOST_CONFIGURATIONS = 100_000
_NONE = "none"
_SIZE = re.compile(r"[+-]?\d{1,30}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MatrixOptions:
    """The command line's words for a matrix.

    lists: values with commas between, by their options. stack: None is the newest known TGI.
    accelerator_assumed: nobody named it, and the default was taken.
    """

    models: tuple[str, ...]
    stack: str | None
    lists: Mapping[str, str]
    accelerator_assumed: bool


def asked(
    experiment: Path | None,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    matrix: Mapping[str, str | tuple[str, ...] | None],
) -> MatrixOptions | ExperimentRequest:
    """An experiment or a matrix; InputError for both, or neither.

    matrix: what was typed of the options of one, by click's names of them.
    """
    given = {_option(name): value for name, value in matrix.items() if value not in (None, ())}
    if experiment is not None:
        if given:
            message = "of a matrix, not of an experiment; use --set or --only"
            raise InputError(f"{', '.join(given)}: {message}")
        return ExperimentRequest(experiment, settings, only, None)
    if settings or only:
        raise InputError("--set and --only change an EXPERIMENT, and none is given")
    match given.get("--model"), given.get("--stack"):
        case tuple(models), (None | str()) as stack:
            lists = {name: str(given.get(name, default)) for name, (_, default) in LISTS.items()}
            return MatrixOptions(models, stack, lists, "--accelerator" not in given)
        case _:
            raise InputError("give --model, or an EXPERIMENT")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def run(matrix: MatrixOptions | ExperimentRequest, calibration: str | None, form: str) -> None:
    """Print the estimate of a matrix, or of an experiment's trials; raises InputError."""
    choose = chooser(calibration)
    if isinstance(matrix, MatrixOptions):
        asked, remarks = _matrix(matrix)
    else:
        asked, remarks = _experiment(matrix)
    found = answers(asked, choose, remarks)
    match form:
        case "json":
            echo(as_json(found), nl=False)
        case "csv":
            echo(as_csv(found), nl=False)
        case "md":
            echo(as_markdown(found), nl=False)
        case "rst":
            echo(as_rst(found), nl=False)
        case _:
            _print(found)


def _matrix(options: MatrixOptions) -> tuple[list[Configuration], list[str]]:
    # Not above: what reads launchers' arguments is for those who give no version.
    stack = stack_of(options.stack or tgi_stack(_newest()))

    def listed(option: str) -> list[str]:
        return words(option, options.lists[option])

    def numbers(option: str) -> list[int]:
        return sizes(option, options.lists[option])

    models = [model_of(name) for name in options.models]
    devices = [accelerator(name) for name in listed("--accelerator")]
    quantizations = [None if q == _NONE else q for q in listed("--quantize")]
    shards = numbers("--num-shard")
    dtypes = listed("--dtype")
    asked = (
        numbers("--prompt-tokens"),
        numbers("--new-tokens"),
        numbers("--batch-size"),
    )
    lists = (models, devices, dtypes, shards, quantizations, *asked)
    count = 1
    for values in lists:
        count *= len(values)
    if count > MOST_CONFIGURATIONS:
        raise InputError(f"{count} configurations are asked; at most {MOST_CONFIGURATIONS} are")
    configurations = []
    for model, device, dtype, num_shard, quantize in product(
        models, devices, dtypes, shards, quantizations
    ):
        setup = Setup(
            model=model.shape,
            accelerator=device,
            num_shard=num_shard,
            quantize=quantize,
            dtype=dtype,
            prompt_logprobs=stack.prompt_logprobs,
            generator=stack.generator,
        )
        configurations += [
            Configuration(stack.name, setup, Sizes(batch, prompt, new))
            for prompt, new, batch in product(*asked)
        ]
    remarks = [f"{m.shape.name}: {m.doubt}." for m in models if m.doubt]
    if options.accelerator_assumed:
        remarks.insert(
            0, f"No accelerator is named: {devices[0].name} is assumed. --accelerator names it."
        )
    return configurations, remarks


def _newest() -> str:
    from tgi_bench.engines.versions import NEWEST

    return NEWEST


def _experiment(request: ExperimentRequest) -> tuple[list[Configuration], list[str]]:
    """The batches of an experiment, as `plan` estimates them."""
    from tgi_bench.analysis.planned import planned_setup
    from tgi_bench.cli.files import assumed_accelerator

    experiment, plan = request.load()
    if not plan.trials:
        raise InputError(f"{request.file}: holds no batches, of which alone there is an estimate")
    setups = {d.deployment_id: planned_setup(d) for d in plan.deployments}
    found = [
        Configuration(
            setups[t.deployment_id].stack,
            setups[t.deployment_id].setup,
            Sizes(t.batch_size, t.sequence_length, t.decode_length),
        )
        for t in plan.trials
    ]
    assumed = assumed_accelerator(experiment)
    if assumed is None:
        return found, []
    return found, [
        f"The experiment names no accelerator: {assumed} is assumed. server.embedded.accelerator "
        "names it."
    ]


def words(option: str, text: str) -> list[str]:
    """ "a,b" as a list; InputError for an empty word or one that stands twice."""
    found = [word.strip() for word in text.split(",")]
    if not all(found):
        raise InputError(f"{option} {text!r}: values with commas between are needed")
    if len(set(found)) != len(found):
        raise InputError(f"{option} {text!r}: a value stands twice")
    return found


def sizes(option: str, text: str) -> list[int]:
    """ "1,2,4" as numbers; InputError for what is none, or not from 1 to LARGEST_SIZE."""
    found = []
    for word in words(option, text):
        if not _SIZE.fullmatch(word):
            raise InputError(f"{option} {word!r:.60} is not a whole number; write 1,2,4")
        if not 1 <= int(word) <= LARGEST_SIZE:
            raise InputError(f"{option} is {word}; it must be from 1 to {LARGEST_SIZE}")
        found.append(int(word))
    return found


def _print(found: Answers) -> None:
    from tgi_bench.cli.tables import print_folded, say, standard_output

    console = standard_output()
    console.print("Estimated: nothing here was measured.")
    for name, value in shared(found):
        say(console, f"  {name}: {value}")
    for title, table in tables(found):
        console.print(f"\n{title}", style="bold")
        for part in _fitting(table, console.width):
            print_folded(console, part, asked_columns(part))
    console.print()
    for remark in (*found.remarks, *DEFINITIONS):
        say(console, remark)


def _fitting(table: Table, width: int) -> tuple[Table, ...]:
    """The table; where it is too wide the prefill, the decode step and the whole by themselves."""
    if _natural_width(table) <= width or CONSTANTS not in table.headers:
        return (table,)
    first = table.headers.index(CONSTANTS) + 1
    ends = (first, first + STEP_COLUMNS, first + 2 * STEP_COLUMNS, len(table.headers))
    return tuple(
        _columns(table, [*range(first), *range(begin, end)]) for begin, end in pairwise(ends)
    )


def _natural_width(table: Table) -> int:
    from tgi_bench.cli.tables import GAP

    cells = zip(table.headers, *table.rows, strict=True)
    return sum(max(map(len, column)) + GAP for column in cells) - GAP


def _columns(table: Table, chosen: Sequence[int]) -> Table:
    return replace(
        table,
        headers=tuple(table.headers[i] for i in chosen),
        rows=tuple(tuple(row[i] for i in chosen) for row in table.rows),
        right=frozenset(place for place, i in enumerate(chosen) if i in table.right),
    )
