"""What this client holds to over HTTP, for single questions and for loads alike: the headers that
it sends, whose certificates it takes, and that no answer is encoded.

A stream that a proxy compresses arrives when the compressor gives it out, so its times are the
proxy's; and what a few bytes unfold to has no limit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.inert import one_line

if TYPE_CHECKING:
    import ssl

USER_AGENT = "tgi-bench"
NO_KEY = (401, 403)
"""Statuses of a server that wants an API key, or another one."""
Headers = tuple[tuple[str, str], ...]
"""Names and values, in their order."""
OWN_HEADERS = frozenset(
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
        "user-agent",
    }
)
"""What the request says itself, or what would change its framing."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_HOST = re.compile(r"[\x21-\x7e]+")
_SHOWN = 40


def header_lines(headers: Headers) -> str:
    """Their lines, each with its line end. Raises InputError where one cannot be sent."""
    lines = []
    for name, value in headers:
        if not _HEADER_NAME.fullmatch(name):
            raise InputError(f'"{one_line(name)}" is no name of an HTTP header')
        if name.lower() in OWN_HEADERS:
            raise InputError(f"the header {name} is set by the request itself: leave it out")
        if not _HEADER_VALUE.fullmatch(value):
            # The value may be a key: it is not shown.
            raise InputError(
                f"the value of the header {name} holds a character that no header may have"
            )
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)


def checked_host(host: str) -> str:
    """The host of a URL as it is. Raises InputError where it is none."""
    if not _HOST.fullmatch(host):
        raise InputError(f'"{one_line(host)}" is no host of a URL')
    return host


def checked_path(path: str) -> str:
    """The path of a URL without a "/" at its end. Raises InputError where it is none."""
    if path and not (path.startswith("/") and _HOST.fullmatch(path)):
        raise InputError(f'"{one_line(path)}" is no path of a URL')
    return path.rstrip("/")


def encoded_as(headers: tuple[tuple[bytes, bytes], ...]) -> str:
    """Content-Encoding in its own word; "" for identity, and where none is named.

    headers: names in lower case.
    """
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            return value[:_SHOWN].decode("latin-1")
    return ""


def not_identity(coding: str) -> str:
    """Why an answer in that coding is refused."""
    return f"{coding} came where identity was asked for: turn off compression in the proxy"


def client_context(verify: bool) -> ssl.SSLContext:
    """The system's certificates; verify: False takes any certificate."""
    import ssl  # of https alone

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
