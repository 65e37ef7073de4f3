"""What it cost that requests had to wait for a connection."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tgi_bench.analysis.samples import LEAST_SAMPLES, PER_MILLE, rank
from tgi_bench.kinds.load.figures import Reopening
from tgi_bench.kinds.load.metrics import e2e_ns, send_lag_ns, ttft_ns
from tgi_bench.load_observation import RequestObservation


def reopening(answered: Sequence[RequestObservation], streamed: bool) -> Reopening | None:
    """Of requests that ended well; None where each found a connection open."""
    waited = [seen for seen in answered if seen.new_connection]
    if not waited:
        return None
    waits = [wait for seen in waited if (wait := send_lag_ns(seen)) is not None]
    of = ttft_ns if streamed else e2e_ns
    pairs = [
        (value, value - ((send_lag_ns(seen) or 0) if seen.new_connection else 0))
        for seen in answered
        if (value := of(seen)) is not None
    ]
    # Runs of older formats have no wait in them: a closed loop's sends were all on time.
    told = bool(pairs) and min(waits, default=0) > 0
    return Reopening(
        requests=len(waited),
        resent=sum(seen.resent > 0 for seen in waited),
        wait_p50_ns=median(waits) if waits else 0.0,
        moved=_moved(pairs) if told else None,
    )


def _moved(pairs: Sequence[tuple[int, int]]) -> float:
    """The largest share of a percentile that is the waits', of those with enough samples."""
    whole, without = sorted(value for value, _ in pairs), sorted(value for _, value in pairs)
    shares = [
        1 - without[place] / whole[place]
        for name, per_mille in PER_MILLE.items()
        if len(pairs) >= LEAST_SAMPLES[name] and whole[place := rank(len(pairs), per_mille) - 1] > 0
    ]
    return max(shares, default=0.0)
