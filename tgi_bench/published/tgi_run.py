"""A published report as a plan and its figures, so that it can be stored and reported."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from hashlib import sha256

from tgi_bench.engines.arguments import ROWS, arguments_of
from tgi_bench.engines.engine import Engine
from tgi_bench.engines.versions import NEWEST, parse_version
from tgi_bench.errors import InputError, TableError
from tgi_bench.kinds.argument_rules import same
from tgi_bench.launch.deployment import deployment_id
from tgi_bench.launch.process import ProcessKeys, ProcessLauncher
from tgi_bench.observation import Outcome, PublishedFigures, TrialEnd
from tgi_bench.plan.plan import (
    ArgumentValue,
    BatchTrial,
    Deployment,
    LauncherArgument,
    Plan,
    Timeouts,
)
from tgi_bench.published.reading import NO_FIGURE, OK, experiment_name, refused
from tgi_bench.published.tgi import (
    NO_RUNS,
    Cell,
    PublishedBlock,
    PublishedReport,
    PublishedRow,
)
from tgi_bench.report.words import outcome_of
from tgi_bench.sections.section import Sampling

Imported = dict[str, tuple[TrialEnd, tuple[PublishedFigures, ...]]]
"""By trial id: how it ended, and its rows."""

_STEPS = {"Prefill": "prefill", "Decode (token)": "decode_token", "Decode (total)": "decode_total"}
_RATED = {"prefill": "Prefill", "decode_total": "Decode"}
_NOT_SAID_S = 0.0
"""A timeout that the report does not give; an imported trial is never run."""


_Key = tuple[int, str | None]
"""num_shard and quantize, in which the deployments of a report differ."""


def to_run_parts(report: PublishedReport, file_name: str) -> tuple[Plan, Imported]:
    """The plan that the report's tables are of, and what they say of each of its trials.

    TGI's version is the parameter table's, else the newest one whose launcher has the listed
    arguments (then version_assumed). Raises TableError where a parameter does not parse.
    """
    version, assumed = _version(report)
    keys = {_key(report, block): None for block in report.blocks}
    quantize_varies = len({quantize for _, quantize in keys}) > 1
    deployments = {
        key: _deployment(report, key, version, (assumed, quantize_varies)) for key in keys
    }
    trials: list[BatchTrial] = []
    found: Imported = {}
    for key, deployment in deployments.items():
        for block in report.blocks:
            if _key(report, block) != key:
                continue
            for size in sorted({row.batch_size for row in block.latency}):
                trial = _trial(report, block, deployment.deployment_id, size)
                trials.append(trial)
                found[trial.trial_id] = _figures(block, trial)
    plan = Plan(
        experiment=experiment_name(file_name),
        model=_model(report),
        deployments=tuple(deployments.values()),
        trials=tuple(trials),
        overrides=(),
        digest="",
    )
    return _with_digest(plan, found), found


def _with_digest(plan: Plan, found: Imported) -> Plan:
    """The digest covers the figures too: nothing else tells two imports apart."""
    figures = {i: (asdict(end), [asdict(f) for f in rows]) for i, (end, rows) in found.items()}
    # The digest of a report that was imported before plans had loads or tasks is the same still.
    later = ("load_trials", "task_trials")
    batches = {name: value for name, value in asdict(plan).items() if name not in later}
    batches["deployments"] = [deployment.fields for deployment in plan.deployments]
    text = json.dumps([batches, figures], sort_keys=True, separators=(",", ":"))
    return replace(plan, digest=sha256(text.encode()).hexdigest())


def _model(report: PublishedReport) -> str:
    model = dict(report.parameters).get("Model") or value_of(
        dict(report.arguments).get("model_id", "None")
    )
    if not isinstance(model, str):
        raise TableError("no model found: expected a row `Model` in the parameter table")
    return model


def _version(report: PublishedReport) -> tuple[str, bool]:
    """TGI's version, and whether it was inferred from the list of arguments."""
    said = dict(report.parameters).get("TGI Version")
    if said is not None:
        try:
            return str(parse_version(said)), False
        except InputError as error:
            raise TableError(f"parameter `TGI Version`: {error}") from None
    listed = {name for name, _ in report.arguments} | {"num_shard"}
    if len(listed) == 1:
        return NEWEST, True
    known = {v for row in ROWS for v in (row.since, row.until, NEWEST) if v is not None}
    known |= {since for row in ROWS for since, _ in row.defaults}

    def strangeness(version: str) -> int:
        return len(listed ^ {spec.name for spec in arguments_of(version)})

    newest_first = sorted(known, key=parse_version, reverse=True)
    return min(newest_first, key=strangeness), True


