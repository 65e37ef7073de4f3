"""Pairs of control requests before a load: for one token and for several, alone on the server.

Nothing under load is faster than that, and nothing comes later than the whole of an answer of one
token but what somebody holds back.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import islice
from statistics import median_low
from typing import TYPE_CHECKING

from tgi_bench.drive.control_request import ControlAnswer, NoControlError, asked, connected
from tgi_bench.drive.http_framing import FramingError
from tgi_bench.drive.schedule import planned_length_ns
from tgi_bench.load_observation import ControlPair
from tgi_bench.plan.distinct_text import DistinctTexts
from tgi_bench.plan.draws import text_seed
from tgi_bench.plan.request_spec import RequestSpec
from tgi_bench.plan.workload import requests

if TYPE_CHECKING:
    from tgi_bench.drive.prepared import Prepared

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
