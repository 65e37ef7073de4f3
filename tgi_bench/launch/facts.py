"""What a ready server said of itself: log, /info, /metrics, /v1/models, its engine's own routes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.ask import Contact
from tgi_bench.dialects.identity import Info, Models, asked_by, identity_of, info_of
from tgi_bench.dialects.metrics import CAPACITY_METRIC, capacity_of
from tgi_bench.engines.engine import Engine
from tgi_bench.launch.deployment import MODEL_SERVED
from tgi_bench.launch.log import arguments_in_effect, capacity_tokens, is_padded, model_loaded
from tgi_bench.launch.secrets import Redactor
from tgi_bench.observation import Identity, ServerFacts

_CAPACITY_LINE = "log line `Setting max batch total tokens to N`"


@dataclass(frozen=True, slots=True)
class Started:
    """A start that became ready. lines: of its log. details: what the launcher knows itself."""

    engine: Engine
    command: tuple[str, ...]
    lines: Sequence[str]
    contact: Contact
    ready_ns: int
    details: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ServerSaid:
    """What a server said over HTTP. models: of its /v1/models."""

    info: Info
    identity: Identity
    models: tuple[str, ...]

    @classmethod
    def by(cls, contact: Contact) -> ServerSaid:
        """Asks it."""
        get = asked_by(contact)
        info, models = info_of(get), Models.of(get("/v1/models"))
        return cls(info, identity_of(get, info, models), models.names)

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        """/info as one line of JSON, and the first model that it serves."""
        fields, models = self.info.fields, self.identity.models
        text = json.dumps(fields, ensure_ascii=False, sort_keys=True)
        return (
            *([("/info", text)] if fields else []),
            *([(MODEL_SERVED, models[0])] if models else []),
        )


def facts_of(start: Started, redactor: Redactor) -> ServerFacts:
    """Asks the server, and reads its log. Values of secrets are left out of every text."""
    said = ServerSaid.by(start.contact)
    is_tgi = start.engine is Engine.TGI
    capacity, source = _capacity(start) if is_tgi else (None, "")
    arguments = arguments_in_effect(start.lines) if is_tgi else None
    model = model_loaded(start.lines)
    loaded = () if model is None else (("Model in effect", model),)
    return ServerFacts(
        command=tuple(redactor.text(word) for word in start.command),
        arguments=None if arguments is None else redactor.pairs(arguments),
        version=said.identity.version,
        capacity_tokens=capacity,
        capacity_source=source,
        simulated=said.info.simulated,
        ready_ns=start.ready_ns,
        details=redactor.pairs((*start.details, *loaded, *said.details)),
        identity=clean_identity(said.identity, redactor),
    )


def clean_identity(identity: Identity, redactor: Redactor) -> Identity:
    """Without the values of secrets, which a server may give back as its model's name."""

    def clean(text: str | None) -> str | None:
        return None if text is None else redactor.text(text)

    return Identity(
        engine=identity.engine,
        version=clean(identity.version),
        models=tuple(redactor.text(name) for name in identity.models),
        revision=clean(identity.revision),
        sha=clean(identity.sha),
        docker_label=clean(identity.docker_label),
        device_type=clean(identity.device_type),
        dtype=clean(identity.dtype),
    )


def _capacity(start: Started) -> tuple[int | None, str]:
    capacity = capacity_tokens(start.lines)
    if capacity is not None:
        return capacity, _CAPACITY_LINE
    # Of a padded model the metric, too, is the router's budget and no room.
    if is_padded(start.lines):
        return None, ""
    capacity = capacity_of(start.contact)
    return capacity, "" if capacity is None else CAPACITY_METRIC
