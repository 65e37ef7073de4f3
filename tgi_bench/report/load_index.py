"""The parts of report.md that are about load over HTTP."""

from __future__ import annotations

from tgi_bench.analysis.load_run import Figure, LoadDistribution
from tgi_bench.analysis.run import Run
from tgi_bench.load_observation import ClientFloor
from tgi_bench.report import load_words as words
from tgi_bench.report.load_group import PARTIAL, has_figures
from tgi_bench.report.load_search import answer
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import UNDEFINED, deployment_heading, num_shard

_HEADERS = (
    "num_shard",
    "Setting",
    "Load",
    "Requests/s",
    "Output tokens/s",
    "TTFT p50",
    "TTFT p99",
    "ITL p50",
    "ITL p99",
    "E2E p50",
    "Verdict",
)
_FLOOR_HEADERS = (
    "Streams",
    "Interval",
    "Events/s",
    "CPU per event",
    "TTFT error p50, p90, p99",
    "ITL error p50, p90, p99",
    "Start lateness p50, p90, p99",
    "Stamps",
)


def against_throughput(run: Run) -> str:
    """One row for each load stage with figures and each step of a search, then the answers."""
    rows = []
    answers = []
    for load in run.loads:
        record = run.record(load.trial.deployment_id)
        place = (num_shard(record), deployment_heading(record.deployment))
        shown = load.stages if has_figures(load) or load.trial.find is not None else ()
        for stage in shown:
            rows.append(
                (
                    *place,
                    words.load_asked(load.trial, stage.stage)
                    + (f", {PARTIAL}" if load.cut_off(stage) else ""),
                    _value(stage.requests_per_s),
                    _value(stage.output_tokens_per_s),
                    *_middle_and_tail(stage.ttft),
                    *_middle_and_tail(stage.itl, words.unmeasurable("itl", stage)),
                    _middle_and_tail(stage.e2e)[0],
                    run.verdict.word_of(load.trial.trial_id, load.trial.deployment_id),
                )
            )
        if load.trial.find is not None:
            answers.append(f"- num_shard {place[0]}, {place[1]}: {answer(load, load.trial.find)}\n")
    table = markdown(Table(_HEADERS, tuple(rows), frozenset({0, *range(3, 10)}))) if rows else ""
    sections = [part for part in (table, "".join(answers)) if part]
    return "\n".join(["# Latency against throughput\n", *sections]) if sections else ""


def _value(figure: Figure | None) -> str:
    return UNDEFINED if figure is None else f"{figure.value:.2f}"


def _middle_and_tail(found: LoadDistribution | None, why: str = "") -> tuple[str, str]:
    """why: in the place of a median that is undefined."""
    if found is None:
        return why or UNDEFINED, UNDEFINED
    return words.figure_ms(found.p50), words.figure_ms(found.p99)


def client_error(run: Run) -> str:
    """The load client against a null server on the same machine; empty where not measured."""
    if not run.floors:
        return ""
    rows = tuple(map(_floor, run.floors))
    return (
        "# The client's own error\n\nThe load client against a server that logs when it sent each "
        "event and does nothing else, on the same machine. Differences smaller than these are the "
        "client's. A row with start lateness is of an open loop.\n\n"
        + markdown(Table(_FLOOR_HEADERS, rows, frozenset(range(7))))
    )


def _floor(floor: ClientFloor) -> tuple[str, ...]:
    return (
        f"{floor.streams:,}",
        words.seconds(floor.interval_ns) if floor.interval_ns else "none",
        f"{floor.events_per_s:,.0f}",
        f"{floor.cpu_ns_per_event / 1e3:.1f} µs",
        _errors(floor.ttft_error_ns),
        _errors(floor.itl_error_ns),
        _errors(floor.start_lateness_ns),
        "kernel" if floor.kernel_stamps else "user space",
    )


def _errors(percentiles_ns: tuple[float, float, float] | None) -> str:
    """ "21.0, 80.0, 230.0 µs"."""
    if percentiles_ns is None:
        return UNDEFINED
    return ", ".join(f"{ns / 1e3:.1f}" for ns in percentiles_ns) + " µs"
