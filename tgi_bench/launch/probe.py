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

from tgi_bench.launch.questions import served_model
from tgi_bench.plan.engines import Dialect, EngineSpec, engine_spec
from tgi_bench.plan.plan import Deployment

_PROMPT = "Hello"
_NO_PROXY = "no_proxy"
_REASON_CHARACTERS = 200

FindUrl = Callable[[Sequence[str]], str | None]
"""Given the log's new lines, the server's URL where they, or anything else, say it."""


@dataclass(frozen=True, slots=True)
class Probe:
    """How a deployment's server is found and asked. api_key: sent with the request, or None."""

    spec: EngineSpec
    model: str
    find_url: FindUrl
    api_key: str | None = None

    @classmethod
    def of(cls, deployment: Deployment, find_url: FindUrl, environ: dict[str, str]) -> Probe:
        """For a deployment whose server was started with that environment."""
        spec = engine_spec(deployment.engine)
        return cls(spec, deployment.model, find_url, environ.get(spec.api_key_variable))

    def healthy(self, client: httpx.Client, url: str) -> bool:
        """Whether its health path answers 200."""
        try:
            return client.get(f"{url}{self.spec.health_path}").status_code == httpx.codes.OK
        except (httpx.HTTPError, httpx.InvalidURL):
            return False  # not listening yet, or not answering yet


@dataclass(frozen=True, slots=True)
class Failure:
    """Why no token came. passing: the server may answer otherwise in a moment."""

    reason: str
    passing: bool


class Generation:
    """One request for one token, sent from a thread: meanwhile the server is watched."""

    def __init__(self, probe: Probe, url: str, timeout_s: float) -> None:
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
                self.failure = _tgi_token(self._url, self._probe.api_key, self._timeout_s)
            case Dialect.OPENAI:
                self.failure = openai_token(
                    self._url, self._probe.model, self._probe.api_key, self._timeout_s
                )


def _tgi_token(url: str, api_key: str | None, timeout_s: float) -> Failure | None:
    """Through the client that TGI's own users use; None where the token came."""
    from requests import ConnectionError as NoConnection
    from requests import Timeout
    from text_generation import Client  # type: ignore[import-untyped]
    from text_generation.errors import OverloadedError  # type: ignore[import-untyped]

    client = Client(url, headers=_headers(api_key), timeout=timeout_s)
    try:
        with warnings.catch_warnings(), _without_proxy(url):
            # The client's pydantic calls are of an older pydantic.
            warnings.simplefilter("ignore")
            response = client.generate(_PROMPT, max_new_tokens=1)
        count = response.details.generated_tokens
    except (NoConnection, Timeout, OverloadedError) as error:
        return Failure(_shortened(error), passing=True)
    except Exception as error:  # noqa: BLE001  its errors have no common root but this
        return Failure(_shortened(error), passing=False)
    return None if count == 1 else Failure(f"{count} tokens came instead of one", passing=False)


def openai_token(url: str, model: str, api_key: str | None, timeout_s: float) -> Failure | None:
    """By POST /v1/completions; None where an answer with a choice came."""
    body = {"model": served_model(url, api_key) or model, "prompt": _PROMPT, "max_tokens": 1}
    try:
        response = httpx.post(
            f"{url}/v1/completions",
            json=body,
            headers=_headers(api_key),
            timeout=timeout_s,
            trust_env=False,
        )
    except httpx.HTTPError as error:
        return Failure(_shortened(error), passing=True)
    status = response.status_code
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


def _headers(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


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