def _key(report: PublishedReport, block: PublishedBlock) -> _Key:
    quantize = block.quantize
    if not block.quantize_said:
        quantize = _quantize(dict(report.arguments).get("quantize", "None"))
    return (block.num_shard, quantize)


def _quantize(text: str) -> str | None:
    """`Some(Bitsandbytes)` as "bitsandbytes"."""
    if same(None, text):
        return None
    choices = next(s.choices for s in arguments_of(NEWEST) if s.name == "quantize")
    known = next((c.value for c in choices if same(c.value, text)), None)
    return known if known is not None else str(value_of(text))


def value_of(text: str) -> ArgumentValue:
    """The value that an argument's printed text means; None for `None` and for `[]`."""
    bare = text.strip()
    while bare.startswith("Some(") and bare.endswith(")"):
        bare = bare[5:-1]
    if bare in ("None", "[]", ""):
        return None
    if bare in ("true", "false"):
        return bare == "true"
    if re.fullmatch(r"-?\d{1,18}", bare, re.ASCII):
        return int(bare)
    if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", bare, re.ASCII):
        return float(bare)
    return bare[1:-1] if len(bare) >= 2 and bare[0] == bare[-1] == '"' else bare


def _deployment(
    report: PublishedReport, key: _Key, version: str, flags: tuple[bool, bool]
) -> Deployment:
    (num_shard, quantize), (assumed, quantize_varies) = key, flags
    constant = {name: value_of(text) for name, text in report.arguments}
    constant["quantize"] = quantize
    variables: dict[str, ArgumentValue] = {"num_shard": num_shard}
    if quantize_varies:
        variables["quantize"] = quantize
    arguments = [
        LauncherArgument(name, value, False)
        for name, value in constant.items()
        if name not in (*variables, "model_id")
    ]
    arguments += [LauncherArgument(name, value, True) for name, value in variables.items()]
    return Deployment(
        deployment_id=deployment_id(list(variables.items())),
        launcher=ProcessLauncher(ProcessKeys()),
        model=_model(report),
        image=None,
        tgi_version=version,
        version_assumed=assumed,
        arguments=tuple(arguments),
        accelerator="",
        engine=Engine.TGI,
        env=(),
        timeouts=Timeouts(_NOT_SAID_S, _NOT_SAID_S, _NOT_SAID_S, _NOT_SAID_S),
    )


def _trial(
    report: PublishedReport, block: PublishedBlock, deployment: str, size: int
) -> BatchTrial:
    parameters = dict(report.parameters)
    decode_length = _whole("Decode Length", parameters.get("Decode Length"), 1)
    length = block.sequence_length
    return BatchTrial(
        trial_id=f"{deployment}/s{length}-d{decode_length}-b{size}",
        deployment_id=deployment,
        batch_size=size,
        sequence_length=length,
        decode_length=decode_length,
        runs=_whole("N Runs", parameters.get("N Runs"), 1),
        warmups=_whole("Warmups", parameters.get("Warmups"), 0),
        sampling=_sampling(parameters),
        step_timeout_s=_NOT_SAID_S,
        prompt_seed=0,
    )


def _whole(name: str, text: str | None, least: int) -> int:
    if text is None or not re.fullmatch(r"\d{1,9}", text, re.ASCII) or int(text) < least:
        found = "nothing" if text is None else f"`{text}`"
        raise TableError(f"parameter `{name}`: expected an integer from {least} up, found {found}")
    return int(text)


