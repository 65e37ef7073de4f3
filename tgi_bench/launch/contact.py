"""A server over HTTP before and beside a load: single questions, where speed does not matter."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from http.client import OK, HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 24
"""Of an answer that is read."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """headers: their names in lower case. body: whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> object:
        """Of a 200; None: another status, no JSON, or null."""
        try:
            said: object = json.loads(self.body) if self.status == OK else None
        except (ValueError, RecursionError):
            return None
        return said

    @property
    def mapping(self) -> dict[object, object]:
        """The body of a 200 as an object; {} where it is none."""
        said = self.json
        return dict(said) if isinstance(said, dict) else {}


@dataclass(frozen=True, slots=True)
class Contact:
    """Where a server is asked, and how. Neither proxies nor redirects.

    headers: sent with every question. tls: None: the system's certificates.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    tls: ssl.SSLContext | None = None

    def ask(self, path: str) -> ServerAnswer | None:
        """What GET of that path answers; None: no whole answer.

        By http.client, for it is there in a fifth of the time that httpx takes to import: a load
        waits for these questions.
        """
        connection = self.asked(path)
        return None if connection is None else answered(connection)

    def asked(self, path: str) -> HTTPConnection | None:
        """A connection on which that path was asked for; None where it could not be."""
        try:
            connection = self._connection()
            where = f"{urlsplit(self.url).path}{path}"
            connection.request("GET", where, headers=dict(self.headers))
        except (OSError, HTTPException, ValueError):
            return None  # ValueError: an address or a header that cannot be sent
        return connection

    def _connection(self) -> HTTPConnection:
        """Not opened yet. Raises ValueError for an address that is none."""
        parts = urlsplit(self.url)
        if parts.hostname is None:
            raise ValueError("no host")
        if parts.scheme == "https":
            return HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=self.tls)
        return HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)


def answered(connection: HTTPConnection) -> ServerAnswer | None:
    """What was asked there, whole; None where it does not come. Closes the connection."""
    try:
        response = connection.getresponse()
        body = response.read(_MOST_BYTES)
        whole = not response.length
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return ServerAnswer(response.status, headers, body) if whole else None


def tls_context(verify: bool) -> ssl.SSLContext:
    """For https, with the system's certificates. verify: False takes any certificate."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def contact(url: str, headers: tuple[tuple[str, str], ...] = (), verify: bool = True) -> Contact:
    """verify: as tls_context, of an https address."""
    return Contact(url, headers, tls_context(verify) if url.startswith("https:") else None)
