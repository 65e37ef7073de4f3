"""What a load needs before its clock starts: the server asked, files read, prompts made exact.

Also which texts were sent before, or begin as one that was: a cache may have answered them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tgi_bench.dialects import speaking
from tgi_bench.dialects.dialect import Abilities, Ask, AskOptions, body_bytes
from tgi_bench.dialects.identity import LoadIdentity
from tgi_bench.drive.connection import require_quick_acknowledgements
from tgi_bench.load_observation import CacheCounters, PromptTexts, StageConditions
from tgi_bench.plan.plan import ANY_MODEL
from tgi_bench.trials.load import LoadTrial

if TYPE_CHECKING:
    from tgi_bench.plan.corpus import Corpus
    from tgi_bench.plan.workload import RequestSpec


LEAST_HEAD = 128
"""Characters, some 32 tokens: two blocks of a cache. Longer heads are looked for at its doubles."""
_LEAST_WORDS = 4
"""A text that this client makes is new from so many words on."""
_MOST_KEPT = 1 << 18
"""Of texts, and of heads: 20 MB each. Later ones are compared with these, and not kept."""


class SentTexts:
    """Texts that one server was sent, load after load; hashes of them are kept."""

    def __init__(self) -> None:
        self._texts: set[int] = set()
        self._heads: set[int] = set()
        self._counted = PromptTexts()

    def begin(self) -> None:
        """Another stage: it is counted by itself, and compared with all before."""
        self._counted = PromptTexts()

    @property
    def counted(self) -> PromptTexts:
        """Of this stage so far."""
        return self._counted

    def add(self, ask: Ask, made: bool) -> None:
        """One that begins a conversation. made: its text is this client's, not a file's."""
        text = ask.prompt or "\n".join(f"{role}: {said}" for role, said in ask.messages)
        was, size = self._counted, len(text)
        repeated = _kept(self._texts, hash(text))
        head = self._shared_head(text)
        if made and len(text.split(None, _LEAST_WORDS)) < _LEAST_WORDS:
            repeated = False
        begins_alike = bool(head) and not repeated
        self._counted = replace(
            was,
            sent=was.sent + 1,
            repeated=was.repeated + repeated,
            shared_heads=was.shared_heads + begins_alike,
            characters=was.characters + size,
            repeated_characters=was.repeated_characters + size * repeated,
            shared_characters=was.shared_characters + head * begins_alike,
        )

    def _shared_head(self, text: str) -> int:
        """Characters that it has in common with one before: at least so many."""
        shared, size = 0, LEAST_HEAD
        while size < len(text):
            if _kept(self._heads, hash(text[:size])):
                shared = size
            size *= 2
        return shared


def _kept(seen: set[int], key: int) -> bool:
    """Whether it was there; it is from now on, as far as there is room."""
    if key in seen:
        return True
    if len(seen) < _MOST_KEPT:
        seen.add(key)
    return False


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


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """Where a load goes. engine: "" where it is not known. headers: sent with every request, an API
    key among them.

    verify_tls: whether its certificate must be valid.
    """

    url: str
    engine: str
    model: str
    headers: tuple[tuple[str, str], ...] = ()
    verify_tls: bool = True


def prepare(
    target: LoadTarget, trial: LoadTrial, start: str = "", control: bool = True
) -> Prepared:
    """Ask the server what it can do, and read the trial's files.

    start: whose texts they are, where the workload has no seed, as draws.text_seed has it.
    control: whether a few requests are sent to see what small writes do to it, and how fast it
    answers alone, and its /metrics are asked around each stage.
    Raises InputError: a file that is missing or wrong, a server that does not answer as asked.
    """
    if trial.quickack:
        require_quick_acknowledgements()
    # Only this part of a load asks questions; ssl and http.client take a while to import.
    from tgi_bench.ask import Asking
    from tgi_bench.dialects.abilities import find_out
    from tgi_bench.drive.exact_prompts import fitting

    asking = Asking(
        headers=target.headers, verify=target.verify_tls, timeout_s=trial.request_timeout_ns / 1e9
    )
    model = "" if target.model == ANY_MODEL else target.model
    found = find_out(target.url, target.engine, speaking(trial.spoken), model, asking)
    abilities, identity = found.abilities, found.identity
    details = [("Server", identity.sentence)]
    corpus = None
    if trial.workload.file is not None:
        from tgi_bench.drive.load_files import read_corpus

        corpus, digest = read_corpus(trial.workload.file)
        details.append(("Workload file", f"{trial.workload.file.path}, SHA-256 {digest}"))
    fit = fitting(target.url, abilities, asking, trial)
    details.append(("Prompt lengths", fit.how))
    if corpus is not None:
        corpus = replace(corpus, count_tokens=fit.count)
    _require_sendable(trial, abilities)
    prepared = Prepared(
        trial=trial,
        url=target.url,
        host=urlsplit(target.url).netloc.rpartition("@")[2],
        base_path=urlsplit(target.url).path,
        headers=target.headers,
        verify_tls=target.verify_tls,
        abilities=abilities,
        corpus=corpus,
        count_tokens=fit.count,
        fitted=fit.fitted,
        details=tuple(details),
        conditions=StageConditions(
            engine=abilities.engine,
            asked_model=abilities.model,
            own_names=identity.own_names,
            in_place_of=_replaced(model, identity, abilities.model),
            versions=identity.versions,
            words_by=fit.words_by,
            added_tokens=max(0, fit.beside),
        ),
        start=start,
    )
    if not control:
        return prepared
    from tgi_bench.dialects.metrics import cache_asker
    from tgi_bench.drive.control_requests import control_pairs, control_requests

    conditions = replace(
        prepared.conditions,
        small_writes=control_requests(prepared),
        control=control_pairs(prepared),
    )
    counted = None if abilities.engine == "tgi" else cache_asker(target.url, asking)
    return replace(prepared, conditions=conditions, cache_counted=counted)


def _replaced(model: str, identity: LoadIdentity, sent: str) -> str:
    """The name that was asked for, where the only one that is listed was sent in its place."""
    listed_alone = identity.models == (sent,)
    return model if listed_alone and model not in (sent, *identity.own_names) else ""


def _require_sendable(trial: LoadTrial, abilities: Abilities) -> None:
    """Raise InputError where the API has no place for what is asked: before the clock starts."""
    options = AskOptions("", trial.stream, trial.sampling, ())
    body_bytes(Ask("a", (("user", "a"),), None, 1), abilities, options)
