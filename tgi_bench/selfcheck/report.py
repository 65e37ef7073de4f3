"""`tgi-bench selfcheck`: the load client's own error on this machine, against a null server.

Its JSON: schema `tgi-bench-selfcheck`, version 1. Units stand in the names; an undefined figure is
null. Top level: schema, schema_version, machine, agrees, loads. A key that is added raises no
version; one that changes or goes does.
"""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass

from tgi_bench.analysis.client_error import Percentiles
from tgi_bench.errors import InputError
from tgi_bench.load_observation import ClientFloor
from tgi_bench.record import environment
from tgi_bench.report.json_text import Json, json_text
from tgi_bench.report.table import Table
from tgi_bench.selfcheck import loads
from tgi_bench.selfcheck.loads import CheckLoad, CheckResult, RunLoad, check
from tgi_bench.trials.load import Fixed, OpenLoop

SCHEMA = "tgi-bench-selfcheck"
SCHEMA_VERSION = 1
UNDEFINED = "-"
_COLUMNS = (
    "Load",
    "Requests",
    "Failed",
    "Events/s",
    "CPU/event",
    "TTFT error",
    "ITL error",
    "Start lateness",
    "In flight",
    "Workers",
    "Memory",
)


@dataclass(frozen=True, slots=True)
class SelfcheckReport:
    """machine: name and value of its facts. results: of each load, in order."""

    machine: tuple[tuple[str, str], ...]
    results: tuple[CheckResult, ...]

    @property
    def agrees(self) -> bool:
        """Whether client and null server tell the same of every load."""
        return all(result.errors.agrees for result in self.results)


def as_json(report: SelfcheckReport) -> str:
    """Every figure."""
    document: Json = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "machine": dict(report.machine),
        "agrees": report.agrees,
        "loads": [_load(result) for result in report.results],
    }
    return json_text(document)


def _load(result: CheckResult) -> Json:
    floor, client = result.floor, result.stage.client
    arrivals = result.load.trial.arrivals
    output = result.load.trial.workload.output
    return {
        "name": result.load.name,
        "streams": floor.streams,
        "interval_ns": floor.interval_ns,
        "rate_per_s": arrivals.rate_per_s if isinstance(arrivals, OpenLoop) else None,
        "tokens_per_request": output.tokens if isinstance(output, Fixed) else None,
        "requests": _requests(result),
        "most_in_flight": result.most_in_flight,
        "events": floor.events,
        "events_per_s": floor.events_per_s,
        "cpu_ns_per_event": floor.cpu_ns_per_event,
        "worker_cpu_ns": list(client.worker_cpu_ns),
        "parent_cpu_ns": client.parent_cpu_ns,
        "workers": client.workers,
        "memory_bytes": result.memory_bytes,
        "ttft_error_ns": _named(floor.ttft_error_ns),
        "itl_error_ns": _named(floor.itl_error_ns),
        "start_lateness_ns": _named(floor.start_lateness_ns),
        "kernel_stamps": floor.kernel_stamps,
        "stamp_reason": client.stamp_reason,
        "clock_step_ns": client.clock_step_ns,
        "null_server": {
            "cpu_ns_per_event": result.null.cpu_ns_per_event,
            "lateness_ns": _named(result.null.lateness_ns),
            "kernel_stamps": result.null.kernel_stamps,
            "clock_step_ns": result.null.clock_step_ns,
        },
    }


def _requests(result: CheckResult) -> Json:
    errors = result.errors
    return {
        "compared": errors.compared,
        "missing": errors.missing,
        "differing": errors.differing,
        "failed": errors.failed,
    }


def _named(found: Percentiles | None) -> Json:
    return None if found is None else dict(zip(("p50", "p90", "p99"), found, strict=True))


def as_table(report: SelfcheckReport) -> Table:
    """A row for each load."""
    rows = tuple(map(_cells, report.results))
    return Table(_COLUMNS, rows, frozenset(range(1, len(_COLUMNS))))


def notes(report: SelfcheckReport) -> list[str]:
    """What the table's figures and stamps are of, what did not agree, and the machine."""
    return [
        "errors and lateness: p50 / p90 / p99 in us, against the null server's own log; CPU: of "
        "all client processes, us",
        *_stamp_lines(report),
        *_disagreements(report),
        *(f"{name}: {value}" for name, value in report.machine),
    ]


def _cells(result: CheckResult) -> tuple[str, ...]:
    floor = result.floor
    memory = result.memory_bytes
    return (
        result.load.name,
        str(result.errors.compared),
        str(result.errors.failed),
        f"{floor.events_per_s:,.0f}",
        f"{floor.cpu_ns_per_event / 1e3:.2f} us",
        _microseconds(floor.ttft_error_ns),
        _microseconds(floor.itl_error_ns),
        _microseconds(floor.start_lateness_ns),
        str(result.most_in_flight),
        str(result.stage.client.workers),
        UNDEFINED if memory is None else f"{memory / 2**20:.0f} MiB",
    )


