"""Secrets pass to a server by the names of their variables; their values are written nowhere.

A value may stand in a text as it is, escaped, encoded or in another case. Of this process's
environment a server of this machine gets what a program needs to run, to find its devices, its
models and the network: a shell holds keys of other services, and settings of the server that no
experiment asked for. Everything else goes by name, in `server.env`.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, quote_plus, unquote

from tgi_bench.engines.engine import Engine, engine_spec, is_secret_name
from tgi_bench.engines.versions import parse_version
from tgi_bench.errors import InputError
from tgi_bench.launch.deployment import Deployment

PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy"})
"""In whatever case."""

_NAMES = frozenset(
    {
        # The user and the shell.
        *("HOME", "HOSTNAME", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TZ", "USER"),
        *("LANG", "LANGUAGE", "NO_COLOR", "TMPDIR", "TEMP", "TMP"),
        # Libraries, and where to find them.
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "VIRTUAL_ENV"),
        # Certificates.
        *("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    }
)
_BEGINNINGS = (
    "LC_",
    "XDG_",
    # Interpreters.
    *("CONDA_", "MAMBA_", "PYENV_", "PYTHON"),
    # Devices: NVIDIA, AMD, Intel, Gaudi, Neuron.
    *("CUBLAS_", "CUDA_", "CUDNN_", "NCCL_", "NVIDIA_"),
    *("GPU_DEVICE_", "HIP_", "HSA_", "MIOPEN_", "RCCL_", "ROCM_", "ROCR_"),
    *("HABANA_", "NEURON_", "ONEAPI_", "PT_HPU_", "SYCL_", "ZE_"),
    # Threads and memory.
    *("GOMP_", "KMP_", "MALLOC_", "MKL_", "NUMBA_", "NUMEXPR_", "OMP_", "OPENBLAS_"),
    *("PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "TRITON_"),
    # Models of the Hub.
    *("HF_", "HUGGINGFACE_HUB_", "SAFETENSORS_", "TOKENIZERS_", "TRANSFORMERS_"),
)
_SECRET = re.compile(r"SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def needed(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a server needs, without any whose name is one of a secret."""
    return {name: value for name, value in environ.items() if _is_needed(name)}


def _is_needed(name: str) -> bool:
    if name.lower() in PROXIES or name in _NAMES:
        return True
    secret = is_secret_name(name.removesuffix("_PATH")) or _SECRET.search(name)
    return name.startswith(_BEGINNINGS) and not secret


_LEAST_ENCODED = 8
"""Characters of a value whose encodings are looked for: those of a shorter one are in any text."""

_WRAPPED = (64, 76)
"""Characters of a line of base64, as `openssl` and `base64` write it."""

_LEAST_WRAPPED = 16
_HOW = ("surrogateescape", "surrogatepass")
_GROUP_BYTES, _GROUP_CHARACTERS = 3, 4
_CUT_BEFORE = (0, 2, 3)
"""Characters of base64 that hold bits of the 0, 1 or 2 bytes before a value."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a value. text: as it stands there. any_case: in whatever case."""

    text: bytes
    any_case: bool


