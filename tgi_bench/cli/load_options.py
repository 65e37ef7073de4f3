"""The options of `tgi-bench load`, each with the key path of an experiment file that it stands for.

Only click is imported at once, so that `--help` stays quick.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tgi_bench.dialects import API_NAMES, AUTO
from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.words import shown, suggestion

if TYPE_CHECKING:
    from tgi_bench.sections.yaml_tree import Tree

Given = Mapping[str, tuple[str, ...]]
"""The words that came with each option that was typed, by the option's name: {"--rate": ("1,2",)}.
A flag comes with none."""

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)
_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?", re.ASCII
)
_DISTRIBUTIONS = ("uniform", "normal", "lognormal", "values")
_BOUNDED = {
    "normal": ("mean", "deviation", "lowest", "highest"),
    "lognormal": ("median", "sigma", "lowest", "highest"),
}


def number(text: str) -> Tree:
    """The number that a text is, as YAML reads it; another text as it is, for its refusal."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _numbers(_name: str, texts: tuple[str, ...]) -> Tree:
    """ "1,8" and a second "64" as one list."""
    return [number(part.strip()) for text in texts for part in text.split(",")]


def _length(name: str, texts: tuple[str, ...]) -> Tree:
    """ "512", "uniform:100,1000", "normal:500,100,1,2000", "values:128,512"."""
    (text,) = texts
    if ":" not in text:
        return number(text)
    form, _, rest = text.partition(":")
    numbers: list[Tree] = [number(part.strip()) for part in rest.split(",")]
    if form in _BOUNDED:
        names = _BOUNDED[form]
        if not 2 <= len(numbers) <= len(names):
            message = f"write {form}:{','.join(names[:2])}, or with the bounds {','.join(names)}"
            raise ExperimentError(Problem(f"{name} {shown(text)}", message))
        return {form: dict(zip(names, numbers, strict=False))}
    if form in _DISTRIBUTIONS:
        return {form: numbers}
    message = f"`{shown(form)}` is no distribution: one of {', '.join(_DISTRIBUTIONS)}"
    raise ExperimentError(
        Problem(f"{name} {shown(text)}", message + suggestion(form, _DISTRIBUTIONS))
    )


def _slos(name: str, texts: tuple[str, ...]) -> Tree:
    from tgi_bench.trials.load import SUCCESS

    slos: dict[str, Tree] = {}
    for text in texts:
        metric, limit = _pair(name, text, "ttft_p99=500ms")
        if metric in slos:
            raise ExperimentError(Problem(f"{name} {shown(text)}", f"gives {metric} twice"))
        if metric != SUCCESS and _NUMBER.fullmatch(limit.strip()):
            message = (
                f"has no unit: write {metric}={limit.strip()}ms, or {metric}={limit.strip()}s "
                "where seconds are meant"
            )
            raise ExperimentError(Problem(f"{name} {shown(text)}", message))
        slos[metric] = limit
    return slos


def _until(name: str, texts: tuple[str, ...]) -> Tree:
    metric, width = _pair(name, texts[0], "ttft_p99=2%")
    return {"metric": metric, "ci": width}


