"""The arguments and the version in effect, against those that were requested."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from tgi_bench.analysis.accelerator_of import said_info
from tgi_bench.analysis.rules import Check, Rule, Seen, apply
from tgi_bench.analysis.run import DeploymentRecord
from tgi_bench.engines.arguments import arguments_of
from tgi_bench.engines.engine import Engine
from tgi_bench.engines.versions import built_from, tags_saying
from tgi_bench.observation import ServerFacts
from tgi_bench.plan.plan import ArgumentValue, Deployment

REACHED_BY = frozenset({"hostname", "port", "prometheus_port", "shard_uds_path"})
"""How a server is reached; the launchers of tgi-bench choose these themselves."""

_NUMBERS = re.compile(r"v?(\d+\.\d+\.\d+)(?![.\d])")
_RENAMED = {
    "max_input_length": "max_input_tokens",
    "max_input_tokens": "max_input_length",
}

_REPEATED = frozenset(
    {
        "max_best_of",
        "max_client_batch_size",
        "max_concurrent_requests",
        "max_input_length",
        "max_input_tokens",
        "max_stop_sequences",
        "max_total_tokens",
        "validation_workers",
    }
)
"""What TGI's /info repeats as it was given; max_batch_total_tokens is rather what it found."""


def check_arguments(deployments: Sequence[DeploymentRecord]) -> Check:
    """What each server printed as its `Args` against what was requested of it."""
    return apply(replace(ARGUMENTS, well=lambda _: _as_printed(deployments)), deployments)


def _arguments(record: DeploymentRecord) -> Seen | None:
    if record.facts is None:
        return None
    if record.facts.arguments is None:
        wrong = _unlike_info(record)
    else:
        wrong = differences(record.deployment, record.facts.arguments)
    return None if wrong is None else Seen(bool(wrong), len(wrong), "; ".join(wrong))


def _unlike_info(record: DeploymentRecord) -> tuple[str, ...] | None:
    """As `differences`, of a server whose log is not ours; None where /info tells none of those
    that were requested."""
    facts = record.facts
    if facts is None or (facts.identity.engine or record.deployment.engine) != Engine.TGI.value:
        return None
    info = {k: str(v) for k, v in said_info(facts).items() if k in _REPEATED and v is not None}
    asked = [(a.name, a.value) for a in record.deployment.arguments if a.name in _REPEATED]
    told = [
        (name, value, text)
        for name, value in asked
        if value is not None and (text := _printed(name, info)) is not None
    ]
    found = (
        f"{name} is {text}, requested was {value}"
        for name, value, text in told
        if not same(value, text)
    )
    return tuple(found) if told else None


def _as_printed(deployments: Sequence[DeploymentRecord]) -> str:
    printed = [
        (d.deployment, d.facts.arguments)
        for d in deployments
        if d.facts is not None and d.facts.arguments is not None
    ]
    told = sum(_arguments(d) is not None for d in deployments) - len(printed)
    found = [f"as printed by {_servers(len(printed))}"] if printed else []
    found += [f"as /info repeats them at {_servers(told)}"] if told else []
    chosen = dict.fromkeys(text for d, args in printed for text in chosen_by_launcher(d, args))
    return "; ".join((*found, *chosen))


def _servers(count: int) -> str:
    return f"{count} server{'' if count == 1 else 's'}"


def chosen_by_launcher(
    deployment: Deployment, printed: Sequence[tuple[str, str]]
) -> tuple[str, ...]:
    """One sentence for each requested way to reach a server that the launcher replaced."""
    texts = dict(printed)
    return tuple(
        f"{a.name}: {a.value} requested, chosen by the launcher"
        for a in deployment.arguments
        if a.name in REACHED_BY
        and a.value is not None
        and (shown := texts.get(a.name)) is not None
        and not same(a.value, shown)
    )


