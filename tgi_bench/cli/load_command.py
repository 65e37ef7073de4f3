"""`tgi-bench load URL`: the options as the experiment that a file would have said."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tgi_bench.cli.experiment_file import require_files
from tgi_bench.cli.load_options import LoadOptions
from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.inert import one_line
from tgi_bench.plan.expand import expand
from tgi_bench.plan.experiment import Experiment, validate
from tgi_bench.plan.load_trial import SUCCESS
from tgi_bench.plan.nearest import shown, suggestion
from tgi_bench.plan.plan import ANY_MODEL, Plan

if TYPE_CHECKING:
    from tgi_bench.plan.yaml_tree import Tree

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)
_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?", re.ASCII
)
_FORMS = ("uniform", "normal", "lognormal", "values")
_BOUNDED = {
    "normal": ("mean", "deviation", "lowest", "highest"),
    "lognormal": ("median", "sigma", "lowest", "highest"),
}
_OPTION_OF = {
    "experiment": "--name",
    "model": "--model",
    "server.url": "URL",
    "server.engine": "--engine",
    "server.env": "--api-key-env",
    "server.headers": "--header",
    "load.api": "--api",
    "load.workload.prompt_tokens": "--prompt-tokens",
    "load.workload.output_tokens": "--output-tokens",
    "load.workload.file": "--file",
    "load.workload.file.kind": "--file-kind",
    "load.workload.repeats": "--repeats",
    "load.workload.seed": "--seed",
    "load.arrival_seed": "--seed",
    "load.concurrency": "--concurrency",
    "load.rate": "--rate",
    "load.trace": "--trace-speed",
    "load.find": "--find",
    "load.arrivals": "--arrivals",
    "load.burstiness": "--burstiness",
    "load.duration": "--duration",
    "load.requests": "--requests",
    "load.warmup": "--warmup",
    "load.cooldown": "--cooldown",
    "load.until": "--until",
    "load.slo": "--slo",
    "load.request_timeout": "--timeout",
    "load.max_in_flight": "--max-in-flight",
    "load.workers": "--workers",
    "load.tokenizer": "--tokenizer",
    "load.quickack": "--quickack",
}
"""The option that a key path's value came with; a longer path goes before its beginning."""


_FLAGS = {
    "server.verify_tls: false": "--insecure",
    "load.quickack: true": "--quickack",
    "load.workload.repeats: true": "--repeats",
}
"""Keys whose one value is a flag."""
_KEY = re.compile("|".join((*map(re.escape, _FLAGS), r"(?:load|server)\.[a-z_]+(?:\.[a-z_]+)*")))


def in_options(text: str) -> str:
    """A remedy's key paths as the options of `tgi-bench load`; those without one stay."""
    return _KEY.sub(lambda found: _option_for(found[0]), text)


def _option_for(key_path: str) -> str:
    if key_path in _FLAGS:
        return _FLAGS[key_path]
    steps = key_path.split(".")
    for length in range(len(steps), 1, -1):
        option = _OPTION_OF.get(".".join(steps[:length]))
        if option is not None and steps[:2] != ["load", "find"]:  # it takes no bounds
            return option
    return key_path


def load_plan_of(options: LoadOptions) -> tuple[Experiment, Plan]:
    """The experiment and its plan. Raises ExperimentError, each problem said of its option."""
    tree = load_tree(options)
    try:
        experiment = validate(tree)
        plan = expand(experiment)
    except ExperimentError as error:
        raise _said_of_options(error) from None
    require_files(plan)
    return experiment, plan


def load_tree(options: LoadOptions) -> Tree:
    """The tree that a file of the same meaning has; what was not given is not in it.

    Raises ExperimentError where an option's text is not of its form.
    """
    server: dict[str, Tree] = {"launcher": "attach", "url": options.url}
    if options.api_key_env is not None:
        server["env"] = [options.api_key_env]
    if options.header:
        server["headers"] = _headers(options.header)
    if options.insecure:
        server["verify_tls"] = False
    if options.engine is not None:
        server["engine"] = options.engine
    return {
        "experiment": "load" if options.name is None else options.name,
        "model": ANY_MODEL if options.model is None else options.model,
        "server": server,
        "load": _load(options),
    }


def _load(options: LoadOptions) -> Tree:
    keys: dict[str, Tree] = {
        "api": options.api,
        "arrivals": options.arrivals,
        "duration": options.duration,
        "request_timeout": options.timeout,
        "tokenizer": options.tokenizer,
        "burstiness": _number(options.burstiness),
        "requests": _number(options.requests),
        "warmup": _number(options.warmup),
        "cooldown": _number(options.cooldown),
        "arrival_seed": _number(options.seed),
        "workers": _number(options.workers),
        "max_in_flight": _number(options.max_in_flight),
        "concurrency": _numbers(options.concurrency),
        "rate": _numbers(options.rate),
        "trace": None if options.trace_speed is None else {"speed": _number(options.trace_speed)},
        "find": options.find,
        "slo": _slos(options.slo),
        "until": _until(options.until),
        "workload": _workload(options),
    }
    given: dict[str, Tree] = {name: value for name, value in keys.items() if value is not None}
    if not given.keys() & {"concurrency", "rate", "trace", "find"}:
        given["concurrency"] = 1
    if options.quickack:
        given["quickack"] = True
    if options.no_stream:
        given["stream"] = False
    return given