def _pair(option: str, text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ExperimentError(Problem(f"{option} {shown(text)}", f"write it as {example}"))
    return name, value


def _headers(option: str, texts: tuple[str, ...]) -> Tree:
    """ "Name: value" each. What does not split so is not shown: it may be a secret."""
    headers: dict[str, Tree] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise ExperimentError(Problem(option, "write it as 'Name: value'"))
        if name.strip() in headers:
            raise ExperimentError(Problem(f"{option} {shown(name.strip())}", "is given twice"))
        headers[name.strip()] = value.strip()
    return headers


_FORMS: Mapping[str, Callable[[str, tuple[str, ...]], Tree]] = {
    "N": lambda _, words: number(words[0]),
    "SHAPE": lambda _, words: number(words[0]),
    "SPAN": lambda _, words: number(words[0]),
    "SPEED": lambda _, words: {"speed": number(words[0])},
    "N,N": _numbers,
    "R,R": _numbers,
    "LENGTH": _length,
    "METRIC=LIMIT": _slos,
    "METRIC=SHARE": _until,
    "NAME": lambda _, words: list(words),
    "'NAME: VALUE'": _headers,
}
"""How words of a form are read, each as YAML would have it, with ExperimentError for one that is
not of the form; those of other forms are taken as they are."""
_REPEATED = frozenset({"N,N", "R,R", "METRIC=LIMIT", "'NAME: VALUE'"})


@dataclass(frozen=True, slots=True)
class _Option:
    """One option. names: the long one first. form: what --help calls its word; None for TEXT.

    key: the key path that takes its value, without one `load.` and the name; twin: another.
    flag: its value where it takes no word.
    """

    names: str
    form: str | None
    help: str
    key: str = ""
    flag: bool | None = None
    twin: str | None = None

    @property
    def name(self) -> str:
        """As a message has it."""
        return self.names.split()[0]

    @property
    def parameter(self) -> str:
        """What click calls its value."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def keys(self) -> tuple[str, ...]:
        """One, or two that take the same value."""
        key = self.key or f"load.{self.parameter}"
        return (key,) if self.twin is None else (key, self.twin)

    def value(self, words: tuple[str, ...]) -> Tree:
        """What these words say. Raises ExperimentError where they are not of its form."""
        if self.flag is not None:
            return self.flag
        read = _FORMS.get(self.form or "")
        return words[0] if read is None else read(self.name, words)

    def for_click(self) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Its declaration."""
        names = self.names.split()
        if self.flag is not None:
            return click.option(*names, is_flag=True, help=self.help)
        several = self.form in _REPEATED
        return click.option(*names, multiple=several, metavar=self.form, help=self.help)


URL = "URL"
_LENGTH = "A number, or uniform:100,1000, normal:500,100, lognormal:300,0.8 or values:128,512."
_APIS = API_NAMES[1:]
OPTIONS = (
    _Option("--api", "API", f"{AUTO} (the default), {', '.join(_APIS[:-1])} or {_APIS[-1]}."),
    _Option("--model", None, "The name to send; by default what the server says.", "model"),
    _Option(
        "--engine",
        "ENGINE",
        "tgi, vllm, sglang or llamacpp, where asking the server does not tell.",
        "server.engine",
    ),
    _Option(
        "--concurrency -c",
        "N,N",
        "Closed loop: always so many requests in flight, a trial each. The default is 1.",
    ),
    _Option("--rate -r", "R,R", "Open loop: requests/s whatever comes back, a trial each."),
    _Option(
        "--trace-speed",
        "SPEED",
        "Open loop at the file's own times; 1 is as they are, 2 twice as fast.",
        "load.trace",
    ),
    _Option(
        "--find",
        "WHAT",
        "max_rate or max_concurrency: search the highest one that meets every --slo.",
    ),
    _Option("--arrivals", "PROCESS", "constant, poisson (the default) or gamma gaps."),
    _Option("--burstiness", "SHAPE", "Of gamma: 1 is Poisson, less is burstier."),
    _Option("--slo", "METRIC=LIMIT", "As in ttft_p99=500ms or success=99.9%. Repeatable."),
    _Option(
        "--prompt-tokens", "LENGTH", f"512 by default. {_LENGTH}", "load.workload.prompt_tokens"
    ),
    _Option(
        "--output-tokens",
        "LENGTH",
        "128 by default. As --prompt-tokens.",
        "load.workload.output_tokens",
    ),
    _Option(
        "--file",
        "PATH",
        "A file that prompts, lengths or times come from.",
        "load.workload.file.path",
    ),
    _Option(
        "--file-kind",
        "KIND",
        "jsonl (told by the name), sharegpt, azure, mooncake or csv.",
        "load.workload.file.kind",
    ),
    _Option(
        "--repeats",
        None,
        "Texts of --file may repeat, or begin alike, and a cache may answer them.",
        "load.workload.repeats",
        flag=True,
    ),
    _Option("--duration", "TIME", "Measured time: 30s by default."),
    _Option("--requests", "N", "Measured requests."),
    _Option(
        "--warmup",
        "SPAN",
        "Left out before it: 10s, or 100 requests; 5s by default, of a number of requests a "
        "tenth and at least one for each in flight.",
    ),
    _Option("--cooldown", "SPAN", "Left out after it, the same way."),
    _Option(
        "--until",
        "METRIC=SHARE",
        "Stop when its 95 % confidence interval is that narrow: ttft_p99=2%.",
    ),
    _Option("--timeout", "TIME", "Of one request: 60s by default.", "load.request_timeout"),
    _Option(
        "--api-key-env",
        "NAME",
        "Name of the environment variable that holds the server's API key.",
        "server.env",
    ),
    _Option("--tokenizer", "PATH", "A tokenizer.json, or its folder, to count tokens with."),
    _Option(
        "--header",
        "'NAME: VALUE'",
        "Sent with everything that is asked; $NAME in VALUE is that environment variable's, "
        "as in 'X-Api-Key: $MY_KEY'. Repeatable.",
        "server.headers",
    ),
    _Option(
        "--seed",
        "N",
        "Of prompts, lengths and gaps; without it each run has new texts.",
        "load.workload.seed",
        twin="load.arrival_seed",
    ),
    _Option("--workers", "N", "Processes that send; as many as needed."),
    _Option("--max-in-flight", "N", "Most requests of an open loop at once."),
    _Option(
        "--no-stream", None, "Ask for whole answers, not token by token.", "load.stream", flag=False
    ),
    _Option(
        "--quickack",
        None,
        "Acknowledge each read at once: a server that writes small pieces waits for it.",
        flag=True,
    ),
    _Option(
        "--insecure",
        None,
        "Take any certificate of an https server.",
        "server.verify_tls",
        flag=False,
    ),
    _Option("--name", None, "Name of the experiment, and of its folder: `load`.", "experiment"),
)
OPTION_OF = {key: option.name for option in OPTIONS for key in option.keys} | {
    "server.url": URL,
    "load.workload.file": "--file",
}
"""The option that a key path's value came with; a longer path goes before its beginning."""
FLAGS = {
    f"{key}: {str(option.flag).lower()}": option.name
    for option in OPTIONS
    if option.flag is not None
    for key in option.keys
}
"""Keys whose one value is a flag."""


def load_options(command: Callable[..., None]) -> Callable[..., None]:
    """URL and the options above, handed on by click's names of them."""
    for option in reversed(OPTIONS):
        command = option.for_click()(command)
    return click.argument("url")(command)


def given(url: str, values: Mapping[str, str | tuple[str, ...] | bool | None]) -> Given:
    """What was typed, of click's values of the options above."""
    found: dict[str, tuple[str, ...]] = {URL: (url,)}
    for option in OPTIONS:
        match values[option.parameter]:
            case None | () | False:
                pass
            case True:
                found[option.name] = ()
            case str(text):
                found[option.name] = (text,)
            case tuple(texts):
                found[option.name] = texts
    return found
