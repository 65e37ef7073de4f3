"""One real generated token: the proof that a server serves."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from tgi_bench.ask import contact
from tgi_bench.engines.engine import Dialect, EngineSpec, engine_spec
from tgi_bench.launch.identity import models_of
from tgi_bench.launch.secrets import bearer
from tgi_bench.plan.plan import Deployment

NO_KEY = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)
_PROMPT = "Hello"
_NO_PROXY = "no_proxy"
_REASON_CHARACTERS = 200

FindUrl = Callable[[Sequence[str]], str | None]
"""Given the log's new lines, the server's URL where they, or anything else, say it."""


@dataclass(frozen=True, slots=True)
class ServerProbe:
    """How a deployment's server is found and asked. headers: sent with every question."""

    spec: EngineSpec
    model: str
    find_url: FindUrl
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, deployment: Deployment, find_url: FindUrl, environ: dict[str, str]) -> ServerProbe:
        """For a deployment whose server was started with that environment."""
        spec = engine_spec(deployment.engine)
        return cls(spec, deployment.model, find_url, bearer(environ.get(spec.api_key_variable)))

    def key_missing(self, status: int) -> str:
        """That it wants an API key, and where that is named."""
        variable = self.spec.api_key_variable
        another = "another" if self.headers else "an"
        return (
            f"it wants {another} API key (HTTP {status}): name the variable that holds it in "
            f"server.env: [{variable}]"
        )

    def health(self, client: httpx.Client, url: str) -> int | None:
        """The status that its health path answers; None where it does not listen or answer yet."""
        try:
            answer = client.get(f"{url}{self.spec.health_path}", headers=dict(self.headers))
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        return answer.status_code


@dataclass(frozen=True, slots=True)
class Failure:
    """Why no token came. passing: the server may answer otherwise in a moment."""

    reason: str
    passing: bool


class FirstToken:
    """One request for one token, sent from a thread: meanwhile the server is watched."""

    def __init__(self, probe: ServerProbe, url: str, timeout_s: float) -> None:
        self._probe, self._url, self._timeout_s = probe, url, timeout_s
        self.failure: Failure | None = None
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    def done(self, wait_s: float) -> bool:
        """Whether it is over, waited for that long."""
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        match self._probe.spec.dialect:
            case Dialect.TGI:
                self.failure = _tgi_token(self._probe, self._url, self._timeout_s)
            case Dialect.OPENAI:
                self.failure = _openai_token(self._probe, self._url, self._timeout_s)


def _tgi_token(probe: ServerProbe, url: str, timeout_s: float) -> Failure | None:
    """Through the client that TGI's own users use; None where the token came."""
    from requests import ConnectionError as NoConnection
    from requests import Timeout
    from text_generation import Client  # type: ignore[import-untyped]
    from text_generation.errors import OverloadedError  # type: ignore[import-untyped]

    client = Client(url, headers=dict(probe.headers), timeout=timeout_s)
    try:
        with warnings.catch_warnings(), _without_proxy(url):
            # The client's pydantic calls are of an older pydantic.
            warnings.simplefilter("ignore")
            response = client.generate(_PROMPT, max_new_tokens=1)
        count = response.details.generated_tokens
    except (NoConnection, Timeout, OverloadedError) as error:
        return Failure(_shortened(error), passing=True)
    except Exception as error:  # noqa: BLE001  its errors have no common root but this
        # A 401 of TGI has no body, of which the client says only that it is no JSON.
        status = _status(probe, url, timeout_s)
        said = probe.key_missing(status) if status in NO_KEY else _shortened(error)
        return Failure(said, passing=False)
    return None if count == 1 else Failure(f"{count} tokens came instead of one", passing=False)


def _status(probe: ServerProbe, url: str, timeout_s: float) -> int:
    """Of POST /generate; 0 where none comes."""
    body = {"inputs": _PROMPT, "parameters": {"max_new_tokens": 1}}
    try:
        return httpx.post(
            f"{url}/generate",
            json=body,
            headers=dict(probe.headers),
            timeout=timeout_s,
            trust_env=False,
        ).status_code
    except httpx.HTTPError:
        return 0


def _openai_token(probe: ServerProbe, url: str, timeout_s: float) -> Failure | None:
    """By POST /v1/completions; None where an answer with a choice came."""
    served = models_of(contact(url, probe.headers)).names
    name = probe.model if probe.model in served or not served else served[0]
    body = {"model": name, "prompt": _PROMPT, "max_tokens": 1}
    try:
        response = httpx.post(
            f"{url}/v1/completions",
            json=body,
            headers=dict(probe.headers),
            timeout=timeout_s,
            trust_env=False,
        )
    except httpx.HTTPError as error:
        return Failure(_shortened(error), passing=True)
    status = response.status_code
    if status in NO_KEY:
        return Failure(probe.key_missing(status), passing=False)
    if status != httpx.codes.OK:
        passing = status in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)
        return Failure(f"HTTP {status}: {_one_line(response.text)}", passing)
    try:
        answer: object = response.json()
    except ValueError:
        return Failure(f"no JSON came: {_one_line(response.text)}", passing=False)
    match answer:
        case {"choices": [_, *_]}:
            return None
        case _:
            return Failure(f"no choice came: {_one_line(response.text)}", passing=False)


@contextmanager
def _without_proxy(url: str) -> Iterator[None]:
    """The client takes proxies from the environment and offers no way to say no."""
    before = os.environ.get(_NO_PROXY)
    os.environ[_NO_PROXY] = ",".join(filter(None, (before, urlsplit(url).hostname)))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_NO_PROXY, None)
        else:
            os.environ[_NO_PROXY] = before


def _shortened(error: Exception) -> str:
    return _one_line(str(error)) or type(error).__name__


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_CHARACTERS else f"{line[: _REASON_CHARACTERS - 3]}..."
