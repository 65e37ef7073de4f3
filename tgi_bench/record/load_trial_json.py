"""A LoadTrial as JSON text, and back to an equal one.

Its fields are those of `tgi_bench.plan.load_trial_fields`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tgi_bench.dialects import API_NAMES
from tgi_bench.dialects.sampling import Sampling
from tgi_bench.plan.load_trial import (
    Arrivals,
    ClosedLoop,
    Empirical,
    Extent,
    FileKind,
    Find,
    Fixed,
    Length,
    LoadTrial,
    LogNormal,
    Normal,
    OpenLoop,
    Process,
    RatePart,
    SharedPrefix,
    Slo,
    Sought,
    TraceTimes,
    Turns,
    Uniform,
    Until,
    Workload,
    WorkloadFile,
)
from tgi_bench.plan.load_trial_fields import arrivals_fields, workload_fields


def encode(trial: LoadTrial) -> str:
    """One line of JSON; the same trial gives the same text."""
    said = {
        **asdict(trial),
        "workload": workload_fields(trial.workload),
        "arrivals": arrivals_fields(trial.arrivals),
    }
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> LoadTrial:
    """The trial that `encode` was given. Raises ValueError or TypeError where it is none."""
    try:
        return _trial(json.loads(text))
    except (KeyError, AttributeError) as error:
        raise ValueError(f"a load trial is not as it was written: {error!r}") from error


def _trial(said: dict[str, Any]) -> LoadTrial:
    if said["spoken"] not in API_NAMES:
        raise ValueError(f"no HTTP API is called {said['spoken']!r}")
    return LoadTrial(
        **{
            **said,
            "workload": _workload(said["workload"]),
            "arrivals": _arrivals(said["arrivals"]),
            "extent": _extent(said["extent"]),
            "slos": tuple(Slo(**slo) for slo in said["slos"]),
            "find": None if said["find"] is None else _find(said["find"]),
            "sampling": Sampling(**said["sampling"]),
        }
    )


def _workload(said: dict[str, Any]) -> Workload:
    file, prefix, turns = said["file"], said["shared_prefix"], said["turns"]
    return Workload(
        **{
            **said,
            "prompt": None if said["prompt"] is None else _length(said["prompt"]),
            "output": None if said["output"] is None else _length(said["output"]),
            "file": None
            if file is None
            else WorkloadFile(**{**file, "kind": FileKind(file["kind"])}),
            "shared_prefix": None if prefix is None else SharedPrefix(**prefix),
            "turns": None
            if turns is None
            else Turns(**{**turns, "count": _length(turns["count"])}),
        }
    )


def _length(said: dict[str, Any]) -> Length:
    rest = {name: value for name, value in said.items() if name != "kind"}
    match said["kind"]:
        case "fixed":
            return Fixed(**rest)
        case "uniform":
            return Uniform(**rest)
        case "normal":
            return Normal(**rest)
        case "lognormal":
            return LogNormal(**rest)
        case "empirical":
            return Empirical(tuple(rest["values"]), tuple(rest["weights"]))
        case other:
            raise ValueError(f"a length of kind {other!r}")


def _arrivals(said: dict[str, Any]) -> Arrivals:
    rest = {name: value for name, value in said.items() if name != "kind"}
    match said["kind"]:
        case "closed_loop":
            return ClosedLoop(**rest)
        case "open_loop":
            parts = tuple(RatePart(**part) for part in rest["parts"])
            return OpenLoop(**{**rest, "parts": parts, "process": Process(rest["process"])})
        case "trace_times":
            return TraceTimes(**rest)
        case other:
            raise ValueError(f"arrivals of kind {other!r}")


def _extent(said: dict[str, Any]) -> Extent:
    until = said["until"]
    return Extent(**{**said, "until": None if until is None else Until(**until)})


def _find(said: dict[str, Any]) -> Find:
    return Find(**{**said, "sought": Sought(said["sought"])})
