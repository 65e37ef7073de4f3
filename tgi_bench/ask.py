"""Single questions to a server, before and beside a load, where speed does not matter.

Neither proxies nor redirects. By http.client, for httpx takes five times as long to import, and a
load waits for these questions.
"""

from __future__ import annotations

import json
import select
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

from tgi_bench.errors import NAME_THE_KEY, InputError
from tgi_bench.http_rules import (
    USER_AGENT,
    Headers,
    client_context,
    encoded_as,
    header_lines,
    not_identity,
)
from tgi_bench.inert import shortened

_MOST_BYTES = 1 << 26
"""Of an answer that is read."""
_SOON_S = 5.0


@dataclass(frozen=True, slots=True)
class Asking:
    """How a server is asked. verify: whether its certificate must be valid."""

    headers: Headers = ()
    verify: bool = True
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
    """status: of HTTP. headers: names in lower case, in order. body: whole."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @property
    def json(self) -> object:
        """None: no JSON, or null."""
        try:
            said: object = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return said

    @property
    def mapping(self) -> dict[object, object]:
        """The body of a 200 as an object; {} where it is none."""
        said = self.json if self.status == 200 else None
        return dict(said) if isinstance(said, dict) else {}

    @property
    def text(self) -> str:
        """The body of a 200; "" of any other."""
        return self.body.decode(errors="replace") if self.status == 200 else ""

    @property
    def sentence(self) -> str:
        """The status and the body's beginning."""
        body = shortened(self.body[:1000].decode(errors="replace"))
        return f"HTTP {self.status}: {body}" if body else f"HTTP {self.status}"

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, by its name in lower case."""
        return next((value for key, value in self.headers if key == name), None)


class NoAnswerError(InputError):
    """No whole answer came to a question."""


class Asker:
    """Asker to one server, as a context manager.

    One connection, kept alive where the server does; where it ends before an answer to another
    question, that is asked once more on a fresh one.
    """

    def __init__(self, url: str, asking: Asking, tls: ssl.SSLContext | None = None) -> None:
        """tls: made of asking.verify where there is none, and https is asked.

        Raises InputError where the headers cannot be sent, or the URL is none of HTTP.
        """
        header_lines(asking.headers)  # http.client would show a value that it refuses
        self.url = url.rstrip("/")
        self._asking = asking
        self._headers = {"User-Agent": USER_AGENT, **dict(asking.headers)}
        parts = self._parts()
        self._path = parts.path
        host, timeout_s = parts.hostname or "", asking.timeout_s
        self._connection = HTTPConnection(host, parts.port, timeout=timeout_s)
        if parts.scheme == "https":
            context = tls or client_context(asking.verify)
            self._connection = HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)

    def __enter__(self) -> Asker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the next question opens another."""
        self._connection.close()

    @property
    def has_key(self) -> bool:
        """Whether an API key is sent, or may be: in whatever header it is asked for."""
        return bool(self._asking.headers)

    def key_missing(self, reply: Reply) -> InputError:
        """Of an answer 401 or 403: that an API key is wanted, and the options that name it."""
        another = "another" if self.has_key else "an"
        said = shortened(reply.sentence)
        return InputError(f"{self.url} wants {another} API key: {said}; {NAME_THE_KEY}")

    def get(self, path: str) -> Reply:
        """Raises NoAnswerError."""
        return self._asked("GET", path, None)

    def post(self, path: str, body: bytes) -> Reply:
        """With JSON. Raises NoAnswerError."""
        return self._asked("POST", path, body)

    def begin(self, path: str) -> Callable[[], Reply]:
        """Ask for a path now; what is returned reads the answer. Both raise NoAnswerError."""
        with self._told(path):
            self._send("GET", path, None)

        def read() -> Reply:
            with self._told(path):
                return self._read(path, self._connection.getresponse())

        return read

    def _asked(self, method: str, path: str, body: bytes | None) -> Reply:
        with self._told(path):
            return self._read(path, self._response(method, path, body))

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """What goes wrong meanwhile, in one sentence."""
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise NoAnswerError(
                f"{self.url}{path} did not answer within {self._asking.timeout_s:g} s"
            ) from error
        except (OSError, HTTPException) as error:
            self.close()
            raise NoAnswerError(f"{self.url}{path} does not answer: {_cause(error)}") from error
        except ValueError as error:
            raise InputError(f"{self.url} is no http or https URL: {error}") from error

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

    def _send(self, method: str, path: str, body: bytes | None) -> None:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        self._connection.request(method, f"{self._path}{path}", body, headers)

    def _response(self, method: str, path: str, body: bytes | None) -> HTTPResponse:
        connection = self._connection
        # What can be read before anything is asked is the end of a connection kept alive.
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()
        kept_alive = connection.sock is not None
        try:
            self._send(method, path, body)
            return connection.getresponse()
        except (ConnectionResetError, BrokenPipeError):  # RemoteDisconnected is one: no byte came
            if not kept_alive:
                raise
            # Some servers end a connection without saying so, as after a 500.
            connection.close()
            self._send(method, path, body)
            return connection.getresponse()

    def _read(self, path: str, response: HTTPResponse) -> Reply:
        content = response.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            self.close()
            raise NoAnswerError(f"{self.url}{path} answers with more than {_MOST_BYTES} bytes")
        # A read of so many bytes at most does not say by itself that the body was cut off.
        if response.length:
            raise IncompleteRead(content, response.length)
        pairs = tuple(
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in response.getheaders()
        )
        if response.status == 200 and (coding := encoded_as(pairs)):
            raise NoAnswerError(f"{self.url}{path}: {not_identity(coding)}")
        return Reply(response.status, pairs, content)


def _cause(error: OSError | HTTPException) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    text = shortened(said or str(error)) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not verify (server.verify_tls): {error.verify_message}"
    return text


@dataclass(frozen=True, slots=True)
class Contact:
    """Where a running server is asked, each time on a connection of its own, and soon answers.

    tls: None: plain HTTP.
    """

    url: str
    headers: Headers = ()
    tls: ssl.SSLContext | None = None

    def ask(self, path: str) -> Reply | None:
        """What GET of that path answers; None: no whole answer."""
        try:
            with self._asker() as asker:
                return asker.get(path)
        except InputError:
            return None

    def begin(self, path: str) -> Callable[[], Reply | None]:
        """Ask for that path now; what is returned reads the answer."""
        try:
            asker = self._asker()
            read = asker.begin(path)
        except InputError:
            return lambda: None

        def answered() -> Reply | None:
            try:
                with asker:
                    return read()
            except InputError:
                return None

        return answered

    def _asker(self) -> Asker:
        return Asker(self.url, Asking(self.headers, timeout_s=_SOON_S), self.tls)


def contact(url: str, headers: Headers = (), verify: bool = True) -> Contact:
    """verify: as client_context, of an https address."""
    return Contact(url, headers, client_context(verify) if url.startswith("https:") else None)
