"""Parts of a LoadTrial as plain fields, for run.db and for the JSON document alike.

Each value of a union carries its `kind`; every other field has the name that it has in
`tgi_bench.plan.load_trial`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tgi_bench.plan.load_trial import (
    Arrivals,
    ClosedLoop,
    Empirical,
    Fixed,
    Length,
    LogNormal,
    Normal,
    OpenLoop,
    TraceTimes,
    Uniform,
    Workload,
)


def workload_fields(workload: Workload) -> dict[str, Any]:
    """None where a length or the turns are not given."""
    turns = workload.turns
    return {
        **asdict(workload),
        "prompt": None if workload.prompt is None else _length_fields(workload.prompt),
        "output": None if workload.output is None else _length_fields(workload.output),
        "turns": None if turns is None else {**asdict(turns), "count": _length_fields(turns.count)},
    }


def arrivals_kind(arrivals: Arrivals) -> str:
    """closed_loop, open_loop or trace_times."""
    match arrivals:
        case ClosedLoop():
            return "closed_loop"
        case OpenLoop():
            return "open_loop"
        case TraceTimes():
            return "trace_times"


def arrivals_fields(arrivals: Arrivals) -> dict[str, Any]:
    """With its kind."""
    return {"kind": arrivals_kind(arrivals), **asdict(arrivals)}


def _length_fields(length: Length) -> dict[str, Any]:
    match length:
        case Fixed():
            kind = "fixed"
        case Uniform():
            kind = "uniform"
        case Normal():
            kind = "normal"
        case LogNormal():
            kind = "lognormal"
        case Empirical():
            kind = "empirical"
    return {"kind": kind, **asdict(length)}
