"""Recorded answers of real servers, played to the load client over sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.drive.loads import at_rate, counted, prepared, send_prepared, trial
from tests.drive.recorded_http import ENGINES, Exchange, Meant, meant
from tests.drive.replayer import Pace, Replayer, as_recorded, in_pieces, numbered, whole
from tgi_bench.drive.preparation import Prepared
from tgi_bench.drive.reading import Abilities
from tgi_bench.load_observation import RequestObservation, RequestOutcome
from tgi_bench.plan.load_trial import Spoken

RATE = 200.0
MOST_BYTES = 40_000

KINDS = sorted({(one.server, one.spoken) for one in meant() if one.stream})


def streams(server: str, spoken: Spoken) -> list[Meant]:
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
    asked = trial(at_rate(RATE), counted(len(of)), request_timeout_ns=20_000_000_000)
    first = of[0]
    engine = ENGINES[first.server]
    able = Abilities(first.spoken, "m", engine, False, None, None, True, None)
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
def test_a_load_reads_every_stream(server: str, spoken: Spoken, pace: Pace) -> None:
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