def forms_of(value: str) -> frozenset[Form]:
    """Every form that is known; of a short value only those that keep its characters."""
    raw = value.encode("utf-8", "surrogateescape")  # as in a log; in a str as surrogates
    long = len(value) >= _LEAST_ENCODED
    escaped = {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    slashes = {text.replace("/", "\\/") for text in escaped}
    kept = {value, *escaped, *slashes, repr(value)[1:-1], html.escape(value)}
    plain = {text.encode("utf-8", how) for text in kept for how in _HOW}
    plain |= {quote(raw, safe=safe).encode() for safe in ("", "/", "!*'()~", "!*'()~;,/?:@&=+$#")}
    plain.add(quote_plus(raw).encode())
    forms = {Form(text, long) for text in plain}
    if long:
        forms.add(Form(raw.hex().encode(), any_case=True))
        forms |= {Form(text, any_case=False) for text in _base64_forms(raw)}
    return frozenset(forms)


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """Whole, with and without padding, in lines, and within a longer text at any place.

    Of the last at most two bytes at either end stay, whose bits share a character with others.
    """
    for encoded in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        bare = encoded.rstrip(b"=")
        yield from (encoded, bare)
        for width in _WRAPPED:
            lines = (bare[begin : begin + width] for begin in range(0, len(bare), width))
            yield from (line for line in lines if len(line) >= _LEAST_WRAPPED)
    for before, cut in enumerate(_CUT_BEFORE):
        whole = (before + len(raw)) // _GROUP_BYTES * _GROUP_CHARACTERS
        padded = b"\0" * before + raw
        for encoded in (base64.b64encode(padded), base64.urlsafe_b64encode(padded)):
            yield encoded[cut:whole]


class FormsPattern:
    """Finds forms in texts. Searching costs next to nothing where there are none.

    longest: bytes of the longest form; 0 where there is none.
    """

    def __init__(self, forms: Iterable[Form]) -> None:
        # The longest first: a form that holds another must not leave its ends behind.
        ordered = sorted({f for f in forms if f.text}, key=lambda f: (-len(f.text), f.text))
        self.longest = max((len(form.text) for form in ordered), default=0)
        self._needles = tuple({form.text.lower() for form in ordered})
        alternatives = (
            b"(?i:%b)" % re.escape(form.text) if form.any_case else re.escape(form.text)
            for form in ordered
        )
        self._pattern = re.compile(b"|".join(alternatives)) if ordered else None

    def sub(self, mask: bytes, data: bytes) -> bytes:
        """The data with the mask in place of each form."""
        if self._pattern is None:
            return data
        # Plain searches first: they are a hundred times as quick as the pattern.
        lower = data.lower()
        if not any(needle in lower for needle in self._needles):
            return data
        return self._pattern.sub(mask, data)


MASK = "[redacted]"
HUB_TOKEN, OLD_HUB_TOKEN = "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"
_SINCE_HUB_TOKEN = (2, 1, 0)
_SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_LOGIN = re.compile(r"[^/]*//[^/@:]*:([^/@]+)@")
_REFERENCE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\}|\$)", re.ASCII)
_SHORTEST = 8
_NO_SECRETS = frozenset(
    {
        "0",
        "1",
        "dummy",
        "empty",
        "false",
        "key",
        "no",
        "none",
        "null",
        "off",
        "on",
        "test",
        "token",
        "true",
        "yes",
    }
)
"""What stands where no secret is needed: without these words no log can be read."""
_LONGEST_LINE = 1 << 16


def secret_names(deployment: Deployment) -> tuple[str, ...]:
    """The variables whose values are redacted: those handed on by name, and the hub's tokens."""
    key = engine_spec(deployment.engine).api_key_variable
    headers = header_variables(deployment)
    return tuple(dict.fromkeys((*deployment.env, *headers, HUB_TOKEN, OLD_HUB_TOKEN, key)))


def require_set(deployment: Deployment, environ: Mapping[str, str]) -> None:
    """Raise InputError where a variable that is to be handed on is not set."""
    for key, names in (
        ("server.env", deployment.env),
        ("server.headers", header_variables(deployment)),
    ):
        if missing := [name for name in names if name not in environ]:
            raise InputError(
                f"{key}: {', '.join(missing)} not set in the environment of tgi-bench: "
                "export it, or leave the name out"
            )


def handed_on(deployment: Deployment, environ: Mapping[str, str]) -> dict[str, str]:
    """Name and value of each variable that the server gets; those not set are left out.

    The hub's token goes by the name that this version of TGI reads, too: HF_TOKEN since 2.1.0,
    HUGGING_FACE_HUB_TOKEN before.
    """
    given = {name: environ[name] for name in deployment.env if name in environ}
    if deployment.engine is not Engine.TGI:
        return given
    newer = parse_version(deployment.tgi_version) >= _SINCE_HUB_TOKEN
    wanted, other = (HUB_TOKEN, OLD_HUB_TOKEN) if newer else (OLD_HUB_TOKEN, HUB_TOKEN)
    if other in given and wanted not in given:
        given[wanted] = given[other]
    return given


def api_key_of(deployment: Deployment, environ: Mapping[str, str]) -> str | None:
    """What requests to the deployment's server carry as their bearer token; None: nothing.

    It is the value of the engine's own variable where server.env names that; of a running server,
    which may be of any engine, else of the one variable that server.env names. A key of the
    shell that the experiment does not name may be of another service.
    """
    given = handed_on(deployment, environ)
    own = given.get(engine_spec(deployment.engine).api_key_variable)
    if own is None and deployment.launcher.said_by_server and len(deployment.env) == 1:
        return given.get(deployment.env[0])
    return own


