"""Whether what answered is what was asked for: engine, model, revision, protocol, ranks, device.

What a server does not tell, and what nobody asked for, is not checked, and the check says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tgi_bench.analysis.accelerator_of import said_devices
from tgi_bench.analysis.rules import Check, Rule, Seen, apply
from tgi_bench.analysis.run import DeploymentRecord
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.observation import Identity, ServerFacts
from tgi_bench.plan.plan import ANY_MODEL, Deployment

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_NUMBERS = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?")
_CACHED = re.compile(r"models--([^/]+?)--([^/]+)")
"""A model of the hub in its cache: .../models--bigscience--bloomz/snapshots/<commit>."""
_SPOKEN_FROM = (((2, 1), "generate.v3"), ((1, 3), "generate.v2"), ((0, 0), "generate.v1"))
_MAINLINE = frozenset({"cuda", "cpu"})
"""Devices of TGI's own shards; those of its backends for Gaudi and Neuron still speak v2."""
_OWN_NAMES = (None, "litellm", "llamacpp")
"""Engines whose listed models may have names of their own, or that are not known."""
_CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that a server should be. look: what was found of it, or why that cannot be told."""

    name: str
    look: Callable[[Deployment, ServerFacts], Seen | str]
    remedy: str


def identity_checks(deployments: Sequence[DeploymentRecord]) -> tuple[Check, ...]:
    """Every question, of each server that started."""
    return tuple(_check(question, deployments) for question in QUESTIONS)


def _check(question: Question, deployments: Sequence[DeploymentRecord]) -> Check:
    found = {
        record.deployment_id: question.look(record.deployment, record.facts)
        for record in deployments
        if record.facts is not None
    }

    def look(record: DeploymentRecord) -> Seen | None:
        seen = found.get(record.deployment_id)
        return seen if isinstance(seen, Seen) else None

    reasons = dict.fromkeys(why for why in found.values() if isinstance(why, str))
    unmade = "; ".join(reasons) or "no server became ready"
    rule = Rule(question.name, look, unmade, question.remedy, rows="deployments", well=_well)
    return apply(rule, deployments)


def _well(seen: Sequence[Seen]) -> str:
    return "; ".join(dict.fromkeys(one.text for one in seen))


def _engine(deployment: Deployment, facts: ServerFacts) -> Seen | str:
    """A running server may be of any engine, unless the experiment says something of it."""
    asked, said = deployment.engine, facts.identity.engine
    if deployment.launcher.said_by_server and asked is Engine.TGI and deployment.version_assumed:
        return "no engine was asked for"
    if said is None:
        return "the server does not say its engine"
    if said == "litellm":
        return "a proxy (litellm) answers for whatever is behind it"
    return _compared(said == asked.value, said, asked.value)


def _model(deployment: Deployment, facts: ServerFacts) -> Seen | str:
    asked, identity = deployment.model, facts.identity
    if asked == ANY_MODEL:
        return "no model was asked for"
    if not identity.models:
        return "the server names no model"
    said = ", ".join(identity.models)
    wanted = _normalised(asked)
    names = [_normalised(name) for name in identity.models]
    if wanted in names:
        return _compared(True, said, asked)
    own_names = identity.engine in _OWN_NAMES
    if own_names or any(not _different(wanted, name, identity) for name in names):
        return f"whether {said} is {asked} cannot be told by their names"
    return _compared(False, said, asked)


def _normalised(name: str) -> str:
    """An id of the hub in lower case, for it knows no other; a path without its last slash. A
    path in the hub's cache is the id that it is of."""
    bare = name.strip().rstrip("/") or name
    if found := _CACHED.search(bare):
        return f"{found[1]}/{found[2]}".lower()
    return str(PurePosixPath(bare)) if _is_path(bare) else bare.lower()


