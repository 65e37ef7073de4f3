"""Control requests: some that the client asks for itself before a load, alone on the server.

Pairs, for one token and for several: nothing under load is faster than that, and nothing comes
later than the whole of an answer of one token but what somebody holds back.

Small ones, for the writes of a server that sends the head of its answer and its first event in
small pieces without TCP_NODELAY: it holds the second back until the first is acknowledged, which
Linux delays on a kept-alive connection; `connection.acknowledging` says more. A small request is
asked on one connection as a load asks, and, where its first token may have waited so, on another
one that acknowledges at once.
"""

from __future__ import annotations

import socket
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median_low
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tgi_bench.dialects.answer import Answer
from tgi_bench.dialects.dialect import Ask, AskOptions, request_bytes
from tgi_bench.dialects.reading import read_answer
from tgi_bench.drive.http_framing import FramingError, ResponseFraming
from tgi_bench.drive.stage import planned_length_ns
from tgi_bench.errors import TgiBenchError
from tgi_bench.load_observation import ControlPair, RequestOutcome, SmallWrites
from tgi_bench.plan.prompts import DistinctTexts
from tgi_bench.plan.workload import RequestSpec, requests
from tgi_bench.trials.draws import text_seed

if TYPE_CHECKING:
    from tgi_bench.drive.preparation import Prepared


_PAIRS = 3
_WORDS = 12
_MOST_A_WAY_S = 1.0
"""For one way of asking: 2 s for both."""
_LEAST_HELD_NS = 35_000_000
_MOST_HELD_NS = 250_000_000
"""Linux delays an acknowledgement by 40 to 200 ms (TCP_DELACK_MIN, TCP_DELACK_MAX)."""
_TIMER_VARIES = 1.5
"""Times that a timer makes are alike: the longest against the shortest."""


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """t_1 - sent and t_1 - head of each request, ascending."""

    ttft_ns: list[int]
    after_head_ns: list[int]


def control_requests(prepared: Prepared) -> SmallWrites | None:
    """At most 8 requests for one token, one after the other, in about 2 s at most.

    None: nothing is streamed, reads are acknowledged at once in any case, or the server keeps no
    connections, refuses, or needs too long for it. None too where this system is not Linux, which
    alone has TCP_QUICKACK.
    """
    if not prepared.trial.stream or prepared.trial.quickack or sys.platform != "linux":
        return None
    texts = _texts(prepared)
    try:
        usual = _asked(prepared, texts, quickack=False)
        may_wait = _LEAST_HELD_NS <= _middle(usual.after_head_ns) <= _MOST_HELD_NS
        quick = _asked(prepared, texts, quickack=True) if may_wait else None
    except (OSError, FramingError, NoControlError):
        return None  # the load will say what is wrong with the server
    return compared(usual, quick)


def compared(usual: FirstTokens, quick: FirstTokens | None) -> SmallWrites:
    """What the two told. quick: None where it was not asked."""
    ttft_ns, after_ns = usual.ttft_ns, usual.after_head_ns
    apart = (
        quick is not None
        and quick.ttft_ns[-1] < ttft_ns[0]
        and after_ns[0] >= _LEAST_HELD_NS
        and after_ns[-1] <= _TIMER_VARIES * after_ns[0]
    )
    return SmallWrites(
        pairs=len(ttft_ns) if quick is None else min(len(ttft_ns), len(quick.ttft_ns)),
        ttft_ns=_middle(ttft_ns),
        quickack_ttft_ns=None if quick is None else _middle(quick.ttft_ns),
        after_head_ns=_middle(after_ns),
        apart=apart,
    )


