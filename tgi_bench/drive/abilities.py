"""What a server can do, found by asking it, before the clock of a load starts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tgi_bench.drive.answer_reading import read_answer
from tgi_bench.drive.control import Asking, Control, Reply
from tgi_bench.drive.dialects import AskOptions, body_bytes, target
from tgi_bench.drive.reading import Abilities, Ask, Reading
from tgi_bench.drive.said import count_of, shortened, word_of
from tgi_bench.drive.tokenize_route import TOKENIZE_PATH, tokens_of
from tgi_bench.errors import InputError
from tgi_bench.load_observation import RequestOutcome, TokenSource
from tgi_bench.plan.load_trial import Spoken
from tgi_bench.plan.sampling import Sampling

__all__ = ["Asking", "find_out"]

_GREEDY = Sampling(False, None, None, None, None, None, False)
_PROBE = Ask(
    prompt="time year people way day man thing woman life child world school state family student",
    messages=(),
    prompt_tokens=8,
    output_tokens=1,
)
"""One token; more words than the tokens that it may be cut to."""
_NO_KEY = (401, 403)
_NO_ROUTE = (404, 405, 501)
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}
"""owned_by of /v1/models."""


@dataclass(frozen=True, slots=True)
class _Model:
    """One of /v1/models. context_tokens: vLLM's and SGLang's max_model_len, or None."""

    name: str
    owner: str
    context_tokens: int | None


@dataclass(frozen=True, slots=True)
class _Server:
    """engine: "" where nothing told. max_input_tokens: None where it does not say."""

    engine: str
    models: tuple[_Model, ...]
    max_input_tokens: int | None


def find_out(
    url: str, engine: str, spoken: Spoken, model: str | None, options: Asking
) -> Abilities:
    """How to speak to the server at url.

    engine: as Abilities has it; "" is not known and found out. model: None or "": the first that
    it serves; the only one that it serves is taken whatever model is.
    AUTO is TGI's own API where the server is TGI, else /v1/completions, else
    /v1/chat/completions. What is said of the OpenAI APIs comes from real requests for one token:
    cutting of prompts and the usage chunk are seen to work; ignore_eos and min_tokens are only
    seen to be accepted, for a server may ignore what it does not know.
    Raises InputError where nothing answers as asked.
    """
    with Control(url, options) as control:
        server = _identified(control, engine)
        if server.engine == "tgi" and spoken in (Spoken.AUTO, Spoken.TGI):
            return _tgi(control, server)
        if spoken is Spoken.TGI:
            _check_generate(control)
            return _tgi(control, server)
        name = "tgi" if server.engine == "tgi" else _name(control, server, model)
        reasons = []
        for candidate in (Spoken.COMPLETIONS, Spoken.CHAT):
            if spoken in (Spoken.AUTO, candidate):
                found = _openai(control, server, candidate, name)
                if isinstance(found, Abilities):
                    return found
                reasons.append(found)
        raise InputError("; ".join(reasons))


def _identified(control: Control, engine: str) -> _Server:
    if engine in ("", "tgi"):
        info = _mapping(control.get("/info"))
        if word_of(info.get("model_id")) is not None and "version" in info:
            limit = count_of(info.get("max_input_tokens", info.get("max_input_length")))
            return _Server("tgi", (), limit)
        if engine == "tgi":
            return _Server("tgi", (), None)
    models = _models(control)
    engine = engine or next((_OWNERS[m.owner] for m in models if m.owner in _OWNERS), "")
    engine = engine or _by_its_own_routes(control)
    context = models[0].context_tokens if models else None
    if engine == "llamacpp":
        settings = _mapping(control.get("/props")).get("default_generation_settings")
        context = count_of(settings.get("n_ctx")) if isinstance(settings, dict) else None
    return _Server(engine, models, context - 1 if context else None)


def _by_its_own_routes(control: Control) -> str:
    """The engine whose own route answers as it does; "" where none does."""
    if "default_generation_settings" in _mapping(control.get("/props")):
        return "llamacpp"
    if "model_path" in _mapping(control.get("/get_model_info")):
        return "sglang"
    version = _mapping(control.get("/version"))
    return "vllm" if list(version) == ["version"] else ""


def _models(control: Control) -> tuple[_Model, ...]:
    reply = control.get("/v1/models")
    if reply.status in _NO_KEY:
        raise _key_missing(control, reply)
    listed = _mapping(reply).get("data")
    return tuple(
        _Model(
            name=name,
            owner=word_of(entry.get("owned_by")) or "",
            context_tokens=count_of(entry.get("max_model_len")),
        )
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict) and (name := word_of(entry.get("id"))) is not None
    )


def _name(control: Control, server: _Server, model: str | None) -> str:
    served = [entry.name for entry in server.models]
    if not served or model in served:
        return model or ""
    if model and len(served) > 1:
        names = ", ".join(served[:10])
        raise InputError(f"{control.url} does not serve {model}; it serves {names}")
    return served[0]


def _tgi(control: Control, server: _Server) -> Abilities:
    able = Abilities(
        spoken=Spoken.TGI,
        model="",
        engine="tgi",
        truncates=True,
        tokenize_path=None,
        ignores_eos=None,
        usage=False,
        max_input_tokens=server.max_input_tokens,
    )
    return replace(able, tokenize_path=_tokenize_path(control, able))


def _check_generate(control: Control) -> None:
    """Raises InputError where one token does not come from TGI's own route."""
    able = _tgi_able()
    reply, reading = _probed(control, able, stream=False)
    if reading.outcome is not RequestOutcome.OK:
        raise InputError(_refused(control, able, reply, reading, stream=False))


