"""The embedded server, asked over HTTP what real routers were asked, answers as they did.

Times, ids, tokens and texts are its own. Every other difference is listed with its reason; one
that is not listed fails, and so does one that is listed and no longer there.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from urllib.parse import urlsplit

import pytest

from tests.dialects.recorded_http import connection, names
from tests.server.router.http_comparison import asked, differences, recorded
from tests.server.router.real_ranks import PADDED, Running, real
from tests.server.router.serving import LIMITS
from tgi_bench.estimate.setup import Constants
from tgi_bench.server.config import Version

VERSIONS: dict[str, Version] = {"tgi-3.3.7": (3, 3, 7), "tgi-2.0.4": (2, 0, 4)}
# As the recorded servers were started.
RECORDED = replace(
    LIMITS,
    max_concurrent_requests=128,
    max_input_tokens=512,
    max_total_tokens=1024,
    max_batch_prefill_tokens=512,
    payload_limit_bytes=2_000_000,
)
API_KEY = "tgi-secret-key"
FAST = Constants(dispatch_s=1e-8, step_s=1e-8, choice_dispatch_s=1e-8, prompt_token_s=1e-8)
LONG = b'{"inputs":"a","parameters":{"max_new_tokens":1000}}'
KEYED = ("-overloaded", "-api-key")
"""Ends of the names of what a server with a key and room for two requests was asked."""
KILLED = "generate_stream-shard-sigkill"

pytestmark = pytest.mark.xdist_group("recorded HTTP")
_NAMED = "headers.x-compute-type"
_SIMULATED = "an engine that makes tokens up does not call itself TGI's"
_PARSER = "another parser of JSON says in other words what is wrong, and where"
_OWN_TOKENS = "its tokens are its own, and so is where they end"
_SAID = ("events[]", _PARSER)
_STREAMED = (
    ("events[].data.details.finish_reason", _OWN_TOKENS),
    ("events[].data.details.generated_tokens", _OWN_TOKENS),
)
_WHOLE = (
    ("events[].details.finish_reason", _OWN_TOKENS),
    ("events[].details.generated_tokens", _OWN_TOKENS),
    ("headers.x-generated-tokens", _OWN_TOKENS),
)
_INFO = (
    ("events[].docker_label", "it says there what computes, where TGI names its image"),
    ("events[].simulated", _SIMULATED),
)
_OF_BOTH: dict[str, tuple[tuple[str, str], ...]] = {
    "chat-stream-malformed-json": (_SAID,),
    "chat-stream-no-messages": (_SAID,),
    "generate-no-parameters": (_WHOLE[2],),
    "generate-stop-sequence": _WHOLE,
    "generate_stream-eos": (*_STREAMED, ("events[].data.token.special", _OWN_TOKENS)),
    "generate_stream-malformed-json": (_SAID,),
    "generate_stream-stop-sequence": _STREAMED,
    "generate_stream-wrong-type": (_SAID,),
}
ACCEPTED: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    **{(server, name): places for server in VERSIONS for name, places in _OF_BOTH.items()},
    ("tgi-3.3.7", "generate_stream-eos-at-first-token"): (("events", _OWN_TOKENS),),
    ("tgi-3.3.7", KILLED): (
        ("events[].data.error", "a client of gRPC in another language has other words for it"),
    ),
    ("tgi-3.3.7", "info"): (*_INFO, ("events[].sha", "it was not built from a commit of TGI")),
    ("tgi-3.3.7", "info-no-api-key"): (
        *_INFO,
        ("events[].sha", "it was not built from a commit of TGI"),
    ),
    ("tgi-2.0.4", "info"): _INFO,
    ("tgi-2.0.4", "metrics"): (("events[]", "the recorded router had no recorder of metrics"),),
}
"""Where they differ, each with its reason."""


@contextmanager
def connected(running: Running) -> Iterator[socket.socket]:
    at = urlsplit(running.url)
    assert at.hostname is not None
    assert at.port is not None
    with socket.create_connection((at.hostname, at.port), timeout=60) as made:
        yield made


def compare(
    server: str, name: str, running: Running, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Ask on one connection what was asked on one; fails where an answer is another."""
    expected = {place for place, _ in ACCEPTED.get((server, name), ())}
    with connected(running) as client:
        for exchange in connection(server, name):
            one = recorded(exchange.reply)
            other = asked(client, exchange.request, meanwhile)
            if not one.whole:  # its client left: only how it began is known
                one, other = (replace(r, whole=False, events=r.events[:1]) for r in (one, other))
            found = {place: (a, b) for place, a, b in differences(asdict(one), asdict(other))}
            named = {_NAMED} if _NAMED.removeprefix("headers.") in one.headers else set()
            assert found.keys() == expected | named, found


def of(server: str, *ends: str) -> list[str]:
    return [name for name in names(server) if name.endswith(ends)]


def plain(server: str) -> list[str]:
    return [name for name in names(server) if name != KILLED and not name.endswith(KEYED)]


@contextmanager
def started(server: str) -> Iterator[Running]:
    with real(VERSIONS[server], PADDED, RECORDED, num_shard=1, constants=FAST) as running:
        yield running


@pytest.fixture(scope="module")
def newest() -> Iterator[Running]:
    with started("tgi-3.3.7") as running:
        yield running


@pytest.fixture(scope="module")
def older() -> Iterator[Running]:
    with started("tgi-2.0.4") as running:
        yield running


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    limits = replace(RECORDED, max_concurrent_requests=2)
    with real((3, 3, 7), PADDED, limits, API_KEY, num_shard=1) as running:
        yield running


@pytest.mark.parametrize("name", plain("tgi-3.3.7"))
def test_3_3_7(newest: Running, name: str) -> None:
    compare("tgi-3.3.7", name, newest)


@pytest.mark.parametrize("name", plain("tgi-2.0.4"))
def test_2_0_4(older: Running, name: str) -> None:
    compare("tgi-2.0.4", name, older)


@pytest.mark.parametrize("name", of("tgi-3.3.7", "-api-key"))
def test_with_a_key(keyed: Running, name: str) -> None:
    compare("tgi-3.3.7", name, keyed)


@pytest.mark.parametrize("name", of("tgi-3.3.7", "-overloaded"))
def test_with_no_room(keyed: Running, name: str) -> None:
    head = f"POST /generate_stream HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {API_KEY}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(LONG)}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(2):
            held = stack.enter_context(connected(keyed))
            held.sendall(head.encode() + LONG)
            answered = b""
            while b"data:" not in answered:
                answered += held.recv(65536)
        compare("tgi-3.3.7", name, keyed)


def test_a_rank_that_is_killed() -> None:
    with real((3, 3, 7), PADDED, RECORDED) as running:
        compare("tgi-3.3.7", KILLED, running, lambda: os.kill(running.pids[0], signal.SIGKILL))


def test_what_is_accepted_was_recorded() -> None:
    for server, name in ACCEPTED:
        assert name in names(server)
