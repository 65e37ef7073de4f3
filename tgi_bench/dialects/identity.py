"""Who answers at a URL: its engine, its models and its versions, as it states them itself.

Of a server that was started or attached to (`identity_of`), and of one that a load goes to
(`identified`). What each engine states was seen on real ones, see tests/transcripts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tgi_bench.ask import Asker, Contact, Reply
from tgi_bench.dialects.answer import count_of, word_of
from tgi_bench.errors import InputError
from tgi_bench.http_rules import NO_KEY
from tgi_bench.inert import shortened
from tgi_bench.observation import Identity

LIVELINESS = "/health/liveliness"
"""LiteLLM's: its /health asks every backend, which takes seconds and the key."""
ALIVE = "I'm alive!"
_LITELLM = "litellm"
_LITELLM_HEADER = b"x-litellm-version"
_OWNERS = frozenset({"vllm", "sglang", "llamacpp"})
"""owned_by of /v1/models, which are the engines' names."""
_TGI_VERSIONS = ("version", "sha", "docker_label")
_SGLANG_PATHS = ("/get_server_info", "/server_info", "/get_model_info")
"""The last is there in all versions, and says no version."""
_MOST_NAMES = 10

Get = Callable[[str], Reply]
"""Answers a path; with a status of 0 where nothing does."""


@dataclass(frozen=True, slots=True)
class Info:
    """/info. fields: its scalars; {} where it does not answer."""

    fields: dict[str, str | int | float | bool | None]

    @property
    def version(self) -> str | None:
        """None: it does not say."""
        return self.text("version")

    @property
    def simulated(self) -> bool:
        """Whether it says that its times are not those of a device."""
        return self.fields.get("simulated") is True

    @property
    def is_tgi(self) -> bool:
        """Whether these are the fields of a text-generation-inference router."""
        return self.version is not None and "model_id" in self.fields

    def text(self, name: str) -> str | None:
        """A field that is a text and not empty; None where it is not."""
        return word_of(self.fields.get(name))


@dataclass(frozen=True, slots=True)
class Models:
    """What /v1/models lists.

    engine: as an owner or the headers tell, "" where they do not. own_names: names, and what else
    they are called there. context: of the first, in tokens. unlisted: why there is no name, ""
    where there is one.
    """

    names: tuple[str, ...]
    engine: str
    own_names: tuple[str, ...] = ()
    context: int | None = None
    unlisted: str = ""

    @classmethod
    def of(cls, reply: Reply) -> Models:
        """As it was answered."""
        listed = reply.mapping.get("data")
        entries = [e for e in (listed if isinstance(listed, list) else []) if isinstance(e, dict)]
        names = tuple(name for e in entries if (name := word_of(e.get("id"))) is not None)
        others = [e.get("root") for e in entries]
        for entry in entries:
            aliases = entry.get("aliases")
            others += aliases if isinstance(aliases, list) else []
        owners = [word_of(entry.get("owned_by")) for entry in entries]
        engine = next((owner for owner in owners if owner in _OWNERS), None)
        if reply.header(b"server") == b"llama.cpp":
            engine = "llamacpp"
        said = "an empty list" if reply.status == 200 else shortened(reply.sentence)
        return cls(
            names,
            engine or "",
            (*names, *(name for other in others if (name := word_of(other)) is not None)),
            count_of(entries[0].get("max_model_len")) if entries else None,
            "" if names else f"/v1/models says no model: {said}",
        )


@dataclass(frozen=True, slots=True)
class OwnRoute:
    """What a route says that only one engine has.

    version: None: it does not say; stated_by: the route or its field. context: in tokens.
    """

    engine: str
    names: tuple[str, ...] = ()
    stated_by: str = ""
    version: str | None = None
    context: int | None = None


def by_own_route(get: Get, engine: str) -> OwnRoute | None:
    """engine: whose route is asked; "": of each in turn, until one answers as its own would."""
    if engine in ("", "llamacpp"):
        props = get("/props").mapping
        settings = props.get("default_generation_settings")
        if isinstance(settings, dict):
            said = (word_of(props.get("model_alias")), word_of(props.get("model_path")))
            names = tuple(name for name in said if name is not None)
            build, context = word_of(props.get("build_info")), count_of(settings.get("n_ctx"))
            return OwnRoute("llamacpp", names, "build_info", build, context)
    if engine in ("", "sglang"):
        for path in _SGLANG_PATHS:
            info = get(path).mapping
            model = word_of(info.get("model_path"))
            if model is not None:
                return OwnRoute("sglang", (model,), path, word_of(info.get("version")))
    if engine in ("", "vllm"):
        told = get("/version").mapping
        version = word_of(told.get("version"))
        if version is not None and list(told) == ["version"]:
            return OwnRoute("vllm", (), "/version", version)
    return None  # LiteLLM says it with each answer and in no route of its own


