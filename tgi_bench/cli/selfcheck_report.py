"""What `tgi-bench selfcheck` found, as a table and as JSON.

JSON: schema `tgi-bench-selfcheck`, version 1. Units stand in the names; an undefined figure is
null. Top level: schema, schema_version, machine, agrees, loads. A key that is added raises no
version; one that changes or goes does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tgi_bench.analysis.client_error import Percentiles
from tgi_bench.cli.console import standard_output
from tgi_bench.cli.folded_table import print_folded
from tgi_bench.cli.selfcheck_loads import CheckResult
from tgi_bench.plan.load_trial import Fixed, OpenLoop
from tgi_bench.report.json_text import json_text
from tgi_bench.report.table import Table

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

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]


@dataclass(frozen=True, slots=True)
class SelfcheckReport:
    """machine: name and value of its facts. results: of each load, in order."""

    machine: tuple[tuple[str, str], ...]
    results: tuple[CheckResult, ...]


def as_json(report: SelfcheckReport) -> str:
    """Every figure."""
    document: Json = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "machine": dict(report.machine),
        "agrees": all(result.errors.agrees for result in report.results),
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


def print_table(report: SelfcheckReport) -> None:
    """A row for each load, what the stamps are of, what did not agree, and the machine."""
    console = standard_output()
    rows = tuple(_cells(result) for result in report.results)
    print_folded(console, Table(_COLUMNS, rows, frozenset(range(1, len(_COLUMNS)))), 1)
    lines = [
        "errors and lateness: p50 / p90 / p99 in us, against the null server's own log; CPU: of "
        "all client processes, us",
        *_stamp_lines(report),
        *_disagreements(report),
        *(f"{name}: {value}" for name, value in report.machine),
    ]
    console.print()
    for line in lines:
        console.print(line, markup=False, soft_wrap=not console.is_terminal)


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
