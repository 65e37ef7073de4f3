"""Bodies that come encoded though every request asks for identity: they are refused.

A stream that a proxy compresses arrives when the compressor gives it out, so its times are the
proxy's; and what a few bytes unfold to has no limit.
"""

from __future__ import annotations

_SHOWN = 40


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