def _is_path(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or "\\" in name or name.count("/") > 1


def _different(asked: str, said: str, identity: Identity) -> bool:
    """Whether these are surely two models, of normalised names that differ.

    Two with an owner each are. One without an owner may be the same by its short name; else TGI,
    which says what it was started with, has another, and other engines may have been told any.
    """
    if _is_path(asked) or _is_path(said):
        return False
    (owner, _, name), (said_owner, _, said_name) = asked.rpartition("/"), said.rpartition("/")
    if owner and said_owner:
        return True
    return name != said_name and identity.engine == Engine.TGI.value


def _revision(deployment: Deployment, facts: ServerFacts) -> Seen | str:
    asked, said = deployment.argument("revision"), facts.identity.revision
    if not isinstance(asked, str):
        return "no revision was asked for"
    if said is None:
        return "the server does not say its model's revision"
    if said == asked:
        return _compared(True, said, asked)
    for name in (asked, said):
        if not _COMMIT.fullmatch(name.lower()):
            return f"{name} is a name: which commit it was, only the hub knows"
    return _compared(said.lower().startswith(asked.lower()), said, asked)


def _protocol(deployment: Deployment, facts: ServerFacts) -> Seen | str:
    if facts.shards is None:
        return "no socket was asked"
    version = facts.version or ("" if deployment.version_assumed else deployment.tgi_version)
    numbers = _NUMBERS.match(version)
    if numbers is None:
        return "no version says which protocol its shards speak"
    minor = (int(numbers[1]), int(numbers[2]))
    expected = next(name for since, name in _SPOKEN_FROM if minor >= since)
    said = facts.shards.protocol
    if said != expected and not _MAINLINE.issuperset(said_devices(facts)):
        return f"shards of {', '.join(sorted(said_devices(facts)))} have a protocol of their own"
    return _compared(said == expected, said, f"{expected}, which TGI {version} speaks")


def _device(deployment: Deployment, facts: ServerFacts) -> Seen | str:
    said = said_devices(facts)
    asked = deployment.launcher.asked_device(deployment)
    if asked is None:
        return "no GPU was asked for"
    if not said:
        return "the server does not say what it computes on"
    if facts.simulated:
        return "the server says that it simulates"
    right = said == {_CPU} if asked == _CPU else _CPU not in said
    return _compared(right, ", ".join(sorted(said)), asked)


def _dtype(deployment: Deployment, facts: ServerFacts) -> Seen | str:
    asked = deployment.argument("dtype")
    if not isinstance(asked, str) or asked == "auto":
        return "no dtype was asked for"
    shards = facts.shards.dtypes if facts.shards is not None else ()
    said = {_bare_dtype(text) for text in (facts.identity.dtype, *shards) if text}
    if not said:
        return "the server does not say its dtype"
    return _compared(said == {_bare_dtype(asked)}, ", ".join(sorted(said)), asked)


def _bare_dtype(text: str) -> str:
    """ "torch.float16", "half" and "fp16" are one."""
    bare = text.lower().removeprefix("torch.")
    same = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32"}
    return same.get(bare, bare)


def _ranks(deployment: Deployment, facts: ServerFacts) -> Seen | str:
    name = engine_spec(deployment.engine).shard_argument
    asked = None if name is None else deployment.argument(name)
    if not isinstance(asked, int):
        return "no num_shard was asked for"
    if facts.shards is None:
        return "no socket was asked"
    said = facts.shards.ranks
    return _compared(said == asked, f"{said} rank{'' if said == 1 else 's'}", f"num_shard {asked}")


def _compared(same: bool, said: str, asked: str) -> Seen:
    return Seen(not same, 1.0, said if same else f"{said}, asked for was {asked}")


QUESTIONS = (
    Question(
        "the engine is the one that was asked for",
        _engine,
        "name in server.url the server that is meant, or say its engine in server.engine",
    ),
    Question(
        "the model served is the one that was asked for",
        _model,
        "name the model that the server has in `model` (`tgi-bench load`: --model), or start the "
        "server with the one that is meant",
    ),
    Question(
        "the model's revision is the one that was asked for",
        _revision,
        "say the served one in the argument revision, or remove the cached one and start again",
    ),
    Question(
        "shards speak the protocol of their version",
        _protocol,
        "say the right version in server.version, and see whose sockets server.sockets names",
    ),
    Question(
        "the server computes on the device that was asked for",
        _device,
        "see in its log why it found no GPU (the driver, server.docker.gpus, "
        "NVIDIA_VISIBLE_DEVICES); where a CPU is meant, say server.docker.gpus: '0', and leave "
        "server.embedded.accelerator out",
    ),
    Question(
        "the dtype is the one that was asked for",
        _dtype,
        "say the dtype in effect in the argument dtype, or see in the server's log why it took "
        "another",
    ),
    Question(
        "the ranks are as many as num_shard",
        _ranks,
        "say the number in effect in num_shard, or see why the server started another number",
    ),
)
