"""`--calibration FILE|NAME`, `--model NAME|config.json`: what a word of the command line means."""

from __future__ import annotations

import os
from pathlib import Path

from tgi_bench.cli.experiment_file import read_text
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import Choose, calibration_named, find, of_file, parse
from tgi_bench.estimate.config_json import ConfigModel
from tgi_bench.estimate.config_json import parse as parse_config
from tgi_bench.estimate.tables import ModelShape, model_names, model_shape

_MOST_BYTES = 1 << 20
_CONFIG = "config.json"


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
