"""What the command line names: experiments, and files of models and of calibrations."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import Choose, calibration_named, find, of_file, parse
from tgi_bench.estimate.config_json import ConfigModel
from tgi_bench.estimate.config_json import parse as parse_config
from tgi_bench.estimate.tables import ModelShape, model_names, model_shape
from tgi_bench.inert import one_line

if TYPE_CHECKING:
    # `read_text` is for commands without an experiment too, which do not wait for pydantic.
    from tgi_bench.plan.experiment import AnyExperiment
    from tgi_bench.plan.plan import Plan

_MOST_BYTES = 1 << 20
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """What the command line asked for, as it was typed."""

    file: Path
    settings: tuple[str, ...]
    only: tuple[str, ...]
    launcher: str | None

    def load(self) -> tuple[AnyExperiment, Plan]:
        """The experiment after overrides, and its plan; raises InputError."""
        # They read YAML, which `tgi-bench load` has none of.
        from tgi_bench.plan.experiment_text import load_plan, parse_overrides
        from tgi_bench.sections.yaml_tree import MAX_BYTES

        overrides = parse_overrides(self.settings, self.launcher)
        text = read_text(self.file, "experiment", MAX_BYTES)
        experiment, plan = load_plan(text, str(self.file), overrides, self.only)
        require_files(plan)
        return experiment, plan


def require_files(plan: Plan) -> None:
    """Raise InputError where a file that a load or a task reads is missing; it is read later."""
    for trial in plan.load_trials:
        if trial.workload.file is not None:
            _require_file(trial.workload.file.path, "workload", "load.workload.file.path")
        if trial.tokenizer is not None:
            _require_file(_in_folder(trial.tokenizer), "tokenizer", "load.tokenizer")
    from tgi_bench.trials.direct import SummarizeTask

    for task in plan.task_trials:
        if isinstance(task.task, SummarizeTask) and task.task.file is not None:
            _require_file(task.task.file, "document", "summarize.file")


def _in_folder(tokenizer: str) -> str:
    """The file that is read of a folder."""
    return f"{tokenizer}/tokenizer.json" if Path(tokenizer).is_dir() else tokenizer


def _require_file(path: str, what: str, key: str) -> None:
    name = one_line(path)
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{name}: no such {what} file ({key})") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror} ({key})") from None
    except ValueError as error:
        raise InputError(f"{name}: cannot be read: {error} ({key})") from None
    if not stat.S_ISREG(mode):
        raise InputError(f"{name}: is no regular file ({key})")


def read_text(file: Path, what: str, most: int) -> str:
    """The text of a file or of a pipe, as `<(...)` of a shell is one.

    Raises InputError where it is missing, a directory, a device, a socket, unreadable, longer
    than `most` bytes, or binary.
    """
    name = one_line(str(file))
    try:
        data = _bytes(file, name, most)
        if len(data) > most:
            raise InputError(f"{name}: is longer than {most} bytes, the most that are read")
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"{name}: no such {what} file") from None
    except IsADirectoryError:
        article = "an" if what[0] in "aeiou" else "a"
        raise InputError(f"{name}: is a directory, not {article} {what} file") from None
    except UnicodeDecodeError:
        raise InputError(f"{name}: is not a text file in UTF-8") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{name}: cannot be read: {error}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _bytes(file: Path, name: str, most: int) -> bytes:
    """At most `most` bytes and one more; raises InputError for what is neither file nor pipe."""
    mode = file.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISFIFO(mode)):
        raise InputError(f"{name}: is a device or a socket, not a file")
    # Without O_NONBLOCK a pipe that nobody writes to would be waited for without end.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with open(descriptor, "rb") as stream:
        data = stream.read(most + 1)
    if not data and stat.S_ISFIFO(mode):
        raise InputError(f"{name}: is a pipe that nobody writes to")
    return data


def idle_skip_notes(experiment: AnyExperiment) -> tuple[str, ...]:
    """A line for each skip entry that leaves out nothing of what is listed."""
    from tgi_bench.plan.experiment import Experiment
    from tgi_bench.plan.matrix import idle_skips

    if not isinstance(experiment, Experiment):
        return ()
    return tuple(
        f"skip entry {number} matches no combination" for number in idle_skips(experiment.server)
    )


def assumed_accelerator(experiment: AnyExperiment) -> str | None:
    """What its estimates are for where it names none; None where it does, and where it has none."""
    from tgi_bench.plan.experiment import Experiment

    if not isinstance(experiment, Experiment):
        return None
    embedded = experiment.server.embedded
    return None if "accelerator" in embedded.model_fields_set else embedded.accelerator


def chooser(word: str | None) -> Choose:
    """Without a word the published one of that accelerator and stack alone.

    A word is a file, or a published calibration's stack. Raises InputError at once for a file.
    """
    if word is None:
        return find
    if is_path(word):
        calibrations = parse(read_text(Path(word), "calibration", _MOST_BYTES), word)
        return lambda accelerator, stack: of_file(calibrations, accelerator, stack)
    return lambda accelerator, _stack: calibration_named(word, accelerator)


def is_path(word: str) -> bool:
    """Whether a word is meant for a file: it exists, or looks like one."""
    return word.endswith((".yaml", ".yml", ".json")) or os.sep in word or os.path.exists(word)


def model_of(word: str) -> ConfigModel:
    """A row of the table, or the path of a config.json or of the folder that holds it.

    InputError with the nearest names, or what is wrong in the file.
    """
    if word in model_names():
        return ConfigModel(model_shape(word), "")
    path = Path(word)
    if os.path.isdir(word):
        path = path / _CONFIG
    elif not (word.endswith(".json") or os.path.isfile(word)):
        return ConfigModel(_known(word), "")
    text = read_text(path, "model", _MOST_BYTES)
    return parse_config(text, str(path), path.parent.name or path.name)


def _known(word: str) -> ModelShape:
    try:
        return model_shape(word)
    except InputError as error:
        raise InputError(f"{error}; or give the path of its config.json") from None