def headers_of(deployment: Deployment, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What every question and request to the deployment's server carries beside its own.

    The API key as a bearer token, unless server.headers says another Authorization.
    """
    own = tuple((name, with_variables(text, environ)) for name, text in deployment.launcher.headers)
    if any(name.lower() == "authorization" for name, _ in own):
        return own
    return (*bearer(api_key_of(deployment, environ)), *own)


def header_variables(deployment: Deployment) -> tuple[str, ...]:
    """The environment variables that server.headers names."""
    given = deployment.launcher.headers
    return tuple(dict.fromkeys(name for _, text in given for name in variables_in(text)))


def variables_in(text: str) -> tuple[str, ...]:
    """The environment variables that a header's value names, as in `$NAME` and `${NAME}`."""
    return tuple(name for match in _REFERENCE.finditer(text) if (name := match[1] or match[2]))


def with_variables(text: str, environ: Mapping[str, str]) -> str:
    """The value with each variable's own in its place; KeyError for one that is not set."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return environ[name] if name else "$"

    return _REFERENCE.sub(value, text)


def bearer(api_key: str | None) -> tuple[tuple[str, str], ...]:
    """The header that carries a key; () without one."""
    return () if api_key is None else (("Authorization", f"Bearer {api_key}"),)


def redact(text: str, names: Iterable[str], environ: Mapping[str, str]) -> str:
    """The text with MASK in place of the value of each named variable.

    A value shorter than 8 characters is left alone unless its variable's name is one of a
    secret: `HF_HUB_OFFLINE=1` must not take every 1 out of a log. One of 8 and more goes in other
    case, in hexadecimal digits, in base64 and in a URL's form too.
    """
    return Redactor(names, environ).text(text)


class Redactor:
    """The same for many texts."""

    def __init__(self, names: Iterable[str], environ: Mapping[str, str]) -> None:
        values = {v for name in names for v in _values(name, environ.get(name, ""))}
        values |= set(_proxy_passwords(environ))
        self._forms = FormsPattern(form for value in values for form in forms_of(value))
        self.longest = self._forms.longest
        """Bytes of the longest form of a value; 0 where there is nothing to redact."""

    def text(self, text: str) -> str:
        """The text without the values."""
        clean = self.bytes(text.encode("utf-8", "surrogatepass"))
        return clean.decode("utf-8", "surrogatepass")

    def bytes(self, data: bytes) -> bytes:
        """The bytes without the values."""
        return self._forms.sub(MASK.encode(), data)

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Names and texts without the values."""
        return tuple((name, self.text(text)) for name, text in pairs)

    @classmethod
    def of(cls, deployment: Deployment, environ: Mapping[str, str]) -> Self:
        """Of what a deployment's server may know."""
        return cls(secret_names(deployment), environ)


class RedactedStream:
    """A stream of bytes without the values, that comes in pieces: a log as it is written."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be written so far: up to the last line end or carriage return."""
        data = self._held + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end <= _LONGEST_LINE:
            self._held = data[end:]
            return self._redactor.bytes(data[:end])
        # A line without end: all but what may be the beginning of a value.
        clean = self._redactor.bytes(data)
        cut = max(0, len(clean) - self._redactor.longest)
        self._held = clean[cut:]
        return clean[:cut]

    def end(self) -> bytes:
        """What was held back, once the stream is over."""
        held, self._held = self._held, b""
        return self._redactor.bytes(held)


def _values(name: str, value: str) -> set[str]:
    """What is not to be seen of a variable: its value, and each of its lines."""
    least = 1 if _SECRET_NAME.search(name) else _SHORTEST
    parts = {value.strip(), *(line.strip() for line in value.splitlines())}
    return {part for part in parts if len(part) >= least and part.lower() not in _NO_SECRETS}


def _proxy_passwords(environ: Mapping[str, str]) -> Iterator[str]:
    """Of the proxies that a server is told of."""
    for name, value in environ.items():
        if name.lower() in PROXIES and (login := _LOGIN.match(value)):
            yield from {login[1], unquote(login[1])}
