"""What a server can do, found by asking it, before the clock of a load starts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tgi_bench.ask import Asker, Asking, Reply
from tgi_bench.dialects.answer import answer_of, read_answer
from tgi_bench.dialects.dialect import Abilities, Ask, Reading
from tgi_bench.dialects.identity import (
    LoadIdentity,
    identified,
    model_to_ask,
    with_headers,
)
from tgi_bench.dialects.openai import AskOptions, body_bytes, target
from tgi_bench.dialects.sampling import Sampling
from tgi_bench.dialects.tokenize_route import TOKENIZE_PATH, tokens_of
from tgi_bench.errors import NAME_THE_KEY, InputError
from tgi_bench.http_rules import NO_KEY
from tgi_bench.load_observation import RequestOutcome, TokenSource
from tgi_bench.plan.load_trial import Spoken

__all__ = ["Asking", "FoundServer", "find_out"]

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
_IN_STREAM_OPTIONS = ("continuous_usage_stats",)
_KEY_WORDS = re.compile(r"\bapi[ _-]?key|\bauth|\bno_db_connection\b", re.IGNORECASE)
"""In what servers say of a key that they do not take, whatever their status; the last is what
litellm says without a database."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """What a server can do, and who it says it is."""

    abilities: Abilities
    identity: LoadIdentity


def find_out(
    url: str, engine: str, spoken: Spoken, model: str | None, options: Asking
) -> FoundServer:
    """How to speak to the server at url.

    engine: as Abilities has it; "" is not known and found out. model: None or "": the only one
    that it lists, which is taken whatever model is.
    AUTO is TGI's own API where the server is TGI, else /v1/completions, else
    /v1/chat/completions. What is said of the OpenAI APIs comes from real requests for a few
    tokens: cutting of prompts, the usage chunk and the counts of events are seen to work;
    ignore_eos and min_tokens are only seen to be accepted, for a server may ignore what it does
    not know.
    Raises InputError where nothing answers as asked.
    """
    with Asker(url, options) as control:
        identity = identified(control, engine)
        if identity.engine == "tgi" and spoken in (Spoken.AUTO, Spoken.TGI):
            return _tgi(control, identity)
        if spoken is Spoken.TGI:
            _check_generate(control)
            return _tgi(control, replace(identity, engine="tgi"))
        name = "tgi" if identity.engine == "tgi" else model_to_ask(control.url, identity, model)
        reasons = []
        for candidate in (Spoken.COMPLETIONS, Spoken.CHAT):
            if spoken in (Spoken.AUTO, candidate):
                found = _openai(control, identity, candidate, name)
                if isinstance(found, FoundServer):
                    return found
                reasons.append(found)
        if not name and identity.unlisted:
            reasons.append(
                f"{identity.unlisted}: where it wants a name, give the model (`tgi-bench load`: "
                "--model)"
            )
        raise InputError("; ".join(reasons))


def _tgi(control: Asker, identity: LoadIdentity) -> FoundServer:
    able = replace(_tgi_able(), truncates=True, max_input_tokens=identity.max_input_tokens)
    return FoundServer(replace(able, tokenize_path=_tokenize_path(control, able)), identity)


def _check_generate(control: Asker) -> None:
    """Raises InputError where one token does not come from TGI's own route."""
    able = _tgi_able()
    reply, reading = _probed(control, able, stream=False)
    if reading.outcome is not RequestOutcome.OK:
        raise InputError(_refused(control, able, reply, reading, stream=False))


def _tgi_able() -> Abilities:
    return Abilities(Spoken.TGI, "", "tgi", False, None, None, False, None)


def _openai(
    control: Asker, identity: LoadIdentity, spoken: Spoken, model: str
) -> FoundServer | str:
    """What it can do there, or why it does not answer there."""
    engine = identity.engine
    able = Abilities(
        spoken=spoken,
        model=model,
        engine=engine,
        truncates=engine in ("vllm", ""),
        tokenize_path=None,
        # TGI takes no such key and ignores it without a word.
        ignores_eos=None if engine == "tgi" else "ignore_eos",
        usage=True,
        max_input_tokens=identity.max_input_tokens,
        counts_each=_count_of_events(engine),
    )
    while True:
        reply, reading = _probed(control, able)
        if reading.outcome is RequestOutcome.OK:
            break
        less = _less(able, reply)
        if less is None:
            return _refused(control, able, reply, reading)
        able = less
    identity = with_headers(identity, reply)
    identity = identity.named(identity.unlisted_names(reading.models))
    identity = identity.stating(*(("system_fingerprint", f) for f in reading.fingerprints))
    able = replace(_in_effect(able, reading), engine=identity.engine)
    return FoundServer(replace(able, tokenize_path=_tokenize_path(control, able)), identity)


def _count_of_events(engine: str) -> str | None:
    """The key that makes every event say how many tokens there were until then."""
    if engine == "tgi":
        return None
    return "timings_per_token" if engine == "llamacpp" else "continuous_usage_stats"


def _less(able: Abilities, reply: Reply) -> Abilities | None:
    """Asked without the keys that a refusal names; without the least needed one where it names
    none, as long as there is one. min_tokens takes the place of ignore_eos."""
    said = reply.body.decode(errors="replace")
    if reply.status not in _REFUSED or _KEY_WORDS.search(said):
        return None
    keys = able.optional_keys
    # Least needed first: what stands in stream_options is named with it.
    named = [key for key in keys if re.search(rf"\b{key}\b", said)]
    if named and named[0] in _IN_STREAM_OPTIONS:
        named = named[:1]
    for key in named or keys[:1]:
        able = able.without(key)
    return able if keys else None


def _in_effect(asked: Abilities, reading: Reading) -> Abilities:
    """Less what the answer does not show."""
    return replace(
        asked,
        usage=asked.usage and reading.counted_by is TokenSource.USAGE,
        truncates=asked.truncates and reading.prompt_tokens == _PROBE.prompt_tokens,
        counts_each=asked.counts_each if reading.counted_each else None,
    )


def _probed(control: Asker, able: Abilities, stream: bool = True) -> tuple[Reply, Reading]:
    options = AskOptions(host="", stream=stream, sampling=_GREEDY, headers=())
    reply = control.post(target(able, stream), body_bytes(_PROBE, able, options))
    if reply.status in NO_KEY:
        raise control.key_missing(reply)
    reading = read_answer(answer_of(reply), able, stream, _PROBE, None)
    if reading.outcome is RequestOutcome.OVERLOADED:
        raise InputError(f"{control.url} takes no request now: {reading.reason}")
    return reply, reading


def _refused(
    control: Asker, able: Abilities, reply: Reply, reading: Reading, stream: bool = True
) -> str:
    where = f"{control.url}{target(able, stream)}"
    if reply.status in _NO_ROUTE:
        return f"{where} is not there: {reply.sentence}"
    return f"{where} gave no token: {reading.reason}{_of_a_key(control, reply)}"


def _of_a_key(control: Asker, reply: Reply) -> str:
    """A hint, where a refusal may be for want of a key: litellm says 500 or 400 then."""
    if not _KEY_WORDS.search(reply.body.decode(errors="replace")):
        if control.has_key or reply.status < 500:
            return ""
        return f"; where it wants an API key, {NAME_THE_KEY}"
    return "; it may want another API key" if control.has_key else f"; {NAME_THE_KEY}"


def _tokenize_path(control: Asker, able: Abilities) -> str | None:
    found = tokens_of(control, replace(able, tokenize_path=TOKENIZE_PATH), _PROBE.prompt)
    return None if found is None else TOKENIZE_PATH
