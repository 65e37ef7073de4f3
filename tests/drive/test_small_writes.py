"""A server that holds small pieces back until they are acknowledged, as TGI's router does."""

from __future__ import annotations

from statistics import median

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import MS, closed, outcomes, send
from tgi_bench.load_observation import RequestOutcome

_LEAST_DELAY_NS = 30 * MS
"""Linux delays an acknowledgement by 40 ms."""


@pytest.mark.parametrize("tls", [False, True])
def test_acknowledging_at_once_takes_the_wait_away(tls: bool) -> None:
    found = []
    with FaultyServer(tls=tls, nagle=True) as server:
        for quickack in (False, True):
            _, seen = send(server.url, closed(12, 2, quickack=quickack), verify_tls=False)
            assert outcomes(seen) == {RequestOutcome.OK}
            first = median(one.event_ns[0] - (one.sent_ns or 0) for one in seen)
            found.append((first, sum(one.shared_reads for one in seen)))
    (held, shared), (first, shared_less) = found
    assert held > _LEAST_DELAY_NS
    assert first < held
    assert shared_less < shared
