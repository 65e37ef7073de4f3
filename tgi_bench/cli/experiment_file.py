"""An experiment file and the command line's overrides, read and expanded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tgi_bench.errors import InputError
from tgi_bench.plan.experiment import Experiment
from tgi_bench.plan.load import load_plan, parse_overrides
from tgi_bench.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for, as it was typed."""

    file: Path
    settings: tuple[str, ...]
    only: tuple[str, ...]
    launcher: str | None

    def load(self) -> tuple[Experiment, Plan]:
        """The experiment after overrides, and its plan; raises InputError."""
        overrides = parse_overrides(self.settings, self.launcher)
        return load_plan(read_text(self.file, "experiment"), str(self.file), overrides, self.only)


def read_text(file: Path, what: str) -> str:
    """The text of a file; InputError where it is missing, a directory, unreadable or binary."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{file}: no such {what} file") from None
    except IsADirectoryError:
        raise InputError(f"{file}: is a directory, not an {what} file") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is not a text file in UTF-8") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