def _sampling(parameters: dict[str, str]) -> Sampling:
    def number(name: str) -> float | None:
        value = value_of(parameters.get(name, "None"))
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise TableError(f"parameter `{name}`: expected a number or None, found `{value}`")

    def flag(name: str) -> bool:
        value = value_of(parameters.get(name, "false"))
        if isinstance(value, bool):
            return value
        raise TableError(f"parameter `{name}`: expected true or false, found `{value}`")

    top_k = number("Top K")
    return Sampling(
        do_sample=flag("Do Sample"),
        temperature=number("Temperature"),
        top_k=None if top_k is None else int(top_k),
        top_p=number("Top P"),
        typical_p=number("Typical P"),
        repetition_penalty=number("Repetition Penalty"),
        watermark=flag("Watermark"),
    )


def _figures(
    block: PublishedBlock, trial: BatchTrial
) -> tuple[TrialEnd, tuple[PublishedFigures, ...]]:
    rows = [row for row in block.latency if row.batch_size == trial.batch_size]
    rates = {r.step: r for r in block.throughput if r.batch_size == trial.batch_size}
    figures = tuple(
        _row_figures(row, rates.get(_RATED.get(_STEPS[row.step], "")), trial)
        for row in rows
        if _has_numbers(row)
    )
    words = [row.cells[0] for row in rows if not _has_numbers(row)]
    if not words or (trial.decode_length == 1 and len(figures) == 1):
        return OK, figures
    return _end(words[0]), figures


def _end(word: Cell) -> TrialEnd:
    if word == NO_RUNS:
        return NO_FIGURE
    outcome = outcome_of(str(word)) or Outcome.FAILED
    return TrialEnd(outcome, f"the imported report says `{word}`")


def _has_numbers(row: PublishedRow) -> bool:
    """Whether Average, Lowest and Highest are numbers; all three are, or none."""
    numbers = [isinstance(cell, float) for cell in row.cells[:3]]
    if any(numbers) and not all(numbers):
        raise refused(row.line, "expected numbers, or none, in all of Average, Lowest and Highest")
    return all(numbers)


def _row_figures(
    row: PublishedRow, rate: PublishedRow | None, trial: BatchTrial
) -> PublishedFigures:
    ns = [_ns(cell) for cell in row.cells]
    mean, lowest, highest = (n for n in ns[:3] if n is not None)
    per_s: Sequence[float | None] = (None, None, None)
    if rate is not None and _has_numbers(rate):
        factor = _tokens_per_printed(rate, mean, trial)
        per_s = [cell * factor for cell in rate.cells if isinstance(cell, float)]
    return PublishedFigures(
        step=_STEPS[row.step],
        mean_ns=mean,
        lowest_ns=lowest,
        highest_ns=highest,
        p50_ns=ns[3],
        p90_ns=ns[4],
        p99_ns=ns[5],
        mean_tokens_per_s=per_s[0],
        lowest_tokens_per_s=per_s[1],
        highest_tokens_per_s=per_s[2],
    )


def _tokens_per_printed(rate: PublishedRow, mean_ns: float, trial: BatchTrial) -> int:
    """1, or sequence_length where a prefill rate under "tokens/secs" counts sequences.

    text-generation-benchmark before 2.4.1 printed batch / latency under that unit, later
    batch x sequence length / latency: the one that the latency fits better is taken.
    """
    mean = rate.cells[0]
    if rate.step != "Prefill" or rate.unit != "tokens/secs" or not isinstance(mean, float):
        return 1
    per_request = mean * mean_ns / 1e9 / trial.batch_size
    if per_request <= 0:
        return 1
    as_sequences = abs(math.log(per_request))
    as_tokens = abs(math.log(per_request / trial.sequence_length))
    return trial.sequence_length if as_sequences <= as_tokens else 1


def _ns(cell: Cell) -> float | None:
    """Milliseconds to ns, at the printed precision; None for a word."""
    return round(cell * 1e6) if isinstance(cell, float) else None