def differences(deployment: Deployment, printed: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """One sentence for each requested argument that is not in effect."""
    texts = dict(printed)
    defaults = {spec.name: spec.default for spec in arguments_of(deployment.tgi_version)}
    found = []
    requested = [(a.name, a.value) for a in deployment.arguments if a.name not in REACHED_BY]
    for name, value in [("model_id", deployment.model), *requested]:
        shown = _printed(name, texts)
        default = defaults.get(name)
        effective = default if value is None and not isinstance(default, tuple) else value
        if shown is None:
            if value is not None:
                found.append(f"{name} is not among the arguments that the server printed")
        elif not same(effective, shown):
            found.append(f"{name} is {shown}, requested was {value}")
    return tuple(found)


def _printed(name: str, texts: dict[str, str]) -> str | None:
    """The printed text of an argument, under its other name where this version renamed it."""
    text, other = texts.get(name), texts.get(_RENAMED.get(name, ""))
    return other if other is not None and text in (None, "None") else text


def same(value: ArgumentValue, text: str) -> bool:
    """Whether a text of Rust's {:?} or {:#?} form means that value.

    `Some(BitsandbytesNf4)` means "bitsandbytes-nf4", `1.2` means 1.2 within a 32-bit float.
    """
    bare = _bare(text)
    match value:
        case None:
            return bare in ("None", "[]")
        case bool():
            return bare == ("true" if value else "false")
        case int() | float():
            try:
                return math.isclose(float(bare), value, rel_tol=1e-6)
            except ValueError:
                return False
        case str():
            return bare == value or _letters(bare) == _letters(value)


def _bare(text: str) -> str:
    """The text without Some(...), quotes, and the breaks of the pretty form."""
    bare = text.strip()
    while bare.startswith("Some(") and bare.endswith(")"):
        bare = bare[5:-1].strip().removesuffix(",").strip()
    if len(bare) >= 2 and bare[0] == bare[-1] == '"':
        return bare[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return bare


def _letters(text: str) -> str:
    """Letters and digits only, in lower case: enum variants and lists compare by these."""
    return "".join(c for c in text.lower() if c.isalnum())


def check_version(deployments: Sequence[DeploymentRecord]) -> Check:
    """The version that each server reports against the planned one."""
    return apply(replace(VERSION, unmade=_version_unmade(deployments)), deployments)


def _version_unmade(records: Sequence[DeploymentRecord]) -> str:
    """Why nothing can be said of any of them, whether they said their version or not."""
    said = [r.deployment for r in records if r.facts is not None and r.facts.version is not None]
    if not said:
        return VERSION.unmade
    if all(planned.version_assumed or not planned.tgi_version for planned in said):
        return "no version was asked for"
    return "the server is of another engine, or the version asked for is not three numbers"


def _versions(seen: Sequence[Seen]) -> str:
    texts = dict.fromkeys(one.text for one in seen)
    return f"{'; '.join(texts)} at {len(seen)} server{'' if len(seen) == 1 else 's'}"


def _version(record: DeploymentRecord) -> Seen | None:
    """None of a server of another engine than was planned: that is another check's question."""
    facts, deployment = record.facts, record.deployment
    if facts is None or facts.version is None:
        return None
    if (facts.identity.engine or deployment.engine.value) != deployment.engine.value:
        return None
    if deployment.engine is not Engine.TGI:
        return _other_version(facts.version, deployment.tgi_version)
    if deployment.version_assumed:
        return Seen(False, 0, f"{facts.version}; none was asked for")
    return _tgi_version(facts, deployment.tgi_version)


def _tgi_version(facts: ServerFacts, planned: str) -> Seen:
    """By the tag that it was built from, where it tells that; else by what the planned tag's
    sources say, which is not always the tag."""
    said, identity = facts.version or "", facts.identity
    tag = built_from(identity.sha, identity.docker_label)
    if tag is not None:
        text = f"{said}, built from the commit of {tag.version}"
        return _against(planned, planned == tag.version, text)
    versions = [tag.version for tag in tags_saying(said)]
    if not versions:
        return _against(planned, said.partition("-")[0] == planned, said)
    if versions == [said]:
        return _against(planned, planned == said, said)
    if len(versions) == 1:
        told = f"{said}, as {versions[0]} says of itself"
    else:
        told = f"{said}, as {' and '.join(versions)} say of themselves: no commit tells which"
    return _against(planned, planned in versions, told)


def _other_version(said: str, planned: str) -> Seen | None:
    """None where none was asked for, or not as three numbers: `latest`, a build's digits."""
    asked, found = _NUMBERS.match(planned), _NUMBERS.match(said)
    if asked is None or found is None:
        return None
    return _against(planned, asked[1] == found[1], said)


def _against(planned: str, good: bool, text: str) -> Seen:
    return Seen(not good, 1, text if good else f"{text}, planned was {planned}")


ARGUMENTS = Rule(
    "arguments in effect are those requested",
    _arguments,
    "no server printed its arguments",
    "unset environment variables that stand for launcher arguments, or make the experiment's "
    "server.constant say what the server runs with",
    rows="deployments",
)
VERSION = Rule(
    "the server's version is the planned one",
    _version,
    "no server said its version",
    "say the right one in server.version",
    rows="deployments",
    well=_versions,
)
