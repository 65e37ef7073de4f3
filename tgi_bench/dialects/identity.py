"""Who answers at a URL: its engine, its models and its versions, as it states them itself.

What each states was seen on real servers, see tests/transcripts: vLLM's /version, llama.cpp's
header Server and build_info, TGI's /info, litellm's header x-litellm-version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tgi_bench.ask import Asker, Reply
from tgi_bench.dialects.said import count_of, word_of
from tgi_bench.errors import InputError
from tgi_bench.http_rules import NO_KEY
from tgi_bench.inert import shortened

_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}
"""owned_by of /v1/models."""
_LLAMACPP_HEADER = b"llama.cpp"
_LITELLM_HEADER = b"x-litellm-version"
_TGI_VERSIONS = ("version", "sha", "docker_label")
_MOST_NAMES = 10


@dataclass(frozen=True, slots=True)
class LoadIdentity:
    """engine: "" where nothing told. models: the names that it lists, to be asked for.

    unlisted: why it lists none, "" where it does. max_input_tokens: None where it does not say.
    own_names, versions: as of StageConditions.
    """

    engine: str
    models: tuple[str, ...] = ()
    unlisted: str = ""
    max_input_tokens: int | None = None
    own_names: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()

    def named(self, names: tuple[str, ...]) -> LoadIdentity:
        """With more names of its own."""
        added = (*self.own_names, *map(shortened, names))
        return replace(self, own_names=tuple(dict.fromkeys(added)))

    def unlisted_names(self, answered: tuple[str, ...]) -> tuple[str, ...]:
        """Of the names in an answer to the name that was asked for, those that are its own: all
        where it has none yet; else one of its own with a revision or a variant after it, as
        transformers serve has it ("org/model@main"). Another name is another model's."""
        if not self.own_names:
            return answered
        begun = tuple(f"{name}{mark}" for name in self.own_names for mark in "@:")
        return tuple(name for name in answered if name.startswith(begun))

    def stating(self, *versions: tuple[str, str | None]) -> LoadIdentity:
        """With more versions; those that are None are left out."""
        known = tuple((where, shortened(version)) for where, version in versions if version)
        return replace(self, versions=tuple(dict.fromkeys((*self.versions, *known))))

    @property
    def sentence(self) -> str:
        """For a stage's record: "vllm, /version 0.32.0"."""
        stated = [f"{where} {version}" for where, version in self.versions]
        return ", ".join([self.engine or "of no known engine", *stated])


def identified(control: Asker, engine: str) -> LoadIdentity:
    """engine: as Abilities has it; "" is not known and found out.

    Raises InputError where nothing answers, or an API key is wanted.
    """
    if engine in ("", "tgi"):
        info = control.get("/info").mapping
        model = word_of(info.get("model_id"))
        if model is not None and "version" in info:
            limit = count_of(info.get("max_input_tokens", info.get("max_input_length")))
            found = LoadIdentity("tgi", max_input_tokens=limit, own_names=(model,))
            return found.stating(*((f"/info {k}", word_of(info.get(k))) for k in _TGI_VERSIONS))
        if engine == "tgi":
            return LoadIdentity("tgi")
    found, owners, context = _listed(control)
    engine = engine or next((_OWNERS[owner] for owner in owners if owner in _OWNERS), "")
    found = _by_its_own_routes(control, replace(found, engine=engine))
    if found.max_input_tokens is None and context:
        found = replace(found, max_input_tokens=context - 1)
    return found


def with_headers(identity: LoadIdentity, reply: Reply) -> LoadIdentity:
    """As the answer to a request shows it: a proxy names itself in its headers alone."""
    version = reply.header(_LITELLM_HEADER)
    if version is None:
        return identity
    found = identity.stating(("x-litellm-version", version.decode("latin-1")))
    return replace(found, engine=found.engine or "litellm")


def model_to_ask(url: str, identity: LoadIdentity, model: str | None) -> str:
    """The name to send. model: as it was asked for; None or "": the only one that is listed.

    The only one that is listed is taken whatever model is; "" where there is none of either.
    Raises InputError where several are listed, and model is none of them.
    """
    listed = identity.models
    if not listed or model in listed:
        return model or ""
    if len(listed) == 1:
        return listed[0]
    names = ", ".join(shortened(name) for name in listed[:_MOST_NAMES])
    more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
    said = f"{url} serves {names}{more}"
    if model:
        said = f"{url} does not serve {model}; it serves {names}{more}"
    raise InputError(f"{said}: name one of them as the model (`tgi-bench load`: --model)")


def _listed(control: Asker) -> tuple[LoadIdentity, list[str], int | None]:
    """What /v1/models says: names, who owns them, and the context of the first (vLLM, SGLang)."""
    reply = control.get("/v1/models")
    if reply.status in NO_KEY:
        raise control.key_missing(reply)
    listed = reply.mapping.get("data")
    entries = [e for e in (listed if isinstance(listed, list) else []) if isinstance(e, dict)]
    names = tuple(name for e in entries if (name := word_of(e.get("id"))) is not None)
    others = [e.get("root") for e in entries]
    for entry in entries:
        aliases = entry.get("aliases")
        others += aliases if isinstance(aliases, list) else []
    own = (*names, *(name for other in others if (name := word_of(other)) is not None))
    unlisted = ""
    if not names:
        said = "an empty list" if reply.status == 200 else shortened(reply.sentence)
        unlisted = f"/v1/models says no model: {said}"
    owners = [word_of(entry.get("owned_by")) or "" for entry in entries]
    if (reply.header(b"server") or b"") == _LLAMACPP_HEADER:
        owners.insert(0, "llamacpp")
    context = count_of(entries[0].get("max_model_len")) if entries else None
    return LoadIdentity("", names, unlisted).named(own), owners, context


def _by_its_own_routes(control: Asker, found: LoadIdentity) -> LoadIdentity:
    """What the engine's own routes tell; where it is not known, the one that answers names it."""
    if found.engine in ("", "llamacpp"):
        props = control.get("/props").mapping
        settings = props.get("default_generation_settings")
        if isinstance(settings, dict):
            context = count_of(settings.get("n_ctx"))
            names = (word_of(props.get("model_alias")), word_of(props.get("model_path")))
            found = found.named(tuple(name for name in names if name is not None))
            found = found.stating(("build_info", word_of(props.get("build_info"))))
            limit = context - 1 if context else None
            return replace(found, engine="llamacpp", max_input_tokens=limit)
    if found.engine in ("", "sglang"):
        path = word_of(control.get("/get_model_info").mapping.get("model_path"))
        if path is not None:
            return replace(found.named((path,)), engine="sglang")
    if found.engine in ("", "vllm"):
        said = control.get("/version").mapping
        version = word_of(said.get("version"))
        if version is not None and list(said) == ["version"]:
            return replace(found.stating(("/version", version)), engine="vllm")
    return found
