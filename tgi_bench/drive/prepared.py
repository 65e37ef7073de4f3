"""A load that is ready to be sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tgi_bench.dialects.dialect import Abilities
from tgi_bench.drive.sent_texts import SentTexts
from tgi_bench.load_observation import CacheCounters, StageConditions
from tgi_bench.plan.load_trial import LoadTrial

if TYPE_CHECKING:
    from tgi_bench.plan.corpus import Corpus
    from tgi_bench.plan.request_spec import RequestSpec

Details = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """One trial, ready to be sent as often as it must be.

    count_tokens: of a text, by a tokenizer file; None where there is none. fitted: a request's
    text with exactly as many tokens as it asks for, as far as it can be known. details: what was
    found.
    conditions: what is known of the server before its first answer, for a stage's record.
    start: as draws.text_seed has it. cache_counted: asks the server's /metrics; None where they
    are not to be asked. texts: that the server was sent.
    """

    trial: LoadTrial
    url: str
    host: str
    base_path: str
    headers: tuple[tuple[str, str], ...]
    verify_tls: bool
    abilities: Abilities
    corpus: Corpus | None
    count_tokens: Callable[[str], int] | None
    fitted: Callable[[RequestSpec], str]
    details: Details
    conditions: StageConditions = field(default_factory=StageConditions)
    start: str = ""
    cache_counted: Callable[[], CacheCounters | None] | None = None
    texts: SentTexts = field(default_factory=SentTexts)
