"""What a ready server says of itself over HTTP: which engine and version, of which model.

Sources: the routes of text-generation-inference (router/src/server.rs), vLLM, SGLang, llama.cpp and
LiteLLM, as real ones answered them in tests/transcripts.
"""

from __future__ import annotations

from dataclasses import dataclass
from http.client import OK

from tgi_bench.ask import Contact
from tgi_bench.observation import Identity

LIVELINESS = "/health/liveliness"
"""LiteLLM's: its /health asks every backend, which takes seconds and the key."""
ALIVE = "I'm alive!"
_LITELLM = "litellm"
_SETTINGS = "default_generation_settings"
"""llama.cpp's: a key of its /props."""
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}
"""owned_by of /v1/models."""


@dataclass(frozen=True, slots=True)
class Info:
    """/info. fields: its scalars; {} where it does not answer. version: None: it does not say.

    simulated: True where it says that its times are not those of a device.
    """

    fields: dict[str, str | int | float | bool | None]
    version: str | None
    simulated: bool

    @property
    def is_tgi(self) -> bool:
        """Whether these are the fields of a text-generation-inference router."""
        return self.version is not None and "model_id" in self.fields

    def text(self, name: str) -> str | None:
        """A field that is a text and not empty; None where it is not."""
        return _text(self.fields.get(name))


@dataclass(frozen=True, slots=True)
class Models:
    """What /v1/models lists. engine: as its owner or its headers tell; None where they do not."""

    names: tuple[str, ...]
    engine: str | None


def info_of(contact: Contact) -> Info:
    """What /info says."""
    answer = contact.ask("/info")
    said = {} if answer is None else answer.mapping
    fields = {
        name: value
        for name, value in said.items()
        if isinstance(name, str) and (value is None or isinstance(value, str | int | float))
    }
    return Info(fields, _text(fields.get("version")), fields.get("simulated") is True)


def models_of(contact: Contact) -> Models:
    """What /v1/models says."""
    answer = contact.ask("/v1/models")
    if answer is None:
        return Models((), None)
    listed = answer.mapping.get("data")
    entries = [e for e in (listed if isinstance(listed, list) else []) if isinstance(e, dict)]
    names = tuple(name for entry in entries if (name := _text(entry.get("id"))) is not None)
    owners = (_text(entry.get("owned_by")) for entry in entries)
    engine = next((_OWNERS[owner] for owner in owners if owner in _OWNERS), None)
    if answer.header(b"server") == b"llama.cpp":
        engine = "llamacpp"
    return Models(names, engine)


def identity_of(contact: Contact, info: Info, models: Models) -> Identity:
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
    engine = models.engine or (_LITELLM if is_litellm(contact) else None)
    if engine is None:
        engine, version = _by_its_own_routes(contact)
    else:
        version = _version(contact, engine)
    return Identity(engine=engine, version=version, models=models.names)


def is_litellm(contact: Contact) -> bool:
    """Whether its own health path answers as LiteLLM's does."""
    answer = contact.ask(LIVELINESS)
    return answer is not None and answer.status == OK and answer.json == ALIVE


def _by_its_own_routes(contact: Contact) -> tuple[str | None, str | None]:
    """Engine and version, each None where no route tells."""
    for engine in ("llamacpp", "sglang", "vllm"):
        if (version := _version(contact, engine)) is not None:
            return engine, version
    return None, None


def _version(contact: Contact, engine: str) -> str | None:
    """As the engine's own route says it, and no other's would."""
    match engine:
        case "llamacpp":
            props = _said(contact, "/props")
            return _text(props.get("build_info")) if _SETTINGS in props else None
        case "sglang":
            for path in ("/get_server_info", "/server_info"):
                said = _said(contact, path)
                if "model_path" in said and (version := _text(said.get("version"))) is not None:
                    return version
            return None
        case "vllm":
            said = _said(contact, "/version")
            return _text(said.get("version")) if list(said) == ["version"] else None
        case _:
            return None  # LiteLLM says it with each answer and in no route of its own


def _said(contact: Contact, path: str) -> dict[object, object]:
    answer = contact.ask(path)
    return {} if answer is None else answer.mapping


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
