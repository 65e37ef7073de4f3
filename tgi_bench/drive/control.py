"""The control plane: single questions to a server before a load, where speed does not matter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import TracebackType

import httpx

from tgi_bench.drive.answer import Answer
from tgi_bench.drive.dialects import header_lines
from tgi_bench.drive.said import shortened
from tgi_bench.drive.tls import client_context
from tgi_bench.errors import InputError


@dataclass(frozen=True, slots=True)
class Asking:
    """How a server is asked. verify: whether its certificate must be valid."""

    headers: tuple[tuple[str, str], ...] = ()
    verify: bool = True
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
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
    """Questions to one server, as a context manager. Neither proxies nor redirects."""

    def __init__(self, url: str, asking: Asking) -> None:
        """Raises InputError where the headers cannot be sent."""
        header_lines(asking.headers)  # httpx would show a value that it refuses
        self.url = url.rstrip("/")
        self._client = httpx.Client(
            headers=[(n.encode(), v.encode("latin-1")) for n, v in asking.headers],
            timeout=asking.timeout_s,
            verify=client_context(asking.verify),
            trust_env=False,
        )

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def get(self, path: str) -> Reply:
        """Raises InputError where no answer comes."""
        return self._asked("GET", path, None)

    def post(self, path: str, body: bytes) -> Reply:
        """With JSON. Raises InputError where no answer comes."""
        return self._asked("POST", path, body)

    def _asked(self, method: str, path: str, body: bytes | None) -> Reply:
        headers = None if body is None else {"content-type": "application/json"}
        try:
            response = self._client.request(
                method, f"{self.url}{path}", content=body, headers=headers
            )
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise InputError(f"{self.url} is no http or https URL: {error}") from error
        except httpx.TimeoutException as error:
            raise InputError(
                f"{self.url}{path} did not answer within {self._client.timeout.read:g} s"
            ) from error
        except httpx.HTTPError as error:
            raise InputError(f"{self.url}{path} does not answer: {_cause(error)}") from error
        pairs = tuple((name.lower(), value) for name, value in response.headers.raw)
        return Reply(response.status_code, pairs, response.content)


def _cause(error: httpx.HTTPError) -> str:
    text = shortened(str(error)) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"its certificate does not verify (load.verify_tls): {text}"
    return text
