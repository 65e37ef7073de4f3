"""The options of `tgi-bench load`; only click is imported, so that `--help` stays quick."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What was typed; None, () and False where an option was not given.

    The texts keep the form of the command line: `load_command` makes an experiment of them.
    """

    url: str
    api: str | None = None
    model: str | None = None
    engine: str | None = None
    concurrency: tuple[str, ...] = ()
    rate: tuple[str, ...] = ()
    trace_speed: str | None = None
    find: str | None = None
    arrivals: str | None = None
    burstiness: str | None = None
    slo: tuple[str, ...] = ()
    prompt_tokens: str | None = None
    output_tokens: str | None = None
    file: str | None = None
    file_kind: str | None = None
    duration: str | None = None
    requests: str | None = None
    warmup: str | None = None
    cooldown: str | None = None
    until: str | None = None
    timeout: str | None = None
    api_key_env: str | None = None
    header: tuple[str, ...] = ()
    tokenizer: str | None = None
    seed: str | None = None
    workers: str | None = None
    max_in_flight: str | None = None
    repeats: bool = False
    no_stream: bool = False
    quickack: bool = False
    insecure: bool = False
    name: str | None = None


_LENGTH = "A number, or uniform:100,1000, normal:500,100, lognormal:300,0.8 or values:128,512."
_OPTIONS = (
    click.argument("url"),
    click.option("--api", metavar="API", help="auto (the default), tgi, completions or chat."),
    click.option("--model", help="The name to send; by default what the server says."),
    click.option(
        "--engine",
        metavar="ENGINE",
        help="tgi, vllm, sglang or llamacpp, where asking the server does not tell.",
    ),
    click.option(
        "--concurrency",
        "-c",
        multiple=True,
        metavar="N,N",
        help="Closed loop: always so many requests in flight, a trial each. The default is 1.",
    ),
    click.option(
        "--rate",
        "-r",
        multiple=True,
        metavar="R,R",
        help="Open loop: requests/s whatever comes back, a trial each.",
    ),
    click.option(
        "--trace-speed",
        metavar="SPEED",
        help="Open loop at the file's own times; 1 is as they are, 2 twice as fast.",
    ),
    click.option(
        "--find",
        metavar="WHAT",
        help="max_rate or max_concurrency: search the highest one that meets every --slo.",
    ),
    click.option(
        "--arrivals", metavar="PROCESS", help="constant, poisson (the default) or gamma gaps."
    ),
    click.option("--burstiness", metavar="SHAPE", help="Of gamma: 1 is Poisson, less is burstier."),
    click.option(
        "--slo",
        multiple=True,
        metavar="METRIC=LIMIT",
        help="As in ttft_p99=500ms or success=99.9%. Repeatable.",
    ),
    click.option("--prompt-tokens", metavar="LENGTH", help=f"512 by default. {_LENGTH}"),
    click.option("--output-tokens", metavar="LENGTH", help="128 by default. As --prompt-tokens."),
    click.option("--file", metavar="PATH", help="A file that prompts, lengths or times come from."),
    click.option(
        "--file-kind",
        metavar="KIND",
        help="jsonl (told by the name), sharegpt, azure, mooncake or csv.",
    ),
    click.option(
        "--repeats",
        is_flag=True,
        help="Texts of --file may repeat, or begin alike, and a cache may answer them.",
    ),
    click.option("--duration", metavar="TIME", help="Measured time: 30s by default."),
    click.option("--requests", metavar="N", help="Measured requests."),
    click.option(
        "--warmup",
        metavar="SPAN",
        help="Left out before it: 10s, or 100 requests; 5s by default, of a number of requests a "
        "tenth and at least one for each in flight.",
    ),
    click.option("--cooldown", metavar="SPAN", help="Left out after it, the same way."),
    click.option(
        "--until",
        metavar="METRIC=SHARE",
        help="Stop when its 95 % confidence interval is that narrow: ttft_p99=2%.",
    ),
    click.option("--timeout", metavar="TIME", help="Of one request: 60s by default."),
    click.option(
        "--api-key-env",
        metavar="NAME",
        help="Name of the environment variable that holds the server's API key.",
    ),
    click.option(
        "--tokenizer", metavar="PATH", help="A tokenizer.json, or its folder, to count tokens with."
    ),
    click.option(
        "--header",
        multiple=True,
        metavar="'NAME: VALUE'",
        help="Sent with everything that is asked; $NAME in VALUE is that environment variable's, "
        "as in 'X-Api-Key: $MY_KEY'. Repeatable.",
    ),
    click.option(
        "--seed",
        metavar="N",
        help="Of prompts, lengths and gaps; without it each run has new texts.",
    ),
    click.option("--workers", metavar="N", help="Processes that send; as many as needed."),
    click.option("--max-in-flight", metavar="N", help="Most requests of an open loop at once."),
    click.option("--no-stream", is_flag=True, help="Ask for whole answers, not token by token."),
    click.option(
        "--quickack",
        is_flag=True,
        help="Acknowledge each read at once: a server that writes small pieces waits for it.",
    ),
    click.option("--insecure", is_flag=True, help="Take any certificate of an https server."),
    click.option("--name", help="Name of the experiment, and of its folder: `load`."),
)


def load_options(command: Callable[..., None]) -> Callable[..., None]:
    """URL and the options above, handed on as one `options: LoadOptions`; others as they are."""
    own = {field.name for field in fields(LoadOptions)}

    @functools.wraps(command)
    def with_options(**values: Any) -> None:  # click hands over each option by its name
        rest = {name: value for name, value in values.items() if name not in own}
        given = {name: value for name, value in values.items() if name in own}
        command(options=LoadOptions(**given), **rest)

    wrapped: Callable[..., None] = with_options
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
