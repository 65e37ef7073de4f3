"""What a server can do, found by asking it: before the clock of a load starts, and for the one
token that makes a started server ready."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from tgi_bench.ask import Asker, Asking, Reply
from tgi_bench.dialects.answer import Answer, Reading, count_of
from tgi_bench.dialects.dialect import Abilities, Ask, AskOptions, Dialect, body_bytes
from tgi_bench.dialects.engine_ways import TOKENIZE_PATH, ways_of
from tgi_bench.dialects.identity import LoadIdentity, identified
from tgi_bench.dialects.reading import read_answer
from tgi_bench.errors import NAME_THE_KEY, InputError
from tgi_bench.http_rules import NO_KEY
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.sections.section import Sampling

_GREEDY = Sampling(False, None, None, None, None, None, False)
_PROBE = Ask(
    prompt="time year people way day man thing woman life child world school state family student",
    messages=(),
    prompt_tokens=8,
    output_tokens=12,
)
"""More words than the tokens that it may be cut to; enough tokens to be several events."""
_NO_ROUTE = (404, 405, 501)
_REFUSED = (400, 422)
_KEY_WORDS = re.compile(r"\bapi[ _-]?key|\bauth|\bno_db_connection\b", re.IGNORECASE)
"""In what servers say of a key that they do not take, whatever their status; the last is what
litellm says without a database."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """What a server can do, and who it says it is."""

    abilities: Abilities
    identity: LoadIdentity


def find_out(
    url: str, engine: str, dialects: Sequence[Dialect], model: str | None, options: Asking
) -> FoundServer:
    """How to speak to the server at url: in the first of the dialects that it answers.

    engine: as Abilities has it; "" is not known and found out. model: None or "": the only one
    that it lists, which is taken whatever model is.
    Of several dialects those of other engines are left out. What is said of the OpenAI APIs comes
    from real requests for a few tokens: cutting of prompts, the usage chunk and the counts of
    events are seen to work; ignore_eos and min_tokens are only seen to be accepted, for a server
    may ignore what it does not know.
    Raises InputError where nothing answers as asked.
    """
    with Asker(url, options) as asker:
        identity = identified(asker, engine)
        reasons = []
        named = True
        for dialect in dialects:
            if len(dialects) > 1 and dialect.engines and identity.engine not in dialect.engines:
                continue
            best = dialect.best(identity, model)
            named = bool(best.model) or not dialect.takes_model
            found = _found(asker, identity, best)
            if isinstance(found, FoundServer):
                return found
            reasons.append(found)
        if not named and identity.unlisted:
            reasons.append(
                f"{identity.unlisted}: where it wants a name, give the model (`tgi-bench load`: "
                "--model)"
            )
        raise InputError("; ".join(reasons))


def asked(asker: Asker, able: Abilities, ask: Ask, stream: bool) -> tuple[Reply, Reading]:
    """A greedy request, and what its answer means. Raises NoAnswerError where none comes."""
    options = AskOptions(host="", stream=stream, sampling=_GREEDY, headers=())
    reply = asker.post(able.dialect.path(stream), body_bytes(ask, able, options))
    answer = Answer(reply.status, reply.headers, ((0, reply.body),), 0, 0, None, "")
    return reply, read_answer(answer, able, stream, ask, None)


def tokens_of(asker: Asker, able: Abilities, text: str) -> int | None:
    """Tokens of a prompt, by the server's own tokenizer, which adds what it adds to prompts; None
    where the server has no such path or does not tell a count.

    Raises InputError where it wants an API key: TGI wants none for all that is asked before.
    """
    if able.tokenize_path is None:
        return None
    # Where no engine is known all keys are sent: each takes its own and ignores the others.
    values = {"model": able.model, "add_special": True}
    body = {key: values.get(key, text) for key in ways_of(able.engine).tokenizes}
    reply = asker.post(able.tokenize_path, orjson.dumps(body))
    if reply.status in NO_KEY:
        raise asker.key_missing(reply)
    if reply.status != 200:
        return None
    match reply.json:
        case {"count": int(count)}:
            found = count_of(count) or 0
        case list(tokens) | {"tokens": list(tokens)}:
            found = len(tokens)
        case _:
            found = 0
    return found or None


def _found(asker: Asker, identity: LoadIdentity, able: Abilities) -> FoundServer | str:
    """What it can do in that dialect, or why it does not answer in it."""
    if identity.engine not in able.dialect.engines:
        proof = _proved(asker, able)
        if isinstance(proof, str):
            return proof
        able, reply, reading = proof
        identity = replace(identity, engine=able.engine).with_headers(reply)
        identity = identity.named(identity.unlisted_names(reading.models))
        identity = identity.stating(*(("system_fingerprint", f) for f in reading.fingerprints))
        able = replace(able.dialect.shown(able, reading, _PROBE), engine=identity.engine)
    counted = tokens_of(asker, replace(able, tokenize_path=TOKENIZE_PATH), _PROBE.prompt)
    path = None if counted is None else TOKENIZE_PATH
    return FoundServer(replace(able, tokenize_path=path), identity)


def _proved(asker: Asker, able: Abilities) -> tuple[Abilities, Reply, Reading] | str:
    """The most that it takes, and the answer; or why it does not answer."""
    stream = able.dialect.asked_streamed
    while True:
        reply, reading = asked(asker, able, _PROBE, stream)
        if reply.status in NO_KEY:
            raise asker.key_missing(reply)
        if reading.outcome is RequestOutcome.OK:
            return able, reply, reading
        if reading.outcome is RequestOutcome.OVERLOADED:
            raise InputError(f"{asker.url} takes no request now: {reading.reason}")
        said = reply.body.decode(errors="replace")
        refused = reply.status in _REFUSED and not _KEY_WORDS.search(said)
        less = able.dialect.less(able, said) if refused else None
        if less is None:
            where = f"{asker.url}{able.dialect.path(stream)}"
            if reply.status in _NO_ROUTE:
                return f"{where} is not there: {reply.sentence}"
            return f"{where} gave no token: {reading.reason}{_of_a_key(asker, reply)}"
        able = less


def _of_a_key(asker: Asker, reply: Reply) -> str:
    """A hint, where a refusal may be for want of a key: litellm says 500 or 400 then."""
    if not _KEY_WORDS.search(reply.body.decode(errors="replace")):
        if asker.has_key or reply.status < 500:
            return ""
        return f"; where it wants an API key, {NAME_THE_KEY}"
    return "; it may want another API key" if asker.has_key else f"; {NAME_THE_KEY}"
