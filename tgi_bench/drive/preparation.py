"""What a load needs before its clock starts: the server asked, files read, prompts made exact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tgi_bench.dialects import speaking
from tgi_bench.dialects.dialect import Abilities, Ask, AskOptions, body_bytes
from tgi_bench.dialects.identity import LoadIdentity
from tgi_bench.drive.prepared import Prepared
from tgi_bench.drive.quick_acknowledgement import require_quick_acknowledgements
from tgi_bench.load_observation import StageConditions
from tgi_bench.plan.load_trial import LoadTrial
from tgi_bench.plan.plan import ANY_MODEL


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
        from tgi_bench.drive.corpus_file import read_corpus

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
    from tgi_bench.drive.cache_counters import asker
    from tgi_bench.drive.control_pairs import control_pairs
    from tgi_bench.drive.small_writes import control_requests

    conditions = replace(
        prepared.conditions,
        small_writes=control_requests(prepared),
        control=control_pairs(prepared),
    )
    counted = None if abilities.engine == "tgi" else asker(target.url, asking)
    return replace(prepared, conditions=conditions, cache_counted=counted)


def _replaced(model: str, identity: LoadIdentity, sent: str) -> str:
    """The name that was asked for, where the only one that is listed was sent in its place."""
    listed_alone = identity.models == (sent,)
    return model if listed_alone and model not in (sent, *identity.own_names) else ""


def _require_sendable(trial: LoadTrial, abilities: Abilities) -> None:
    """Raise InputError where the API has no place for what is asked: before the clock starts."""
    options = AskOptions("", trial.stream, trial.sampling, ())
    body_bytes(Ask("a", (("user", "a"),), None, 1), abilities, options)
