"""A model's configuration: of the hub, of a folder, of a file, or of the table of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.estimate.tables import model_names
from tgi_bench.torch_engine.architecture import named_config
from tgi_bench.torch_engine.spec import ModelSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def model_config(spec: ModelSpec) -> PretrainedConfig:
    """The model's configuration; raises InputError where there is none."""
    if spec.weights.random and spec.model in model_names():
        return named_config(spec.model)
    from transformers import AutoConfig

    path = Path(spec.model)
    try:
        if path.is_file():
            return AutoConfig.from_pretrained(path)
        return AutoConfig.from_pretrained(spec.model)
    except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"no configuration of {spec.model} can be read: {reason}") from error
