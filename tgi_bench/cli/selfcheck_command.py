"""`tgi-bench selfcheck`: the load client's own error on this machine, against a null server."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass

from tgi_bench.cli import selfcheck_loads as loads
from tgi_bench.cli.echo import echo
from tgi_bench.cli.exit_codes import FAILED
from tgi_bench.cli.selfcheck_loads import CheckLoad, RunLoad, check
from tgi_bench.cli.selfcheck_report import SelfcheckReport, as_json, print_table
from tgi_bench.errors import InputError
from tgi_bench.load_observation import ClientFloor
from tgi_bench.record import environment

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


def run(options: SelfcheckOptions, run_load: RunLoad) -> int:
    """Print the client's error; 0, or 1 where client and null server do not tell the same.

    Raises InputError for options that cannot be used.
    """
    report = measure(options, run_load)
    if options.form == "json":
        echo(as_json(report), nl=False)
    else:
        print_table(report)
    return 0 if all(result.errors.agrees for result in report.results) else FAILED


def measure(options: SelfcheckOptions, run_load: RunLoad) -> SelfcheckReport:
    """Every load in turn; InputError as `run`."""
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
