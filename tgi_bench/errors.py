"""Every exception that tgi-bench raises on purpose.

    TgiBenchError
    |-- InputError              what the user gave cannot be used (exit 2)
    |   |-- ExperimentError     an experiment file: knows file, line and key path
    |   |-- RunFileError        a run.db that is missing, truncated, foreign or too new
    |   |-- ResultsError        a results folder that cannot be written, a run id that exists
    |   |   `-- NotRecordedError  a run that goes on could not be written any more (exit 1)
    |   `-- TableError          a published report that does not parse
    |-- LaunchError             a server did not become ready, or died (exit 1)
    `-- StepError               a gRPC step failed: knows its outcome (caught by the sweep)

Only `cli` turns them into a message and an exit code.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from tgi_bench.inert import one_line
from tgi_bench.observation import Outcome

NAME_THE_KEY = (
    "name the environment variable that holds it in server.env (`tgi-bench load`: --api-key-env), "
    "or write its header in server.headers (--header)"
)
"""What mends a server's 401 or 403."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class TgiBenchError(Exception):
    """Base of the tree above. `str()` is one message fit to be shown to a user."""


class InputError(TgiBenchError):
    """What the user gave cannot be used."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in an experiment.

    key_path: dotted, with list indexes: "server.constant.num_shard", "batches.batch_size.2";
        "" is the whole file.
    message: what is wrong, what is allowed and the nearest valid key, in one sentence.
    """

    key_path: str
    message: str


class ExperimentError(InputError):
    """An experiment cannot be used: one or more problems.

    The pure code that finds a problem knows its key path only; whoever read the file
    calls `located` to add the file and the lines.
    """

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("\n".join(_sentence(p) for p in problems))

    def located(self, file: str, lines: dict[str, int]) -> LocatedExperimentError:
        """The same problems with `file:line` before each; `lines` maps key paths to lines.

        A key path that has no line of its own takes that of its nearest parent.
        """
        return LocatedExperimentError(self.problems, file, lines)


class LocatedExperimentError(ExperimentError):
    """An ExperimentError that knows the file and the line of each problem."""

    def __init__(self, problems: tuple[Problem, ...], file: str, lines: dict[str, int]) -> None:
        super().__init__(*problems)
        self.args = (
            "\n".join(
                f"{one_line(file)}:{_line_of(p.key_path, lines)}: {_sentence(p)}" for p in problems
            ),
        )


def _sentence(problem: Problem) -> str:
    path = f"{problem.key_path}: " if problem.key_path else ""
    return one_line(f"{path}{problem.message}")


def _line_of(key_path: str, lines: dict[str, int]) -> int:
    while key_path and key_path not in lines:
        key_path = key_path.rpartition(".")[0]
    return lines.get(key_path, 1)


class RunFileError(InputError):
    """A run.db that is missing, truncated, not a run, or of a newer format version."""


class ResultsError(InputError):
    """A results folder that cannot be written, or a run id that exists already."""


class NotRecordedError(ResultsError):
    """A run that goes on could not be written any more, as on a full disk."""


def not_written(what: str, error: OSError) -> ResultsError:
    """A NotRecordedError where there was no room for it, else a ResultsError."""
    kind = NotRecordedError if error.errno in _NO_ROOM else ResultsError
    return kind(f"{what}: {error.strerror}")


class TableError(InputError):
    """A published table that does not parse. line: 1-based; None where no one line is at fault."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what if line is None else f"line {line}: {what}")
        self.what, self.line = what, line


class LaunchError(TgiBenchError):
    """A server did not become ready or died.

    log_tail: its last lines, oldest first, as it printed them.
    """

    def __init__(self, cause: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(cause)
        self.log_tail = log_tail


class StepError(TgiBenchError):
    """A gRPC step failed; `outcome` says how and `str()` why."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
