"""What a ready server said of itself: log, /info, /metrics, /v1/models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.launch.log import arguments_in_effect, capacity_tokens, is_padded, model_loaded
from tgi_bench.launch.questions import (
    CAPACITY_METRIC,
    capacity_of,
    info_of,
    said_details,
    served_model,
)
from tgi_bench.launch.secrets import Redactor
from tgi_bench.observation import ServerFacts
from tgi_bench.plan.engines import Dialect, Engine, engine_spec

_CAPACITY_LINE = "log line `Setting max batch total tokens to N`"


@dataclass(frozen=True, slots=True)
class Started:
    """A start that became ready. lines: of its log. details: what the launcher knows itself."""

    engine: Engine
    command: tuple[str, ...]
    lines: Sequence[str]
    url: str
    ready_ns: int
    details: tuple[tuple[str, str], ...] = ()
    api_key: str | None = None


def facts_of(start: Started, redactor: Redactor) -> ServerFacts:
    """Asks the server, and reads its log. Values of secrets are left out of every text."""
    info = info_of(start.url)
    dialect = engine_spec(start.engine).dialect
    is_tgi = dialect is Dialect.TGI
    capacity, source = _capacity(start) if is_tgi else (None, "")
    arguments = arguments_in_effect(start.lines) if is_tgi else None
    said = said_details(info, served_model(start.url, start.api_key))
    model = model_loaded(start.lines)
    loaded = () if model is None else (("Model in effect", model),)
    return ServerFacts(
        command=tuple(redactor.text(word) for word in start.command),
        arguments=None if arguments is None else redactor.pairs(arguments),
        version=info.version if is_tgi else None,
        capacity_tokens=capacity,
        capacity_source=source,
        simulated=info.simulated,
        ready_ns=start.ready_ns,
        details=redactor.pairs((*start.details, *loaded, *said)),
    )


def _capacity(start: Started) -> tuple[int | None, str]:
    capacity = capacity_tokens(start.lines)
    if capacity is not None:
        return capacity, _CAPACITY_LINE
    # Of a padded model the metric, too, is the router's budget and no room.
    if is_padded(start.lines):
        return None, ""
    capacity = capacity_of(start.url)
    return capacity, "" if capacity is None else CAPACITY_METRIC