def _microseconds(found: Percentiles | None) -> str:
    return UNDEFINED if found is None else " / ".join(f"{ns / 1e3:,.0f}" for ns in found)


def _stamp_lines(report: SelfcheckReport) -> list[str]:
    """Whose arrival times these are, of both sides, and whether a clock stepped."""
    lines = []
    reasons = sorted({r.stage.client.stamp_reason for r in report.results} - {""})
    if all(r.floor.kernel_stamps for r in report.results):
        lines.append("arrivals: the kernel's receive timestamps")
    else:
        why = f": {'; '.join(reasons)}" if reasons else ""
        lines.append(f"arrivals: stamped after the read, in user space{why}")
    if not all(r.null.kernel_stamps for r in report.results):
        lines.append("the null server's request arrivals: stamped after the read, in user space")
    steps_ns = [
        step
        for r in report.results
        for step in (r.stage.client.clock_step_ns, r.null.clock_step_ns)
    ]
    largest_ns = max(map(abs, steps_ns), default=0)
    lines.append(f"largest step of the wall clock: {largest_ns / 1e3:,.1f} us")
    return lines


def _disagreements(report: SelfcheckReport) -> list[str]:
    return [
        f"{r.load.name}: client and null server disagree: {r.errors.failed} requests failed, "
        f"{r.errors.missing} are not in its log, {r.errors.differing} have another number of "
        "events there"
        for r in report.results
        if not r.errors.agrees
    ]


FORMS = ("table", "json")
_LONGEST_S = 3600.0
_OTHER_FILES = 256
"""Descriptors that a client needs beside its connections, with room to spare."""

_QUICK_S = 2.0
_FACTS = ("tgi-bench", "Python", "Kernel", "CPU", "CPU cores", "Memory", "Load average at start")


@dataclass(frozen=True, slots=True)
class SelfcheckOptions:
    """streams: of the paced loads. seconds: of each load but the held one. form: one of FORMS.

    held: streams of the load that only holds them; 0: it is left out.
    """

    streams: tuple[int, ...] = (1, 64, 256, 512)
    seconds: float = 10.0
    form: str = "table"
    held: int = 5000


def stream_counts(text: str) -> tuple[int, ...]:
    """Of "1,64,256". Raises InputError."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise InputError(f"--streams {text}: numbers with commas between are needed") from None


def measure(options: SelfcheckOptions, run_load: RunLoad) -> SelfcheckReport:
    """Every load in turn. Raises InputError for options that cannot be used."""
    _require_usable(options)
    facts = dict(environment.capture())
    results = [check(load, run_load) for load in _loads(options)]
    return SelfcheckReport(
        machine=tuple((name, facts[name]) for name in _FACTS),
        results=tuple(results),
    )


def quick_floor(streams: int | None, run_load: RunLoad) -> ClientFloor:
    """The client's error, measured in about 2 s, for a report.

    streams: at so many paced ones at once; None: of an open loop, with its start lateness.
    """
    load = loads.open_loop(_QUICK_S) if streams is None else loads.paced(streams, _QUICK_S)
    return check(load, run_load).floor


def _loads(options: SelfcheckOptions) -> list[CheckLoad]:
    chosen = [loads.paced(streams, options.seconds) for streams in options.streams]
    chosen += [loads.open_loop(options.seconds), loads.absorbed(options.seconds)]
    if options.held:
        chosen.append(loads.held(options.held))
    return chosen


def _require_usable(options: SelfcheckOptions) -> None:
    if options.form not in FORMS:
        raise InputError(f"--format {options.form}: unknown; allowed: {', '.join(FORMS)}")
    if not math.isfinite(options.seconds) or not 0 < options.seconds <= _LONGEST_S:
        raise InputError(
            f"--seconds {options.seconds:g}: above 0 and at most {_LONGEST_S:g} is needed"
        )
    if not options.streams or min(options.streams) < 1:
        raise InputError("--streams: at least one number from 1 is needed")
    if options.held < 0:
        raise InputError(f"--held {options.held}: a number from 0 is needed")
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(*options.streams, options.held)
    if files != resource.RLIM_INFINITY and most + _OTHER_FILES > files:
        raise InputError(
            f"{most} streams need {most + _OTHER_FILES} open files and this machine allows "
            f"{files}; raise `ulimit -Hn`, or give fewer with --streams and --held"
        )
