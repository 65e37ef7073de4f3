"""The null server's log as a file."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.errors import InputError
from tgi_bench.server.null.log_file import ServedLog, ServedRequest, decode, encode

TIMES = st.integers(-(2**63), 2**63 - 1)
REQUESTS = st.builds(
    ServedRequest,
    connection=st.integers(0, 2**32 - 1),
    index=st.integers(0, 2**32 - 1),
    request_id=st.binary(max_size=255),
    arrival_ns=TIMES,
    due_ns=TIMES,
    sent_ns=st.lists(TIMES, max_size=5).map(lambda times: array("q", times)),
    whole=st.booleans(),
)
LOGS = st.builds(
    ServedLog,
    interval_ns=st.integers(0, 2**62),
    cpu_ns=TIMES,
    served_ns=TIMES,
    clock_step_ns=TIMES,
    kernel_stamps=st.booleans(),
    requests=st.lists(REQUESTS, max_size=4).map(tuple),
)


@given(LOGS)
def test_what_is_written_is_read(log: ServedLog) -> None:
    assert decode(encode(log)) == log


@given(LOGS, st.data())
def test_a_log_that_is_cut_off_is_refused(log: ServedLog, data: st.DataObject) -> None:
    whole = encode(log)
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(InputError, match="null server"):
        decode(whole[:length])


def test_another_file_is_refused() -> None:
    with pytest.raises(InputError, match="no log of a null server"):
        decode(b"SQLite format 3\0" + bytes(100))


def test_lateness_by_hand() -> None:
    request = ServedRequest(0, 0, b"", 90, 100, array("q", [101, 120, 145]), whole=True)
    assert ServedLog(20, 0, 0, 0, True, (request,)).lateness_ns() == [1, 0, 5]
    assert ServedLog(0, 0, 0, 0, True, (request,)).lateness_ns() == []