def _workload(options: LoadOptions) -> Tree:
    keys: dict[str, Tree] = {
        "prompt_tokens": _length("--prompt-tokens", options.prompt_tokens),
        "output_tokens": _length("--output-tokens", options.output_tokens),
        "file": _file(options),
        "seed": _number(options.seed),
        "repeats": True if options.repeats else None,
    }
    return {name: value for name, value in keys.items() if value is not None} or None


def _file(options: LoadOptions) -> Tree:
    if options.file is None and options.file_kind is not None:
        raise ExperimentError(Problem("--file-kind", "is read with --file only"))
    if options.file_kind is None:
        return options.file
    return {"path": options.file, "kind": options.file_kind}


def _number(text: str | None) -> Tree:
    """The number that a text is, as YAML reads it; another text as it is, for its refusal."""
    if text is None:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _numbers(texts: Iterable[str]) -> Tree:
    """ "1,8" and a second "64" as one list; None where nothing was given."""
    numbers: list[Tree] = [_number(part.strip()) for text in texts for part in text.split(",")]
    return numbers or None


def _length(option: str, text: str | None) -> Tree:
    """ "512", "uniform:100,1000", "normal:500,100,1,2000", "values:128,512"."""
    if text is None or ":" not in text:
        return _number(text)
    form, _, rest = text.partition(":")
    numbers: list[Tree] = [_number(part.strip()) for part in rest.split(",")]
    if form in _BOUNDED:
        names = _BOUNDED[form]
        if not 2 <= len(numbers) <= len(names):
            message = f"write {form}:{','.join(names[:2])}, or with the bounds {','.join(names)}"
            raise ExperimentError(Problem(f"{option} {shown(text)}", message))
        return {form: dict(zip(names, numbers, strict=False))}
    if form in _FORMS:
        return {form: numbers}
    message = f"`{shown(form)}` is no distribution: one of {', '.join(_FORMS)}"
    raise ExperimentError(Problem(f"{option} {shown(text)}", message + suggestion(form, _FORMS)))


def _slos(texts: Iterable[str]) -> Tree:
    slos: dict[str, Tree] = {}
    for text in texts:
        metric, limit = _pair("--slo", text, "ttft_p99=500ms")
        if metric in slos:
            raise ExperimentError(Problem(f"--slo {shown(text)}", f"gives {metric} twice"))
        if metric != SUCCESS and _NUMBER.fullmatch(limit.strip()):
            message = (
                f"has no unit: write {metric}={limit.strip()}ms, or {metric}={limit.strip()}s "
                "where seconds are meant"
            )
            raise ExperimentError(Problem(f"--slo {shown(text)}", message))
        slos[metric] = limit
    return slos or None


def _headers(texts: Iterable[str]) -> Tree:
    """ "Name: value" each. What does not split so is not shown: it may be a secret."""
    headers: dict[str, Tree] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise ExperimentError(Problem("--header", "write it as 'Name: value'"))
        if name.strip() in headers:
            raise ExperimentError(Problem(f"--header {shown(name.strip())}", "is given twice"))
        headers[name.strip()] = value.strip()
    return headers


def _until(text: str | None) -> Tree:
    if text is None:
        return None
    metric, width = _pair("--until", text, "ttft_p99=2%")
    return {"metric": metric, "ci": width}


def _pair(option: str, text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ExperimentError(Problem(f"{option} {shown(text)}", f"write it as {example}"))
    return name, value


def _said_of_options(error: ExperimentError) -> ExperimentError:
    """The same problems, each with its option instead of its key path."""
    sentences = []
    for problem in error.problems:
        option, inner = _option_of(problem.key_path)
        place = f"{inner}: " if inner else ""
        head = f"{option}: " if option else ""
        sentences.append(one_line(f"{head}{place}{problem.message}"))
    said = ExperimentError(*error.problems)
    said.args = ("\n".join(sentences),)
    return said


def _option_of(key_path: str) -> tuple[str, str]:
    """The option, and what is left of the path below it; the whole path where there is none."""
    steps = key_path.split(".")
    for length in range(len(steps), 0, -1):
        option = _OPTION_OF.get(".".join(steps[:length]))
        if option is not None:
            inner = steps[length:]
            # A list of one is typed as a value: its index says nothing.
            return option, ".".join(inner) if inner != ["0"] and inner != ["path"] else ""
    return "", key_path
