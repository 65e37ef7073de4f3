"""A TaskTrial as JSON text, and back to an equal one."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tgi_bench.plan.task_trial import (
    DirectModel,
    Dtype,
    FindBatch,
    GenerateTask,
    SummarizeTask,
    TaskDevice,
    TaskTrial,
)


def encode(trial: TaskTrial) -> str:
    """One line of JSON; the same trial gives the same text."""
    kind = "generate" if isinstance(trial.task, GenerateTask) else "summarize"
    said = {**asdict(trial), "task": {"kind": kind, **asdict(trial.task)}}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> TaskTrial:
    """The trial that `encode` was given. Raises ValueError or TypeError where it is none."""
    try:
        said = json.loads(text)
        model = said["model"]
        task = dict(said["task"])
        return TaskTrial(
            **{
                **said,
                "model": DirectModel(
                    **{
                        **model,
                        "dtype": Dtype(model["dtype"]),
                        "device": TaskDevice(model["device"]),
                    }
                ),
                "task": _task(task.pop("kind"), task),
            }
        )
    except (KeyError, AttributeError) as error:
        raise ValueError(f"a task trial is not as it was written: {error!r}") from error


def _task(kind: str, said: dict[str, Any]) -> GenerateTask | SummarizeTask:
    if kind == "summarize":
        return SummarizeTask(**said)
    if kind != "generate":
        raise ValueError(f"a task of kind {kind!r}")
    find = said["find"]
    return GenerateTask(**{**said, "find": None if find is None else FindBatch(**find)})
