"""The command line: options, messages and exit codes; the work is in the modules it calls.

Modules are imported by the command that needs them, so that `--help` and `plan` stay quick.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click

from tgi_bench import __version__
from tgi_bench.cli.load_options import given, load_options
from tgi_bench.cli.options import engine_options, estimate_options, experiment_options
from tgi_bench.cli.output import BAD_INPUT, FAILED, INTERRUPTED, echo
from tgi_bench.errors import InputError, LaunchError, NotRecordedError, TgiBenchError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_OBJECTS_BETWEEN_COLLECTIONS = 200_000
_results = click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder that runs are kept in.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tgi-bench")
def cli() -> None:
    """How fast is this text-generation-inference server, and whether to believe it.

    Exit codes: 0 believed and met, 1 a run failed, 2 bad input, 3 a result is INVALID, 4 believed,
    and an SLO or a search was missed, 130 interrupted.
    """


@cli.command()
@experiment_options
@_results
@click.option("--resume", is_flag=True, help="Go on with the newest unfinished run of this plan.")
@click.option("--no-pull", is_flag=True, help="Refuse a missing image instead of pulling it.")
def sweep(results: Path, resume: bool, no_pull: bool, **request: Any) -> None:
    """Measure every deployment of EXPERIMENT, and report.

    EXPERIMENT is a YAML file: each server of its matrix is launched, driven, recorded and reported.
    """
    from tgi_bench.cli import sweep_command
    from tgi_bench.cli.files import ExperimentRequest

    options = sweep_command.SweepOptions(results, resume, not no_pull)
    sys.exit(sweep_command.run(ExperimentRequest(**request), options))


@cli.command()
@experiment_options
def plan(**request: Any) -> None:
    """Print what a sweep of EXPERIMENT would run.

    With estimates of its time and memory; nothing is started or touched.
    """
    from tgi_bench.cli import plan_command
    from tgi_bench.cli.files import ExperimentRequest

    plan_command.run(ExperimentRequest(**request))


@cli.command()
@estimate_options
@click.option(
    "--calibration",
    metavar="FILE|NAME",
    help="Of `tgi-bench calibrate`, or a published one by its stack; by default the published "
    "one of this accelerator and stack.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "md", "rst"]),
    default="table",
    show_default=True,
)
def estimate(
    experiment: Path | None,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    calibration: str | None,
    form: str,
    **matrix: Any,
) -> None:
    """Estimate time, memory and energy, without a server.

    Of a matrix of options, or of EXPERIMENT's batches. As in tgi-bench estimate --model
    bigscience/bloomz-7b1-mt --num-shard 1,2,4,8
    --batch-size 1,8,32 --prompt-tokens 1024 --new-tokens 8
    """
    from tgi_bench.cli import estimate_command

    asked = estimate_command.asked(experiment, settings, only, matrix)
    estimate_command.run(asked, calibration, form)


@cli.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="RUN...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The YAML file to write, for --calibration.",
)
@click.option(
    "--fit",
    metavar="NAME,NAME",
    help="The constants to fit, at most 5; the usual ones of the stack by default.",
)
@click.option("--accelerator", metavar="ROW", help="Of runs of a server that do not name theirs.")
@click.option("--simulated-ok", is_flag=True, help="Take simulated runs, and say so.")
def calibrate(
    runs: tuple[Path, ...],
    output: Path | None,
    fit: str | None,
    accelerator: str | None,
    simulated_ok: bool,
) -> None:
    """Fit the estimate's constants to RUNs, with held-out errors.

    A RUN is a folder or a run.db: measured batches, or a table that was imported.
    """
    from tgi_bench.cli import calibrate_command

    names = tuple(word.strip() for word in fit.split(",")) if fit is not None else ()
    options = calibrate_command.CalibrateOptions(output, names, accelerator, simulated_ok)
    calibrate_command.run(runs, options)


@cli.command()
@load_options
@_results
@click.option("--resume", is_flag=True, help="Go on with the newest unfinished run of these loads.")
def load(url: str, results: Path, resume: bool, **options: Any) -> None:
    """Send requests over HTTP to the server at URL, and report.

    The server runs already. TGI's own API or an OpenAI-compatible one, found by asking. As in
    tgi-bench load http://127.0.0.1:3000 -c 1,8,64 --prompt-tokens 512 --duration 30s
    """
    from tgi_bench.cli import load_command, sweep_command
    from tgi_bench.report.source import COMMAND

    experiment, found = load_command.load_plan_of(given(url, options))
    source = (COMMAND, shlex.join(["tgi-bench", *sys.argv[1:]]))
    sought = sweep_command.SweepAsked(experiment, found, source)
    sys.exit(sweep_command.sweep(sought, sweep_command.SweepOptions(results, resume, False)))


@cli.command()
@click.option(
    "--streams",
    default="1,64,256,512",
    show_default=True,
    help="How many paced streams at once, a load each.",
)
@click.option("--seconds", default=10.0, show_default=True, help="Of each load.")
@click.option(
    "--held", default=5000, show_default=True, help="Streams of a load that only holds them."
)
@click.option("--format", "form", default="table", show_default=True, help="table or json.")
def selfcheck(streams: str, seconds: float, held: int, form: str) -> None:
    """Measure the load client's own error on this machine.

    The null server sends tokens on a schedule and logs when; what the client says is laid beside
    that log.
    """
    from tgi_bench.cli import report_command
    from tgi_bench.drive.load import run_load
    from tgi_bench.selfcheck.report import SelfcheckOptions, stream_counts

    options = SelfcheckOptions(stream_counts(streams), seconds, form, held)
    sys.exit(report_command.selfcheck(options, run_load))


@cli.command()
@click.argument("runs", metavar="RUN...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "json", "csv", "rst"]),
    default="md",
    show_default=True,
    help="md: report.md and a file for each num_shard. rst: estimates beside measurements.",
)
@click.option(
    "--layout",
    type=click.Choice(["bigcode", "h2ogpt"]),
    help="The layout of a published table, for runs of direct mode; several runs share it.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder to write into instead of the standard output; csv then has estimates.csv too.",
)
@click.option(
    "--beside",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Lay this run's batches side by side with those of RUN, with errors, instead.",
)
def report(runs: tuple[Path, ...], **options: Any) -> None:
    """Make the reports of RUN (its folder or its run.db) again."""
    from tgi_bench.cli import report_command

    sys.exit(report_command.run(runs, report_command.ReportOptions(**options)))


@cli.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the run's experiment; the file's name by default.")
@_results
def import_(file: Path, name: str | None, results: Path) -> None:
    """Read FILE, a published table, into a run of its own.

    It may be a report of text-generation-benchmark, or a table of h2oGPT,
    bigcode-inference-benchmark or TorchCAP, in Markdown or reStructuredText.
    """
    from tgi_bench.cli import report_command

    report_command.import_tables(file, name, results)


@cli.command()
def clean() -> None:
    """End what killed sweeps have left, and say what it did.

    These are processes, containers and sockets. What belongs to a sweep that still runs is
    not touched. A sweep does this when it begins.
    """
    from tgi_bench.launch import LAUNCHERS
    from tgi_bench.launch.left_behind import end_left

    left = end_left(LAUNCHERS)
    for line in left.sentences() or ["nothing was left"]:
        echo(line)
    for line in left.not_asked:
        echo(line)


@cli.command()
def schema() -> None:
    """Print the JSON Schema of an experiment file."""
    from tgi_bench.plan.experiment import json_schema

    echo(json_schema(), nl=False)


@cli.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@engine_options
@click.argument("launcher_arguments", nargs=-1, type=click.UNPROCESSED)
def serve(launcher_arguments: tuple[str, ...], **options: Any) -> None:
    """Run the embedded server, which speaks TGI's protocols.

    LAUNCHER_ARGUMENTS are those of that version, as in --model-id bigscience/bloomz-7b1-mt
    --num-shard 2 --port 3000; each may also come from its environment variable. It listens on
    127.0.0.1 unless --hostname says otherwise.
    """
    from tgi_bench.cli.files import chooser
    from tgi_bench.server.command import EngineOptions, run

    sys.exit(run(EngineOptions(**options), launcher_arguments, os.environ, chooser))


def main() -> None:
    """Run the command line and exit: the only place where an exception becomes a message."""
    # What is imported stays: passes over it while it grows are a tenth of a start.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 10, 10)
    if sys.argv[1:2] != ["serve"]:
        _end_as_ctrl_c_does()
    try:
        _run_flushed()
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has stopped.
        _drop_output()
        sys.exit(FAILED)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _drop_output()
        where = "the output" if error.filename is None else str(error.filename)
        echo(f"tgi-bench: {where} cannot be written: {error.strerror}", err=True)
        sys.exit(FAILED)
    except TgiBenchError as error:
        echo(f"tgi-bench: {error}", err=True)
        if isinstance(error, LaunchError):
            for line in error.log_tail:
                echo(f"  | {line}", err=True)
        full = isinstance(error, NotRecordedError)
        sys.exit(BAD_INPUT if isinstance(error, InputError) and not full else FAILED)


def _run_flushed() -> None:
    """Run it; what is still unwritten is written here, where a failure becomes a message."""
    try:
        cli.main(prog_name="tgi-bench", standalone_mode=False)
    finally:
        sys.stdout.flush()


def _drop_output() -> None:
    """Nothing more is written: the interpreter must not try to flush what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_as_ctrl_c_does() -> None:
    """Other ways to end it: servers are stopped and what there is is reported."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: object) -> None:
    if number == signal.SIGHUP:
        _leave_a_lost_terminal()
    raise KeyboardInterrupt


def _leave_a_lost_terminal() -> None:
    """Where a terminal is gone every line to it would fail, and end the report with it."""
    for stream in (1, 2):
        poll = select.poll()
        poll.register(stream, 0)
        if any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0)):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


if __name__ == "__main__":
    main()