def _tgi_able() -> Abilities:
    return Abilities(Spoken.TGI, "", "tgi", False, None, None, False, None)


def _openai(control: Control, server: _Server, spoken: Spoken, model: str) -> Abilities | str:
    """What it can do there, or why it does not answer there."""
    plain = Abilities(
        spoken=spoken,
        model=model,
        engine=server.engine,
        truncates=False,
        tokenize_path=None,
        ignores_eos=None,
        usage=False,
        max_input_tokens=server.max_input_tokens,
    )
    most = replace(
        plain,
        usage=True,
        # TGI takes no such key and ignores it without a word.
        ignores_eos=None if server.engine == "tgi" else "ignore_eos",
        truncates=server.engine in ("vllm", ""),
    )
    _, reading = _probed(control, most)
    if reading.outcome is RequestOutcome.OK:
        able = _in_effect(most, reading)
    else:
        reply, reading = _probed(control, plain)
        if reading.outcome is not RequestOutcome.OK:
            return _refused(control, plain, reply, reading)
        able = _one_by_one(control, plain, most)
    return replace(able, tokenize_path=_tokenize_path(control, able))


def _one_by_one(control: Control, plain: Abilities, most: Abilities) -> Abilities:
    """Of the keys that were refused together, those that are accepted alone."""
    able = plain
    candidates = [replace(plain, usage=True), replace(plain, usage=True, truncates=most.truncates)]
    for candidate in candidates:
        _, reading = _probed(control, candidate)
        if reading.outcome is RequestOutcome.OK:
            able = _in_effect(candidate, reading)
    for key in ("ignore_eos", "min_tokens") if most.ignores_eos else ():
        _, reading = _probed(control, replace(plain, ignores_eos=key))
        if reading.outcome is RequestOutcome.OK:
            return replace(able, ignores_eos=key)
    return able


def _in_effect(asked: Abilities, reading: Reading) -> Abilities:
    """Less what the answer does not show."""
    return replace(
        asked,
        usage=reading.counted_by is TokenSource.USAGE,
        truncates=asked.truncates and reading.prompt_tokens == _PROBE.prompt_tokens,
    )


def _probed(control: Control, able: Abilities, stream: bool = True) -> tuple[Reply, Reading]:
    options = AskOptions(host="", stream=stream, sampling=_GREEDY, headers=())
    reply = control.post(target(able, stream), body_bytes(_PROBE, able, options))
    if reply.status in _NO_KEY:
        raise _key_missing(control, reply)
    reading = read_answer(reply.answer, able, stream, _PROBE, None)
    if reading.outcome is RequestOutcome.OVERLOADED:
        raise InputError(f"{control.url} takes no request now: {reading.reason}")
    return reply, reading


def _refused(
    control: Control, able: Abilities, reply: Reply, reading: Reading, stream: bool = True
) -> str:
    where = f"{control.url}{target(able, stream)}"
    if reply.status in _NO_ROUTE:
        return f"{where} is not there: {reply.sentence}"
    return f"{where} gave no token: {reading.reason}"


def _key_missing(control: Control, reply: Reply) -> InputError:
    said = shortened(reply.sentence)
    if control.has_key:
        return InputError(f"{control.url} wants another API key: {said}")
    return InputError(
        f"{control.url} wants an API key: {said}; name the environment variable that holds it in "
        "server.env (`tgi-bench load`: --api-key-env)"
    )


def _tokenize_path(control: Control, able: Abilities) -> str | None:
    found = tokens_of(control, replace(able, tokenize_path=TOKENIZE_PATH), _PROBE.prompt)
    return None if found is None else TOKENIZE_PATH


def _mapping(reply: Reply) -> dict[object, object]:
    """The body of a 200 as an object; {} where it is none."""
    said = reply.json if reply.status == 200 else None
    return dict(said) if isinstance(said, dict) else {}
