"""Values of the keys that say where a server runs: read, or refused in one sentence."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import JsonValue
from pydantic_core import PydanticCustomError

from tgi_bench.engines.engine import secret_in
from tgi_bench.words import shown

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_VOLUME = re.compile(r"(?:/[^:]*|[A-Za-z0-9][A-Za-z0-9_.-]*):/[^:]*(?::(?:ro|rw)(?:,[zZ])?)?")
_GPUS = re.compile(r"all|\d{1,4}|[\w-]{1,80},|[\w-]{1,80}(?:,[\w-]{1,80})+", re.ASCII)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_OWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
SECRET_HEADER = re.compile(r"token|key|secret|pass|credential|auth|cookie|session", re.IGNORECASE)
_REFERENCE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\}|\$)", re.ASCII)
_NAMED = re.compile(
    r"(?:[A-Za-z-]{1,16} |[\w.-]{1,32}=)?\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.ASCII
)
_MOST_SOCKET_BYTES = 107
_MOST_GPUS = 1024

_OWN_OPTIONS = {
    "environment": "server.env",
    "volumes": "server.docker.volumes",
    "mounts": "server.docker.volumes",
    "network": "server.docker.network",
    "network_mode": "server.docker.network",
    "shm_size": "server.docker.shm_size",
    "device_requests": "server.docker.gpus",
    "image": "server.image",
    "command": "server.constant and server.variable",
    **dict.fromkeys(
        ("ports", "name", "labels", "detach", "remove", "auto_remove", "stdout", "stderr"), ""
    ),
}


def refused(message: str) -> PydanticCustomError:
    """What pydantic takes as a refusal in our words."""
    return PydanticCustomError("refused", "{said}", {"said": message})


def command_words(value: object) -> list[str]:
    """A command as a shell would split it, or as a list of its words; [] is the engine's own."""
    if value == []:
        return []
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise refused(f"is no command: {error}") from None
    else:
        words = _texts(value, "a command, as a string or as a list of its words")
    if not words or not words[0] or any("\0" in word for word in words):
        raise refused("must hold at least the program's name")
    if (secret := secret_in(words)) is not None:
        raise refused(
            f"holds what looks like a secret ({secret}), and the command is recorded: leave it out "
            "and hand it on by the name of its environment variable, as in server.env: [HF_TOKEN]"
        )
    return words


def variable_names(value: object) -> list[str]:
    """Names of environment variables. A value that was written here is not shown again."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise refused(_NAMES_ONLY)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise refused(_NAMES_ONLY)
    if len(set(names)) < len(names):
        raise refused("holds a name twice")
    return names


_NAMES_ONLY = (
    "must be a list of names of environment variables, as in [HF_TOKEN]: their values come from "
    "the environment that tgi-bench runs in"
)


def gpu_choice(value: object) -> str | None:
    """ "all", "2" for a count, "0,3" for ids. A list of one id is "0,": a count has no comma."""
    if value is None:
        return None
    if isinstance(value, list) and value and not any(isinstance(v, bool | float) for v in value):
        words = [str(v) for v in value]
        if len(set(words)) == len(words) and all(re.fullmatch(r"[\w-]{1,80}", w) for w in words):
            return words[0] + "," if len(words) == 1 else ",".join(words)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_GPUS:
        return str(value)
    if isinstance(value, str) and _GPUS.fullmatch(value.strip()):
        return value.strip()
    raise refused(f"must be `all`, a count, or a list of different ids, not `{shown(value)}`")


def volume_list(value: object) -> list[str]:
    """Volumes as docker's -v takes them."""
    what = "a list of volumes, as in [/data:/data]"
    volumes = [value] if isinstance(value, str) else _texts(value, what)
    for volume in volumes:
        if not _VOLUME.fullmatch(volume):
            raise refused(
                f"`{shown(volume)}` is no volume: write an absolute path, or a volume's name, "
                "`:`, and the absolute path inside the container"
            )
    return volumes


def container_options(options: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Options that tgi-bench does not set itself."""
    for name in options:
        if not _NAME.fullmatch(name):
            raise refused(f"`{shown(name)}` is no name of an option, which is in snake_case")
        if name in _OWN_OPTIONS:
            key = _OWN_OPTIONS[name]
            instead = f"use {key}" if key else "leave it out"
            raise refused(f"`{name}` is set by tgi-bench: {instead}")
    return options


def server_url(value: object) -> str | None:
    """http(s)://host[:port][/path], without a slash at its end."""
    if value is None:
        return None
    text = value.strip().rstrip("/") if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise refused("is no address of a server; write it as http://host:port") from None
    if parts.username is not None or parts.password is not None:
        raise refused("may hold no user and no password: it is recorded")
    good = parts.scheme in ("http", "https") and parts.hostname and port != 0
    if not good or parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", text):
        raise refused(f"`{shown(value)}` is no address of a server; write it as http://host:port")
    return text


def http_headers(value: object) -> dict[str, str]:
    """Names and values of HTTP headers. A value of a secret's name that was written here is refused
    and not shown again: it is recorded."""
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise refused("must be a mapping of names to values, as in {X-Team: search}")
    found: dict[str, str] = {}
    for name, text in value.items():
        if not _HEADER.fullmatch(name):
            raise refused(f"`{shown(name)}` is no name of an HTTP header")
        if name.lower() in _OWN_HEADERS:
            raise refused(f"`{shown(name)}` is set by tgi-bench itself")
        if name.lower() in (known.lower() for known in found):
            raise refused(f"`{shown(name)}` is given twice")
        if not isinstance(text, str):
            raise refused(
                f"the value of `{shown(name)}` must be a text, in quotes where it is none"
            )
        if SECRET_HEADER.search(name) and not _by_name(text):
            raise refused(
                f"the value of `{shown(name)}` is a secret, and headers are recorded: name an "
                "environment variable that holds it, as in `Bearer $MY_KEY` or `$MY_KEY`"
            )
        if re.search(r"[^\x20-\x7e]", text) or text != text.strip():
            raise refused(f"the value of `{shown(name)}` must be printable ASCII on one line")
        found[name] = text
    return found


def _by_name(text: str) -> bool:
    """Whether a secret is named and not written, after `Bearer ` or `session=` at most."""
    return _NAMED.fullmatch(text) is not None


def variables_in(text: str) -> tuple[str, ...]:
    """The environment variables that a header's value names, as in `$NAME` and `${NAME}`."""
    return tuple(name for match in _REFERENCE.finditer(text) if (name := match[1] or match[2]))


def with_variables(text: str, environ: Mapping[str, str]) -> str:
    """The value with each variable's own in its place; KeyError for one that is not set."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return environ[name] if name else "$"

    return _REFERENCE.sub(value, text)


def socket_path(value: object) -> str | None:
    """An absolute path that a unix socket can have."""
    if value is None:
        return None
    text = value.removeprefix("unix://") if isinstance(value, str) else ""
    if not text.startswith("/") or "\0" in text or len(text.encode()) > _MOST_SOCKET_BYTES:
        raise refused(
            "must be the absolute path of the master shard's socket, of at most "
            f"{_MOST_SOCKET_BYTES} bytes, as in /tmp/text-generation-server-0"
        )
    return text


def _texts(value: object, what: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise refused(f"must be {what}, not `{shown(value)}`")
    return value