def _middle(ordered: list[int]) -> int:
    return ordered[len(ordered) // 2]


def _texts(prepared: Prepared) -> Iterator[str]:
    trial = prepared.trial
    seed = text_seed(trial.workload.seed, prepared.start)
    texts = DistinctTexts(seed, f"{trial.trial_id}/control")
    return (texts.text(number, _WORDS) for number in range(2 * (_PAIRS + 1)))


def _asked(prepared: Prepared, texts: Iterator[str], quickack: bool) -> FirstTokens:
    """One connection's requests but the first: what a fresh one receives is acknowledged at once.

    Raises OSError, FramingError, NoControlError.
    """
    began = time.monotonic()
    times: list[tuple[int, int]] = []
    with connected(prepared, _MOST_A_WAY_S) as sock:
        while len(times) <= _PAIRS:
            passed_s = time.monotonic() - began
            if len(times) > 1 and passed_s * (len(times) + 1) / len(times) > _MOST_A_WAY_S:
                break
            answer = asked(sock, prepared, (next(texts), 1), began + _MOST_A_WAY_S, quickack)
            if not answer.kept_alive:
                raise NoControlError("it keeps no connection")
            times.append((answer.event_ns[0], answer.event_ns[0] - answer.head_ns))
    return FirstTokens(*(sorted(values) for values in zip(*times[1:], strict=True)))


_MOST_PAIRS = 3
_MOST_TOKENS = 32
LEAST_TOKENS = 4
"""With fewer there is too little after the first one to be told from chance."""
_OF_LOAD = 0.05
_LEAST_S, _MOST_S = 1.0, 3.0
_MOST_FIRST_S = 10.0
"""That the first pair may take, which there is always."""
_LOOKED_AT = 32
"""Requests of the load that the median lengths are of."""


def control_pairs(prepared: Prepared) -> tuple[ControlPair, ...]:
    """At most three, as long as the load's median request, its answer cut at 32 tokens, each with
    a text and a connection of its own.

    Which of a pair is sent first changes from pair to pair. They end by a twentieth of the load's
    planned time (at least 1 s, at most 3), but for the first one. () where nothing is streamed,
    answers are shorter than LEAST_TOKENS, or the server refuses, or needs more than 10 s.
    """
    if not prepared.trial.stream:
        return ()
    load = requests(
        prepared.trial.workload, _stream(prepared), prepared.corpus, start=prepared.start
    )
    specs = list(islice(load, _LOOKED_AT))
    tokens = min(_MOST_TOKENS, median_low(spec.output_tokens for spec in specs))
    if tokens < LEAST_TOKENS:
        return ()
    seed = text_seed(prepared.trial.workload.seed, prepared.start)
    texts = DistinctTexts(seed, _stream(prepared))
    began, found = time.monotonic(), list[ControlPair]()
    most_s = _most_s(prepared)
    while len(found) < _MOST_PAIRS:
        passed_s = time.monotonic() - began
        if found and passed_s * (len(found) + 1) / len(found) > most_s:
            break
        deadline = began + (most_s if found else _MOST_FIRST_S)
        try:
            # The first of two wakes what slept: each kind is first in turn.
            asked_for = (tokens, 1) if len(found) % 2 else (1, tokens)
            answers = {
                wanted: _answer(
                    prepared, _text(prepared, specs, texts, 2 * len(found) + i), wanted, deadline
                )
                for i, wanted in enumerate(asked_for)
            }
            one, more = answers[1], answers[tokens]
        except (OSError, FramingError, NoControlError):
            break  # the load will say what is wrong with the server
        if more.tokens < LEAST_TOKENS:
            break
        found.append(_pair(one, more))
    return tuple(found)


def _pair(one: ControlAnswer, more: ControlAnswer) -> ControlPair:
    return ControlPair(
        one_token_ns=one.event_ns[0],
        one_token_e2e_ns=one.ended_ns,
        tokens=more.tokens,
        first_ns=more.event_ns[0],
        last_ns=more.event_ns[-1],
        e2e_ns=more.ended_ns,
    )


def _most_s(prepared: Prepared) -> float:
    planned_ns = planned_length_ns(prepared.trial.extent)
    planned_s = 0.0 if planned_ns is None else planned_ns / 1e9
    return min(_MOST_S, max(_LEAST_S, _OF_LOAD * planned_s))


def _stream(prepared: Prepared) -> str:
    return f"{prepared.trial.trial_id}/pairs"


def _text(prepared: Prepared, specs: list[RequestSpec], texts: DistinctTexts, number: int) -> str:
    """A new one of the median length, in the tokens that the load's own are made of."""
    words = median_low(_length(spec) for spec in specs)
    text, plain = texts.text(number, words), specs[0]
    return prepared.fitted(
        replace(plain, text=text, messages=(), parts=(), prompt_tokens=words, turn=0)
    )


def _length(spec: RequestSpec) -> int:
    """In tokens; in words where the request does not say."""
    if spec.prompt_tokens is not None:
        return spec.prompt_tokens
    said = [spec.text, *(text for _, text in spec.messages)]
    return max(1, sum(len(text.split()) for text in said))


def _answer(prepared: Prepared, text: str, tokens: int, deadline: float) -> ControlAnswer:
    """On a fresh connection, which some servers close after each answer."""
    with connected(prepared, max(1e-3, deadline - time.monotonic())) as sock:
        return asked(sock, prepared, (text, tokens), deadline)


_READ_BYTES = 1 << 15
_MOST_BYTES = 1 << 20


class NoControlError(TgiBenchError):
    """The server does not do what there would be to compare."""


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    """Times from sending. event_ns: of each event with a token. kept_alive: whether its connection
    may be used again."""

    head_ns: int
    event_ns: array[int]
    tokens: int
    ended_ns: int
    kept_alive: bool


def connected(prepared: Prepared, timeout_s: float) -> socket.socket:
    """A connection of its own to the server. Raises OSError."""
    url = urlsplit(prepared.url)
    host, tls = url.hostname or "", url.scheme == "https"
    sock = socket.create_connection((host, url.port or (443 if tls else 80)), timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return sock
    from tgi_bench.http_rules import client_context

    return client_context(prepared.verify_tls).wrap_socket(sock, server_hostname=host)


def asked(
    sock: socket.socket,
    prepared: Prepared,
    what: tuple[str, int],
    deadline: float,
    quickack: bool = False,
) -> ControlAnswer:
    """One streamed answer. what: a text, and the tokens to answer with. deadline: of
    time.monotonic(). quickack: acknowledge each read at once.

    Raises OSError, FramingError, NoControlError.
    """
    ask, request = _request(prepared, *what)
    framing, pieces, size = ResponseFraming(), [], 0
    head_ns = now = sent_ns = time.monotonic_ns()
    sock.sendall(request)
    while not framing.done:
        sock.settimeout(max(1e-3, deadline - time.monotonic()))
        data = sock.recv(_READ_BYTES)
        now = time.monotonic_ns()
        if quickack:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        size += len(data)
        if not data or size > _MOST_BYTES or time.monotonic() > deadline:
            raise NoControlError("it ended, or has no end")
        began = framing.head_done
        body = framing.feed(data)
        if not began and framing.head_done:
            head_ns = now
        if body:
            pieces.append((now, body))
    answer = Answer(framing.status, framing.headers, tuple(pieces), head_ns, now, None, "")
    reading = read_answer(answer, prepared.abilities, True, ask, None)
    if reading.outcome is not RequestOutcome.OK or not reading.event_ns:
        raise NoControlError(reading.reason)
    return ControlAnswer(
        head_ns=head_ns - sent_ns,
        event_ns=array("q", (at - sent_ns for at in reading.event_ns)),
        tokens=reading.output_tokens,
        ended_ns=now - sent_ns,
        kept_alive=framing.keep_alive,
    )


def _request(prepared: Prepared, text: str, tokens: int) -> tuple[Ask, bytes]:
    ask = prepared.abilities.dialect.ask((("user", text),), None, tokens)
    options = AskOptions(
        host=prepared.host,
        stream=True,
        sampling=prepared.trial.sampling,
        base_path=prepared.base_path,
        headers=prepared.headers,
    )
    return ask, request_bytes(ask, prepared.abilities, options)
