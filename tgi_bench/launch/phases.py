"""What a server that starts is doing, as its log says: the phase, and words for the screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tgi_bench.launch.log import said
from tgi_bench.plan.plan import Timeouts


class StartPhase(StrEnum):
    """A part of a start that has a timeout of its own; the text says what it is doing."""

    PULL = "pulling its image"
    DOWNLOAD = "downloading"
    LOAD = "loading"
    PROBE = "generating its first token"

    @property
    def key(self) -> str:
        """The experiment's key of its timeout."""
        return f"server.timeouts.{self.name.lower()}_s"

    def timeout_s(self, timeouts: Timeouts) -> float:
        """How long it may take, in seconds."""
        match self:
            case StartPhase.PULL:
                return timeouts.pull_s
            case StartPhase.DOWNLOAD:
                return timeouts.download_s
            case StartPhase.LOAD:
                return timeouts.load_s
            case StartPhase.PROBE:
                return timeouts.probe_s


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a log says is going on."""

    phase: StartPhase
    text: str


_LINES: tuple[tuple[re.Pattern[str], StartPhase, str], ...] = tuple(
    (re.compile(pattern), phase, words)
    for pattern, phase, words in (
        # text-generation-launcher, its shards and its router
        (r"Starting (?:check and )?download process", StartPhase.DOWNLOAD, "downloading"),
        (
            r"Download: \[(\d+)/(\d+)\] -- ETA: ([\d:. a-z]+)",
            StartPhase.DOWNLOAD,
            "downloading {0} of {1}, {2} left",
        ),
        (r"Download: \[(\d+)/(\d+)\]", StartPhase.DOWNLOAD, "downloading {0} of {1}"),
        (r"Download file: (\S+)", StartPhase.DOWNLOAD, "downloading {0}"),
        (r"Convert: \[(\d+)/(\d+)\]", StartPhase.DOWNLOAD, "converting {0} of {1}"),
        (r"Files are already present", StartPhase.LOAD, "weights are there already"),
        (r"Successfully downloaded weights", StartPhase.LOAD, "loading"),
        (r"Sharding model on (\d+) processes", StartPhase.LOAD, "sharding on {0} processes"),
        (r"Starting shard\b", StartPhase.LOAD, "starting shards"),
        (r"Waiting for shard (?:\d+ )?to be ready", StartPhase.LOAD, "waiting for shards"),
        (r"Shard (?:\d+ )?ready in", StartPhase.LOAD, "shards are ready"),
        (r"Starting Webserver", StartPhase.LOAD, "starting its webserver"),
        (r"Warming up model", StartPhase.LOAD, "warming up"),
        (r"(?:^|: )Connected$", StartPhase.LOAD, "listening"),
        # what the engines print through the hub's library
        (r"Fetching \d+ files:.*?(\d+)/(\d+)", StartPhase.DOWNLOAD, "downloading {0} of {1}"),
        (
            r"(?:safetensors|pt|bin) checkpoint shards:.*?(\d+)/(\d+)",
            StartPhase.LOAD,
            "loading {0} of {1}",
        ),
        # vLLM, SGLang, llama.cpp
        (r"Starting to load model|Load weight begin", StartPhase.LOAD, "loading"),
        (r"Captur(?:e|ing) (?:cuda|CUDA) graph", StartPhase.LOAD, "capturing CUDA graphs"),
        (r"trying to download model from", StartPhase.DOWNLOAD, "downloading"),
        (r"load_model: loading model|main: loading model", StartPhase.LOAD, "loading"),
        (r"warming up the model", StartPhase.LOAD, "warming up"),
    )
)


def last_step(lines: Sequence[str]) -> Step | None:
    """What the last line that says anything of it says; None where none does."""
    return next((step for line in reversed(said(lines)) if (step := _step(line))), None)


def steps(lines: Sequence[str]) -> tuple[Step, ...]:
    """All that the lines say of it, in their order."""
    return tuple(step for line in said(lines) if (step := _step(line)))


def _step(line: str) -> Step | None:
    for pattern, phase, words in _LINES:
        match = pattern.search(line)
        if match is not None:
            return Step(phase, words.format(*(group.strip() for group in match.groups())))
    return None
