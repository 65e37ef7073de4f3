"""Hand-computed errors of a client against a null server's log. Times in ns."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.analysis.client_error import (
    NullLoad,
    ServerSends,
    client_errors,
    client_floor,
    most_in_flight,
    percentiles,
    request_id,
)
from tgi_bench.load_observation import (
    ClientFacts,
    LoadPart,
    LoadStage,
    RequestObservation,
    RequestOutcome,
    TokenSource,
)


def seen(
    index: int,
    sent_ns: int | None,
    event_ns: Sequence[int],
    intended_ns: int | None = None,
    part: LoadPart = LoadPart.MEASURED,
    outcome: RequestOutcome = RequestOutcome.OK,
    ended_ns: int | None = None,
) -> RequestObservation:
    last_ns = event_ns[-1] if event_ns else sent_ns or 0
    return RequestObservation(
        stage=2,
        request_index=index,
        worker=0,
        part=part,
        conversation=index,
        turn=0,
        intended_ns=(sent_ns or 0) if intended_ns is None else intended_ns,
        sent_ns=sent_ns,
        ended_ns=last_ns if ended_ns is None else ended_ns,
        event_ns=array("q", event_ns),
        event_tokens=array("i", [1] * len(event_ns)),
        events=len(event_ns),
        shared_reads=0,
        prompt_tokens_asked=None,
        prompt_tokens=None,
        cached_tokens=None,
        output_tokens_asked=None,
        output_tokens=len(event_ns),
        counted_by=TokenSource.SERVER,
        finish_reason="length",
        status=200,
        new_connection=False,
        kernel_stamps=True,
        outcome=outcome,
        reason="",
    )


def sends(index: int, arrival_ns: int, event_ns: Sequence[int]) -> ServerSends:
    return ServerSends(f"2-{index}", arrival_ns, array("q", event_ns))


def stage(concurrency: int | None, rate_per_s: float | None) -> LoadStage:
    client = ClientFacts(
        workers=2,
        worker_cpu_ns=(3_000, 4_000),
        parent_cpu_ns=1_000,
        wall_ns=10_000,
        kernel_stamps=True,
        stamp_reason="",
        clock_step_ns=0,
        connections_opened=2,
        connections_reopened=0,
    )
    return LoadStage(2, concurrency, rate_per_s, 0, 500, 4_500, 500, 4_500, "tgi", client)


def test_the_id_is_stage_and_index() -> None:
    assert request_id(seen(7, 1, [2])) == "2-7"


def test_errors_by_hand() -> None:
    requests = [
        # TTFT 100 for the client, 90 for the server; gaps 50, 60 against 55, 50.
        seen(0, 1_000, [1_100, 1_150, 1_210], intended_ns=990),
        # TTFT 70 against 75: the absolute error is 5; one gap, 40 against 40.
        seen(1, 2_000, [2_070, 2_110], intended_ns=1_999),
    ]
    log = [sends(1, 2_002, [2_077, 2_117]), sends(0, 1_005, [1_095, 1_150, 1_200])]
    errors = client_errors(requests, log)
    assert errors.ttft_ns.tolist() == [10, 5]
    assert errors.itl_ns.tolist() == [5, 10, 0]
    assert errors.lateness_ns.tolist() == [10, 1]
    assert (errors.compared, errors.missing, errors.differing, errors.failed) == (2, 0, 0, 0)
    assert errors.agrees


def test_what_cannot_be_compared_is_counted() -> None:
    requests = [
        seen(0, 10, [20, 30]),
        seen(1, 10, [20, 30]),  # the log has three events
        seen(2, 10, [20, 30]),  # the log has none of it
        seen(3, 10, [20], outcome=RequestOutcome.CONNECTION_RESET),
        seen(4, None, [], outcome=RequestOutcome.DROPPED),
        seen(5, 10, [20], outcome=RequestOutcome.CUT_OFF),
        seen(6, 10, [20, 99], part=LoadPart.WARMUP),
        seen(7, 10, []),  # answered without an event
    ]
    log = [
        sends(0, 12, [18, 28]),
        sends(1, 12, [18, 28, 38]),
        sends(3, 12, [18]),
        sends(5, 12, [18]),
        sends(6, 12, [18, 28]),
        sends(7, 12, []),
    ]
    errors = client_errors(requests, log)
    assert (errors.compared, errors.missing, errors.differing, errors.failed) == (1, 1, 2, 2)
    assert not errors.agrees
    assert errors.itl_ns.tolist() == [0]


def test_nothing_compared_does_not_agree() -> None:
    errors = client_errors([], [])
    assert not errors.agrees
    with pytest.raises(ValueError, match="no request"):
        client_floor(NullLoad(1, 20), stage(1, None), [], errors)


def test_one_id_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        client_errors([seen(0, 1, [2])], [sends(0, 1, [2]), sends(0, 5, [6])])


def test_answered_and_never_sent_is_refused() -> None:
    with pytest.raises(ValueError, match="never sent"):
        client_errors([seen(0, None, [2])], [sends(0, 1, [2])])


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], None),
        ([4], (4, 4, 4)),
        ([3, 1, 2], (2, 3, 3)),
        (list(range(100, 0, -1)), (50, 90, 99)),
        (list(range(1, 201)), (100, 180, 198)),
    ],
)
def test_percentiles_by_hand(
    samples: list[int], expected: tuple[float, float, float] | None
) -> None:
    assert percentiles(samples) == expected
    assert percentiles(np.asarray(samples, dtype=np.int64)) == expected


def test_a_floor_by_hand() -> None:
    requests = [seen(0, 1_000, [1_100, 1_150], intended_ns=990), seen(1, 2_000, [2_100, 2_160])]
    log = [sends(0, 1_000, [1_090, 1_140]), sends(1, 2_000, [2_070, 2_120])]
    errors = client_errors(requests, log)
    closed = client_floor(NullLoad(2, 50), stage(2, None), requests, errors)
    assert closed.events == 4
    assert closed.events_per_s == 4 / 4_000e-9
    assert closed.cpu_ns_per_event == (3_000 + 4_000 + 1_000) / 4
    assert closed.ttft_error_ns == (10, 30, 30)
    assert closed.itl_error_ns == (0, 10, 10)
    assert closed.start_lateness_ns is None
    opened = client_floor(NullLoad(2, 50), stage(None, 200.0), requests, errors)
    assert opened.start_lateness_ns == (0, 10, 10)


def test_an_instant_server_has_no_gaps_of_its_own() -> None:
    requests, log = [seen(0, 10, [20, 30])], [sends(0, 10, [15, 15])]
    floor = client_floor(NullLoad(1, 0), stage(1, None), requests, client_errors(requests, log))
    assert floor.itl_error_ns is None


def test_single_events_have_no_gaps() -> None:
    requests, log = [seen(0, 10, [20])], [sends(0, 10, [15])]
    floor = client_floor(NullLoad(1, 20), stage(1, None), requests, client_errors(requests, log))
    assert floor.itl_error_ns is None


def test_most_in_flight_by_hand() -> None:
    requests = [
        seen(0, 10, [], ended_ns=20),
        seen(1, 15, [], ended_ns=30),
        seen(2, 20, [], ended_ns=40),  # begins as the first one ends: two at once
        seen(3, None, [], outcome=RequestOutcome.DROPPED, ended_ns=18),
    ]
    assert most_in_flight(requests) == 2
    assert most_in_flight([]) == 0


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=30),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_a_constant_delay_is_no_itl_error(gaps: list[int], request_ns: int, answer_ns: int) -> None:
    """A delay of every event alike moves TTFT alone, by both ways' delays together."""
    arrival_ns = 10**6
    sent = [arrival_ns + sum(gaps[: k + 1]) for k in range(len(gaps))]
    requests = [seen(0, arrival_ns - request_ns, [t + answer_ns for t in sent])]
    errors = client_errors(requests, [sends(0, arrival_ns, sent)])
    assert errors.ttft_ns.tolist() == [request_ns + answer_ns]
    assert errors.itl_ns.tolist() == [0] * (len(gaps) - 1)