def info_of(get: Get) -> Info:
    """What /info says."""
    return Info(
        {
            name: value
            for name, value in get("/info").mapping.items()
            if isinstance(name, str) and (value is None or isinstance(value, str | int | float))
        }
    )


def asked_by(contact: Contact) -> Get:
    """Its questions, each answered soon or not at all."""
    return lambda path: contact.ask(path) or Reply(0, (), b"")


def identity_of(get: Get, info: Info, models: Models) -> Identity:
    """What it is, as its own words tell. models: looked at where it is no TGI."""
    if info.is_tgi:
        model = info.text("model_id")
        return Identity(
            engine="tgi",
            version=info.version,
            models=() if model is None else (model,),
            revision=info.text("model_sha"),
            sha=info.text("sha"),
            docker_label=info.text("docker_label"),
            device_type=info.text("model_device_type"),
            dtype=info.text("model_dtype"),
        )
    engine = models.engine or (_LITELLM if is_litellm(get) else "")
    route = by_own_route(get, engine)
    if route is None:
        return Identity(engine=engine or None, version=None, models=models.names)
    return Identity(engine=route.engine, version=route.version, models=models.names)


def is_litellm(get: Get) -> bool:
    """Whether its own health path answers as LiteLLM's does."""
    reply = get(LIVELINESS)
    return reply.status == 200 and reply.json == ALIVE


@dataclass(frozen=True, slots=True)
class LoadIdentity:
    """Of a server that a load goes to. engine: "" where nothing told. models: the names that it
    lists, to be asked for.

    unlisted: as of Models. max_input_tokens: None where it does not say.
    own_names, versions: as of StageConditions.
    """

    url: str
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

    def with_headers(self, reply: Reply) -> LoadIdentity:
        """As the answer to a request shows it: a proxy names itself in its headers alone."""
        version = reply.header(_LITELLM_HEADER)
        if version is None:
            return self
        found = self.stating(("x-litellm-version", version.decode("latin-1")))
        return replace(found, engine=found.engine or _LITELLM)

    def model_to_ask(self, model: str | None) -> str:
        """The name to send. model: as it was asked for; None or "": the only one that is listed.

        The only one that is listed is taken whatever model is; "" where there is none of either.
        Raises InputError where several are listed, and model is none of them.
        """
        listed = self.models
        if not listed or model in listed:
            return model or ""
        if len(listed) == 1:
            return listed[0]
        names = ", ".join(shortened(name) for name in listed[:_MOST_NAMES])
        more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
        said = f"{self.url} serves {names}{more}"
        if model:
            said = f"{self.url} does not serve {model}; it serves {names}{more}"
        raise InputError(f"{said}: name one of them as the model (`tgi-bench load`: --model)")

    @property
    def sentence(self) -> str:
        """For a stage's record: "vllm, /version 0.32.0"."""
        stated = [f"{where} {version}" for where, version in self.versions]
        return ", ".join([self.engine or "of no known engine", *stated])


def identified(asker: Asker, engine: str) -> LoadIdentity:
    """engine: as Abilities has it; "" is not known and found out.

    Raises InputError where nothing answers, or an API key is wanted.
    """
    if engine in ("", "tgi"):
        info = info_of(asker.get)
        model = info.text("model_id")
        if model is not None and "version" in info.fields:
            fields = info.fields
            limit = count_of(fields.get("max_input_tokens", fields.get("max_input_length")))
            found = LoadIdentity(asker.url, "tgi", max_input_tokens=limit, own_names=(model,))
            return found.stating(*((f"/info {k}", info.text(k)) for k in _TGI_VERSIONS))
        if engine == "tgi":
            return LoadIdentity(asker.url, "tgi")
    reply = asker.get("/v1/models")
    if reply.status in NO_KEY:
        raise asker.key_missing(reply)
    models = Models.of(reply)
    found = LoadIdentity(asker.url, engine or models.engine, models.names, models.unlisted)
    found = found.named(models.own_names)
    context = models.context
    if (route := by_own_route(asker.get, found.engine)) is not None:
        found = replace(found.named(route.names), engine=route.engine)
        found = found.stating((route.stated_by, route.version))
        context = route.context or context
    return replace(found, max_input_tokens=context - 1 if context else None)
