"""Recorded answers of real servers, played to the load client over sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.dialects.recorded_http import ENGINES, Exchange, Meant, meant
from tests.drive.http_peer import Asked
from tests.drive.loads import at_rate, counted, prepared, send_prepared, trial
from tests.drive.replayer import (
    Pace,
    Pick,
    Replayer,
    as_recorded,
    in_pieces,
    numbered,
    server_of,
    whole,
)
from tgi_bench.dialects import speaking
from tgi_bench.dialects.dialect import Abilities
from tgi_bench.drive.load import run_load
from tgi_bench.drive.preparation import Prepared
from tgi_bench.load_observation import RequestObservation, RequestOutcome, TokenSource
from tgi_bench.trials.load import ClosedLoop

RATE = 200.0
DIALECTS = {
    "tgi-3.3.7": "tgi",
    "tgi-2.0.4": "tgi",
    "vllm-0.32.0": "completions",
    "llamacpp-xllamacpp-2026.10.11549": "completions",
    "transformers-serve-5.23.0": "completions",
}
COUNTED = {"tgi": TokenSource.SERVER, "completions": TokenSource.USAGE}
MOST_BYTES = 40_000

KINDS = sorted({(one.server, one.spoken) for one in meant() if one.stream})


def streams(server: str, spoken: str) -> list[Meant]:
    return [
        one
        for one in meant()
        if (one.server, one.spoken, one.stream) == (server, spoken, True)
        and len(one.recorded.reply) < MOST_BYTES
    ]


def exchange(one: Meant) -> Exchange:
    """Without the end of the connection after a whole answer: the next request may be on it."""
    recorded = one.recorded
    return recorded if one.outcome is RequestOutcome.INCOMPLETE else replace(recorded, ends="")


def ready(url: str, of: list[Meant]) -> Prepared:
    # Without a limit connections for two seconds of that rate would be opened before the first.
    asked = trial(
        at_rate(RATE),
        counted(len(of)),
        request_timeout_ns=20_000_000_000,
        max_in_flight=len(of),
    )
    first = of[0]
    engine = ENGINES[first.server]
    able = Abilities(speaking(first.spoken)[0], "m", engine, False, None, None, True, None)
    return replace(prepared(url, asked), abilities=able)


def check(one: Meant, seen: RequestObservation) -> None:
    assert seen.outcome is one.outcome, (one.id, seen.reason)
    assert (seen.output_tokens, len(seen.event_ns)) == (one.tokens, one.events), one.id
    assert (seen.counted_by, seen.finish_reason) == (one.counted_by, one.finish_reason), one.id
    assert (seen.prompt_tokens, seen.cached_tokens) == (one.prompt, one.cached), one.id
    assert (seen.tokens_told, seen.first_told) == (one.tokens_told, one.first_told), one.id


@pytest.mark.parametrize(
    "pace", [whole, as_recorded, in_pieces(997)], ids=["whole", "as recorded", "slow"]
)
@pytest.mark.parametrize(("server", "spoken"), KINDS, ids=str)
def test_a_load_reads_every_stream(server: str, spoken: str, pace: Pace) -> None:
    of = streams(server, spoken)
    with Replayer(numbered([exchange(one) for one in of]), pace) as replayed:
        stage, seen = send_prepared(ready(replayed.url, of))
        assert len(replayed.asked) == len(of) == len(seen)
    for one, request in zip(of, seen, strict=True):
        check(one, request)
    named = {one.model for one in of if one.model}
    assert {name for name, _ in stage.conditions.answered_by} == named


def test_how_many_are_played() -> None:
    assert len(KINDS) == 14
    assert sum(len(streams(*kind)) for kind in KINDS) > 250


def open_ended(pick: Pick) -> Pick:
    """The same answers; no connection ends after one."""

    def answer(asked: Asked) -> Exchange | None:
        found = pick(asked)
        return None if found is None else replace(found, ends="")

    return answer


@pytest.mark.parametrize("server", sorted(ENGINES.keys() - {"litellm-1.106.2"}))
def test_a_load_finds_out_and_asks(server: str) -> None:
    """From the URL alone, all that is asked answered as that server answered the like."""
    asked = trial(ClosedLoop(2), counted(6), spoken="auto")
    with Replayer(open_ended(server_of(server))) as replayed:
        stage, seen = run_load(replayed.url, asked)
    said = stage.conditions
    assert (said.engine, stage.dialect) == (ENGINES[server], DIALECTS[server])
    assert [request.outcome for request in seen] == [RequestOutcome.OK] * 6, seen[0].reason
    assert all(request.event_tokens[0] > 0 for request in seen)
    assert {name for name, _ in said.answered_by} <= set(said.own_names)
    assert [request.counted_by for request in seen] == [COUNTED[stage.dialect]] * 6
