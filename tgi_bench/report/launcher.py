"""The launcher's part of a report: command lines, constant and variable arguments."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.engines.argument_values import command_line, parse_command_line
from tgi_bench.engines.arguments import arguments_of
from tgi_bench.engines.engine import Engine
from tgi_bench.engines.printed import debug_form
from tgi_bench.errors import InputError
from tgi_bench.launch.deployment import requested_command
from tgi_bench.plan.plan import ANY_MODEL, ArgumentValue, Deployment
from tgi_bench.report.words import NOT_KNOWN, argument, known_num_shard, said_model


def commands(run: Run, records: Sequence[DeploymentRecord]) -> str:
    """The command line of each deployment, and beside it what really ran where that differs.

    Of servers that ran already, where they were reached.
    """
    where = [r.deployment.launcher.where for r in records]
    if any(where):
        return "".join(f"The {of} ran already: nothing was started.\n" for of in where)
    asked = dict.fromkeys(_requested(r.deployment, run.origin) for r in records)
    text = _fenced(asked)
    started = dict.fromkeys(
        _shown(r.facts.command) for r in records if r.facts is not None and r.facts.command
    )
    if started and list(started) != list(asked):
        text += f"\nStarted as:\n\n{_fenced(started)}"
    return text


def arguments(run: Run, records: Sequence[DeploymentRecord]) -> str:
    """ "## Constant" and "## Variables": as the servers printed them, else as requested."""
    variable = {a.name for d in run.plan.deployments for a in d.arguments if a.variable}
    # num_shard differs from report to report, so it stands with the variable ones always.
    variable.add("num_shard")
    texts = [_texts(r, run.origin is Origin.IMPORTED) for r in records]
    names = list(dict.fromkeys(name for t in texts for name in t))
    values = {n: list(dict.fromkeys(t[n] for t in texts if n in t)) for n in names}
    constant = [f"- {n}: {', '.join(values[n])}" for n in names if n not in variable]
    varied = [f"- {n}: {', '.join(values[n])}" for n in names if n in variable]
    return (
        f"{_source(run, records)}\n\n"
        "## Constant\n" + "".join(f"{line}\n" for line in constant) + "\n"
        "## Variables\n" + "".join(f"{line}\n" for line in varied)
    )


def _source(run: Run, records: Sequence[DeploymentRecord]) -> str:
    printed = [r for r in records if r.facts is not None and r.facts.arguments is not None]
    if run.origin is Origin.IMPORTED:
        return "As the published report lists them."
    if len(printed) == len(records):
        return "As the server printed them when it started."
    if all(r.deployment.launcher.said_by_server for r in records):
        told = "; num_shard as its sockets say" if any(r.ranks for r in records) else ""
        return f"As the experiment says: a server that ran already is not asked for them{told}."
    if not printed:
        return "As requested: no server printed its arguments."
    rest = ", ".join(r.deployment.deployment_id for r in records if r not in printed)
    return f"As the servers printed them; as requested of {rest}, which printed none."


def _texts(record: DeploymentRecord, imported: bool) -> dict[str, str]:
    """Name and text of every argument of one deployment."""
    if record.facts is not None and record.facts.arguments is not None:
        return {name: _one_line(text) for name, text in record.facts.arguments}
    asked = _asked(record.deployment, imported)
    model = "model_id" if record.deployment.engine is Engine.TGI else "model"
    named, known, said = record.deployment.model, known_num_shard(record), said_model(record)
    served = NOT_KNOWN if said is None else argument(said)
    num_shard = NOT_KNOWN if known is None else argument(known)
    return {
        model: served if named == ANY_MODEL else argument(named),
        **{a.name: asked[a.name] for a in record.deployment.arguments},
        "num_shard": asked.get("num_shard", num_shard) if known and not record.ranks else num_shard,
    }


def _asked(deployment: Deployment, imported: bool) -> dict[str, str]:
    """Requested values as the launcher would print them; of an imported run as they are read."""
    given = [(a.name, a.value) for a in deployment.arguments]
    if imported:
        return {name: argument(value) for name, value in given} | _as_published(deployment)
    if deployment.engine is not Engine.TGI:
        return {name: argument(value) for name, value in given}
    version = deployment.tgi_version
    words = command_line(version, deployment.model, given)
    return dict(debug_form(version, parse_command_line(version, words, {})))


def _as_published(deployment: Deployment) -> dict[str, str]:
    """The listed arguments as the launcher of that version prints them: `[]`, `Some(Gptq)`.

    Without those that it does not know; of none where it would refuse one of them.
    """
    version = deployment.tgi_version
    known = {spec.name for spec in arguments_of(version)}
    given = [
        (a.name, a.value)
        for a in deployment.arguments
        # A list with items was read as its text, and is printed as such.
        if a.name in known and not str(a.value).startswith("[")
    ]
    try:
        words = command_line(version, deployment.model, given)
        printed = dict(debug_form(version, parse_command_line(version, words, {})))
    except InputError:
        return {}
    return {name: printed[name] for name, _ in given}


def _one_line(text: str) -> str:
    """Rust's pretty form of a value, as its plain form prints it: `Some(2)`."""
    line = " ".join(text.split())
    for pretty, plain in (("( ", "("), (", )", ")"), ("[ ", "["), (", ]", "]")):
        line = line.replace(pretty, plain)
    return line


def _requested(deployment: Deployment, origin: Origin) -> str:
    """The server's command line; of an imported run without its defaults."""
    if origin is not Origin.IMPORTED:
        return shlex.join(requested_command(deployment))
    given = [(a.name, a.value) for a in deployment.arguments]
    given = _without_defaults(deployment.tgi_version, given)
    words = command_line(deployment.tgi_version, deployment.model, given)
    return shlex.join(("text-generation-launcher", *words))


def _without_defaults(
    version: str, given: Sequence[tuple[str, ArgumentValue]]
) -> list[tuple[str, ArgumentValue]]:
    """A published list names every argument: keep those that say something."""
    defaults = {spec.name: spec.default for spec in arguments_of(version)}
    return [(name, v) for name, v in given if name in defaults and defaults[name] != v]


def _shown(command: Sequence[str]) -> str:
    """The command as started; the program by its name, for where it lies says nothing."""
    return shlex.join((PurePosixPath(command[0]).name, *command[1:]))


def _fenced(lines: Iterable[str]) -> str:
    return "```bash\n" + "".join(f"{line}\n" for line in lines) + "```\n"
