"""Which request goes where and when, and conversations whose turns hold what came before."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.drive.http_peer import Asked
from tests.drive.loads import MS, counted, outcomes, prepared, send_prepared, timed, trial
from tgi_bench.dialects import speaking
from tgi_bench.dialects.answer import Answer, Reading
from tgi_bench.dialects.dialect import Ask
from tgi_bench.drive.channel import Returned
from tgi_bench.drive.feeding import (
    ClosedFeeder,
    ConversationFeeder,
    History,
    RequestMaker,
    TimedFeeder,
)
from tgi_bench.load_observation import LoadStage, RequestObservation, RequestOutcome, TokenSource
from tgi_bench.plan.workload import RequestSpec
from tgi_bench.trials.load import ClosedLoop, Fixed, Turns, Workload

THINK = 30 * MS
TALK = Workload(Fixed(5), Fixed(2), None, None, Turns(Fixed(3), THINK), 0)


def maker() -> RequestMaker:
    return RequestMaker(prepared("http://h:80", trial(ClosedLoop(1), counted(1))), 0)


def specs(count: int, turns: int = 1, think_ns: int = 0) -> Iterator[RequestSpec]:
    for number in range(count):
        conversation, turn = divmod(number, turns)
        think = think_ns if turn else 0
        yield RequestSpec(conversation, turn, f"q{number}", (), 1, 1, think, None)


def returned(number: int, ended_ns: int) -> Returned:
    return Returned(number, 0, 0, False, Answer(200, (), (), 0, ended_ns, None, ""), 0)


def reading(text: str = "", outcome: RequestOutcome = RequestOutcome.OK) -> Reading:
    return Reading(
        event_ns=array("q"),
        event_tokens=array("i"),
        events=0,
        shared_reads=0,
        prompt_tokens=None,
        cached_tokens=None,
        output_tokens=0,
        counted_by=TokenSource.EVENTS,
        finish_reason=None,
        outcome=outcome,
        reason="",
        text=text,
    )


def test_a_closed_loop_begins_with_one_for_each_slot() -> None:
    feeder = ClosedFeeder(maker(), specs(1000), (2, 1), 1000)
    assert [(worker, job[0]) for worker, job in feeder.jobs(0)] == [(0, 0), (0, 1), (1, 2)]
    backlog = feeder.jobs(0)
    assert [job[0] for _, job in backlog] == list(range(3, 3 + len(backlog)))
    assert {worker for worker, _ in backlog} == {0, 1}
    assert feeder.jobs(0) == []
    feeder.answered(returned(1, 0), reading())
    assert [worker for worker, _ in feeder.jobs(0)] == [0]
    assert not feeder.exhausted(0)


@pytest.mark.parametrize(("available", "most"), [(5, 1000), (1000, 5)])
def test_a_closed_loop_ends_with_the_number_or_the_file(available: int, most: int) -> None:
    feeder = ClosedFeeder(maker(), specs(available), (2,), most)
    assert len(feeder.jobs(0) + feeder.jobs(0)) == 5
    assert feeder.exhausted(0)
    assert set(feeder.book) == set(range(5))


def test_timed_ones_are_handed_over_two_seconds_ahead_to_workers_in_turn() -> None:
    due = iter([0, 1_000 * MS, 2_000 * MS, 2_001 * MS, 9_000 * MS])
    feeder = TimedFeeder(maker(), specs(100), due, 2)
    assert [(w, j[0], j[1]) for w, j in feeder.jobs(0)] == [
        (0, 0, 0),
        (1, 1, 1_000 * MS),
        (0, 2, 2_000 * MS),
    ]
    assert [j[0] for _, j in feeder.jobs(1 * MS)] == [3]
    assert not feeder.exhausted(0)
    assert [j[0] for _, j in feeder.jobs(60_000 * MS)] == [4]
    assert feeder.exhausted(0)


def test_timed_ones_that_are_many_come_in_portions_and_none_is_lost() -> None:
    feeder = TimedFeeder(maker(), specs(1000), iter(range(300)), 1)
    numbers: list[int] = []
    while jobs := feeder.jobs(0):
        assert len(jobs) <= 64
        numbers += [job[0] for _, job in jobs]
    assert numbers == list(range(300))


def test_a_conversation_waits_for_its_answer_and_thinks() -> None:
    feeder = ConversationFeeder(maker(), specs(6, turns=3, think_ns=7), (1, 1), 100)
    feeder.begin(1000, None)
    ((_, (number, due, first)),) = feeder.jobs(0)
    assert (number, due) == (0, 0)  # at once: it has no time that it could be late for
    assert b"q0" in first
    assert feeder.jobs(5000) == []
    assert not feeder.exhausted(5000)
    feeder.answered(returned(0, 5000), reading("the answer"))
    ((_, (number, due, second)),) = feeder.jobs(5000)
    assert (number, due) == (1, 5007)
    assert b"q0\\nthe answer\\nq1" in second
    feeder.answered(returned(1, 6000), reading("no", RequestOutcome.TIMEOUT))
    ((_, (number, due, third)),) = feeder.jobs(6000)
    assert (number, due) == (2, 6000 + 100 * MS)  # another conversation, after a wait
    assert b"q3" in third
    assert b"answer" not in third
    for number in (2, 3, 4):
        feeder.answered(returned(number, 7000), reading("x"))
        assert len(feeder.jobs(7000)) == (number < 4)
    assert feeder.exhausted(7000)


def test_without_thinking_a_turn_has_no_time() -> None:
    feeder = ConversationFeeder(maker(), specs(4, turns=2), (1, 1), 100)
    feeder.begin(0, None)
    for number in range(4):
        ((_, (found, due, _)),) = feeder.jobs(number)
        assert (found, due) == (number, 0)
        feeder.answered(returned(number, number), reading("x"))
    assert feeder.jobs(9) == []
    assert feeder.exhausted(9)


@pytest.mark.parametrize("outcome", [RequestOutcome.OK, RequestOutcome.TIMEOUT])
def test_the_next_conversation_is_made_while_the_last_answer_is_awaited(
    outcome: RequestOutcome,
) -> None:
    """It needs no answer; what comes meanwhile is no part of it, and its turns still think."""
    feeder = ConversationFeeder(maker(), specs(4, turns=2, think_ns=7), (1, 1), 3)
    feeder.begin(0, None)
    feeder.jobs(0)
    assert feeder.jobs(1) == []  # prepares the second turn's words
    feeder.answered(returned(0, 10), reading("one"))
    ((_, (_, _, second)),) = feeder.jobs(10)
    assert b"q0\\none\\nq1" in second
    assert feeder.jobs(11) == []  # prepares the next conversation
    assert not feeder.exhausted(11)  # though the third and last number is given away
    feeder.answered(returned(1, 20), reading("two", outcome))
    ((_, (number, due, third)),) = feeder.jobs(20)
    assert (number, due) == (2, 0 if outcome is RequestOutcome.OK else 20 + 100 * MS)
    assert b"q2" in third
    assert b"two" not in third
    assert feeder.exhausted(21)


def test_nobody_asks_when_the_time_is_over() -> None:
    feeder = ConversationFeeder(maker(), specs(100, turns=2, think_ns=1), (3, 2), 100)
    feeder.begin(0, 1000)
    assert [worker for worker, _ in feeder.jobs(0)] == [0, 1, 0]
    feeder.answered(returned(0, 998), reading())
    feeder.answered(returned(1, 999), reading())
    assert [job[1] for _, job in feeder.jobs(999)] == [999]
    feeder.answered(returned(2, 998), reading())
    assert feeder.exhausted(1000)
    assert feeder.jobs(1000) == []


def test_a_number_of_questions() -> None:
    feeder = ConversationFeeder(maker(), specs(100, turns=2), (3, 1), 4)
    feeder.begin(0, None)
    assert len(feeder.jobs(0)) == 3
    assert not feeder.exhausted(0) or feeder.book
    feeder.answered(returned(0, 1), reading())
    assert [job[0] for _, job in feeder.jobs(1)] == [3]
    assert feeder.exhausted(1)
    feeder.answered(returned(1, 1), reading())
    assert feeder.jobs(1) == []


def talked(
    spoken: str, concurrency: int, **rest: object
) -> tuple[LoadStage, list[RequestObservation], list[Asked]]:
    with FaultyServer() as server:
        asked = trial(ClosedLoop(concurrency), counted(18), TALK, spoken=spoken, **rest)
        ready = prepared(server.url, asked)
        able = replace(
            ready.abilities, dialect=speaking(spoken)[0], engine="", model="m", usage=True
        )
        stage, seen = send_prepared(replace(ready, abilities=able))
        return stage, seen, server.asked


@pytest.mark.parametrize("workers", [1, 2])
def test_chat_carries_the_conversation(workers: int) -> None:
    _, seen, asked = talked("chat", 3, workers=workers)
    assert outcomes(seen) == {RequestOutcome.OK}
    assert len(seen) == 18
    by_number = {int(one.request_id.partition("-")[2]): (n, one) for n, one in enumerate(asked)}
    talks: dict[int, list[RequestObservation]] = defaultdict(list)
    for one in seen:
        talks[one.conversation].append(one)
    # The last request may begin a talk while another user still has a turn to go.
    assert sum(len(turns) == 3 for turns in talks.values()) >= 4
    for turns in talks.values():
        history: list[dict[str, str]] = []
        assert [one.turn for one in turns] == [0, 1, 2][: len(turns)]
        for turn, one in enumerate(turns):
            position, was = by_number[one.request_index]
            messages = was.body["messages"]
            assert messages[:-1] == history
            assert messages[-1]["role"] == "user"
            answer = f" t{position}.0 t{position}.1"
            history = [*messages, {"role": "assistant", "content": answer}]
            if turn:
                assert one.intended_ns == turns[turn - 1].ended_ns + THINK
                assert one.sent_ns is not None
                assert one.sent_ns >= one.intended_ns
                assert one.prompt_tokens_asked is None
            else:
                assert one.intended_ns == one.sent_ns
                assert one.prompt_tokens_asked == 5


def test_completions_carry_the_conversation_as_text() -> None:
    _, seen, asked = talked("completions", 1)
    assert outcomes(seen) == {RequestOutcome.OK}
    prompts = [one.body["prompt"] for one in asked]
    for number in range(18):
        if number % 3:
            answer = f" t{number - 1}.0 t{number - 1}.1"
            assert prompts[number].startswith(f"{prompts[number - 1]}\n{answer}\n")
        else:
            assert "\n" not in prompts[number]


def test_first_questions_are_there_when_the_clock_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many users there are: they are made before it, and sent as in any closed loop."""
    made: list[int] = []
    make = RequestMaker.make

    def counted_make(
        self: RequestMaker, number: int, spec: RequestSpec, messages: History
    ) -> tuple[Ask, bytes]:
        made.append(number)
        return make(self, number, spec, messages)

    monkeypatch.setattr(RequestMaker, "make", counted_make)
    feeder = ConversationFeeder(maker(), specs(100), (64, 1), 100)
    assert made == list(range(64))
    feeder.begin(0, None)
    assert [job[:2] for _, job in feeder.jobs(0)] == [(number, 0) for number in range(64)]
    with FaultyServer() as server:
        workload = replace(TALK, turns=Turns(Fixed(1), 0), prompt=Fixed(400))
        _, seen = send_prepared(
            prepared(server.url, trial(ClosedLoop(64), timed(500 * MS), workload))
        )
    assert {one.request_index for one in seen} >= set(range(64))
    assert all(one.intended_ns == one.sent_ns for one in seen)
    assert outcomes(seen) == {RequestOutcome.OK}
