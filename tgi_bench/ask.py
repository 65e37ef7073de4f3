"""The control plane: single questions to a server before a load, where speed does not matter."""

from __future__ import annotations

import json
import select
import ssl
from dataclasses import dataclass
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
)
from types import TracebackType
from urllib.parse import SplitResult, urlsplit

from tgi_bench.dialects.bytes_of_answer import Answer
from tgi_bench.http_rules import encoded_as, not_identity
from tgi_bench.dialects.openai import USER_AGENT, header_lines
from tgi_bench.dialects.said import shortened
from tgi_bench.drive.tls import client_context
from tgi_bench.errors import NAME_THE_KEY, InputError

NO_KEY = (401, 403)
_MOST_BYTES = 1 << 26
"""Of an answer that is read."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How a server is asked. verify: whether its certificate must be valid."""

    headers: tuple[tuple[str, str], ...] = ()
    verify: bool = True
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class ControlReply:
    """status: of HTTP. json: the body, or None where it is no JSON."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @property
    def json(self) -> object:
        """None: no JSON, or null."""
        try:
            said: object = json.loads(self.body)
        except ValueError:
            return None
        return said

    @property
    def answer(self) -> Answer:
        """As a load's answer, without times."""
        return Answer(self.status, self.headers, ((0, self.body),), 0, 0, None, "")

    @property
    def sentence(self) -> str:
        """The status and the body's beginning."""
        body = shortened(self.body[:1000].decode(errors="replace"))
        return f"HTTP {self.status}: {body}" if body else f"HTTP {self.status}"


class Control:
    """Questions to one server, as a context manager. Neither proxies nor redirects.

    One connection, kept alive where the server does; where it ends before an answer to another
    question, that is asked once more on a fresh one. It is http.client's, for httpx takes five
    times as long to import, and a load waits for these questions.
    """

    def __init__(self, url: str, asking: Asking) -> None:
        """Raises InputError where the headers cannot be sent, or the URL is none of HTTP."""
        header_lines(asking.headers)  # http.client would show a value that it refuses
        self.url = url.rstrip("/")
        self._asking = asking
        self._headers = {"User-Agent": USER_AGENT, **dict(asking.headers)}
        parts = self._parts()
        self._path = parts.path
        self._connection = self._connected(parts)

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    @property
    def has_key(self) -> bool:
        """Whether an API key is sent, or may be: in whatever header it is asked for."""
        return bool(self._asking.headers)

    def key_missing(self, reply: ControlReply) -> InputError:
        """Of an answer 401 or 403: that an API key is wanted, and the options that name it."""
        another = "another" if self.has_key else "an"
        said = shortened(reply.sentence)
        return InputError(f"{self.url} wants {another} API key: {said}; {NAME_THE_KEY}")

    def get(self, path: str) -> ControlReply:
        """Raises InputError where no answer comes."""
        return self._asked("GET", path, None)

    def post(self, path: str, body: bytes) -> ControlReply:
        """With JSON. Raises InputError where no answer comes."""
        return self._asked("POST", path, body)

    def _parts(self) -> SplitResult:
        """The URL's. Raises InputError."""
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError as error:
            raise InputError(f"{self.url} is no http or https URL: {error}") from error
        if not known:
            raise InputError(f"{self.url} is no http or https URL")
        return parts

    def _connected(self, parts: SplitResult) -> HTTPConnection:
        host, timeout_s = parts.hostname or "", self._asking.timeout_s
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port, timeout=timeout_s)
        context = client_context(self._asking.verify)
        return HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)

    def _asked(self, method: str, path: str, body: bytes | None) -> ControlReply:
        try:
            response, content = self._answered(method, path, body)
        except TimeoutError as error:
            self._connection.close()
            raise InputError(
                f"{self.url}{path} did not answer within {self._asking.timeout_s:g} s"
            ) from error
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise InputError(f"{self.url}{path} does not answer: {_cause(error)}") from error
        except ValueError as error:
            raise InputError(f"{self.url} is no http or https URL: {error}") from error
        if len(content) > _MOST_BYTES:
            self._connection.close()
            raise InputError(f"{self.url}{path} answers with more than {_MOST_BYTES} bytes")
        pairs = tuple(
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in response.getheaders()
        )
        if response.status == 200 and (coding := encoded_as(pairs)):
            raise InputError(f"{self.url}{path}: {not_identity(coding)}")
        return ControlReply(response.status, pairs, content)

    def _answered(self, method: str, path: str, body: bytes | None) -> tuple[HTTPResponse, bytes]:
        connection = self._connection
        # What can be read before anything is asked is the end of a connection kept alive.
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()
        kept_alive = connection.sock is not None
        try:
            response = self._response(method, path, body)
        except (ConnectionResetError, BrokenPipeError):  # RemoteDisconnected is one: no byte came
            if not kept_alive:
                raise
            # Some servers end a connection without saying so, as after a 500.
            connection.close()
            response = self._response(method, path, body)
        content = response.read(_MOST_BYTES + 1)
        # A read of so many bytes at most does not say by itself that the body was cut off.
        if response.length and len(content) <= _MOST_BYTES:
            raise IncompleteRead(content, response.length)
        return response, content

    def _response(self, method: str, path: str, body: bytes | None) -> HTTPResponse:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        self._connection.request(method, f"{self._path}{path}", body, headers)
        return self._connection.getresponse()


def _cause(error: OSError | HTTPException) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    text = shortened(said or str(error)) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not verify (server.verify_tls): {error.verify_message}"
    return text
