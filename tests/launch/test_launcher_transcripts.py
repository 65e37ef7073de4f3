"""The logs that real launchers wrote, read: phases, cause, arguments, capacity, readiness."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tgi_bench.launch.cause import Cause, decisive_cause, fatal_cause, port_taken
from tgi_bench.launch.log import (
    arguments_in_effect,
    capacity_tokens,
    connected,
    is_launcher,
    is_padded,
    messages,
)
from tgi_bench.launch.readiness import StartPhase, steps

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+Z) +([A-Z]+) (.*?): (.*)", re.DOTALL)

LOADED = ("downloading", "weights are there already", "loading", "starting shards")
UP = ("shards are ready", "starting its webserver", "warming up", "listening")
NO_PAD = (
    "its warm-up failed: Asking to pad but the tokenizer does not have a padding token. Please "
    "select a token to use as `pad_token` `(tokenizer.pad_token = tokenizer.eos_token e.g.)` or "
    "add a new pad token via `tokenizer.add_special_tokens({'pad_token': '[PAD]'})`."
)
KILLED = Cause("shard 0 was killed (signal 9)", killed=True)


@dataclass(frozen=True, slots=True)
class Told:
    """What a log says. steps: words of the start's steps, one after the other without repeats.

    arguments: how many the launcher printed, and some of them. decisive: whether a line says that
    it is about to end.
    """

    steps: tuple[str, ...] = ()
    cause: Cause | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    count: int = 0
    connected: bool = False
    decisive: bool = False


def _refused(text: str) -> Cause:
    return Cause(f"the launcher refused its arguments: {text}")


LOGS = {
    "tgi-3.3.7/launcher-fail-bad-value": Told(
        cause=_refused("invalid value 'int3' for '--quantize <QUANTIZE>'")
    ),
    "tgi-3.3.7/launcher-fail-unknown-argument": Told(
        cause=_refused("unexpected argument '--max-input-tokenz' found")
    ),
    "tgi-3.3.7/launcher-fail-input-not-below-total": Told(
        cause=_refused("`max_input_tokens`(1024) must be < `max_total_tokens`(1024)"),
        arguments=(("max_input_tokens", "Some(1024)"), ("cuda_graphs", "None")),
        count=54,
    ),
    "tgi-3.3.7/launcher-fail-max-input-both-names": Told(
        cause=_refused(
            "Both `max_input_tokens` (512) and `max_input_length` (512) are set. Please define "
            "only `max_input_tokens` as `max_input_length is deprecated for naming consistency."
        ),
        arguments=(("max_input_length", "Some(512)"),),
        count=54,
    ),
    "tgi-3.3.7/launcher-fail-model-empty-folder": Told(
        steps=("downloading",),
        cause=Cause("no weights were found in /data/empty-folder"),
        arguments=(("model_id", '"/data/empty-folder"'),),
        count=54,
        decisive=True,
    ),
    "tgi-3.3.7/launcher-fail-model-not-found": Told(
        steps=("downloading",),
        cause=Cause(
            "the model was not found: /data/no-such-model is neither a folder nor an id of the hub"
        ),
        arguments=(("model_id", '"/data/no-such-model"'), ("cuda_graphs", "Some([0])")),
        count=54,
        decisive=True,
    ),
    "tgi-3.3.7/launcher-fail-port-in-use": Told(
        steps=(*LOADED, "waiting for shards", *UP),
        cause=Cause("its port or socket is in use already: 0.0.0.0:8311"),
        arguments=(("port", "8311"),),
        count=54,
        connected=True,
        decisive=True,
    ),
    "tgi-3.3.7/launcher-json-output": Told(
        steps=(*LOADED, "waiting for shards", *UP),
        arguments=(("json_output", "true"), ("api_key", 'Some("tgi-secret-key")')),
        count=54,
        connected=True,
    ),
    "tgi-3.3.7/launcher-num_shard-1-ok": Told(
        steps=(*LOADED, *UP), arguments=(("num_shard", "Some(1)"),), count=54, connected=True
    ),
    "tgi-3.3.7/launcher-num_shard-2-ok": Told(
        steps=("sharding on 2 processes", *LOADED, "waiting for shards", *UP),
        arguments=(("num_shard", "Some(2)"),),
        count=54,
        connected=True,
    ),
    "tgi-3.3.7/launcher-shard-sigkill-num_shard-2": Told(
        steps=("sharding on 2 processes", *LOADED, "waiting for shards", *UP),
        cause=KILLED,
        arguments=(("num_shard", "Some(2)"), ("master_port", "29541")),
        count=54,
        connected=True,
        decisive=True,
    ),
    "tgi-3.3.7/launcher-warmup-too-large-prefill": Told(
        steps=(*LOADED, *UP),
        arguments=(("max_batch_prefill_tokens", "Some(100000)"),),
        count=54,
        connected=True,
    ),
    "tgi-2.0.4/launcher-fail-warmup-no-pad-token-num_shard-2": Told(
        steps=("sharding on 2 processes", *LOADED, *UP[:-1]),
        cause=Cause(NO_PAD),
        arguments=(("num_shard", "Some(2)"), ("max_input_tokens", "Some(512)")),
        count=45,
        decisive=True,
    ),
    "tgi-2.0.4/launcher-num_shard-2-ok": Told(
        steps=("sharding on 2 processes", *LOADED, *UP),
        arguments=(("num_shard", "Some(2)"),),
        count=45,
        connected=True,
    ),
    "tgi-2.0.4/launcher-shard-sigkill-num_shard-1": Told(
        steps=(*LOADED, *UP),
        cause=KILLED,
        arguments=(("num_shard", "Some(1)"),),
        count=45,
        connected=True,
        decisive=True,
    ),
}


def read(name: str) -> list[str]:
    folder, _, file = name.partition("/")
    path = TRANSCRIPTS / folder / "launcher" / f"{file}.log"
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def _plain(lines: list[str]) -> list[str]:
    return [line for text in messages(lines) for line in text.split("\n")]


def _json(lines: list[str]) -> list[str]:
    """As --json-output: an object an event, with the lines that belong to it in its message."""
    events: list[list[str]] = []
    for line in _plain(lines):
        if not events or _STAMPED.match(line) or line.startswith(("Error: ", "error: ")):
            events.append([])
        events[-1].append(line)
    return [_object("\n".join(event)) for event in events]


def _object(event: str) -> str:
    if (found := _STAMPED.fullmatch(event)) is None:
        return event
    stamp, level, target, message = found.groups()
    fields = {"timestamp": stamp, "level": level, "target": target}
    return json.dumps({**fields, "fields": {"message": message}})


def test_every_log_is_in_the_table() -> None:
    found = {f"{p.parent.parent.name}/{p.stem}" for p in TRANSCRIPTS.glob("*/launcher/*.log")}
    assert found == set(LOGS)


@pytest.mark.parametrize("form", [list, _plain, _json], ids=["as it came", "plain", "json"])
@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_a_real_launcher(name: str, form: Callable[[list[str]], list[str]]) -> None:
    told, lines = LOGS[name], form(read(name))
    words = [step.text for step in steps(lines)]
    assert tuple(dict.fromkeys(words)) == told.steps
    assert sorted(words, key=told.steps.index) == words
    assert fatal_cause(lines) == told.cause
    assert decisive_cause(lines) == (told.cause if told.decisive else None)
    assert port_taken(lines) == name.endswith("port-in-use")
    arguments = arguments_in_effect(lines)
    assert len(arguments or ()) == told.count
    assert set(told.arguments) <= set(arguments or ())
    assert is_launcher(lines) == bool(told.count)
    assert connected(lines) == told.connected
    # Of a padded model the budget, 16000 or what was asked, is no room of the shards.
    assert capacity_tokens(lines) is None
    assert is_padded(lines) == told.connected


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_is_read_as_it_is_written(name: str) -> None:
    """A start that is watched never says "weights are there already" of a model that is not."""
    lines, seen = read(name), []
    for line in lines:
        seen += [step for step in steps([line]) if step not in seen]
    assert tuple(step.text for step in seen) == LOGS[name].steps
    phases = {step.phase for step in seen}
    assert phases <= {StartPhase.DOWNLOAD, StartPhase.LOAD}


def test_words_that_a_survived_error_left_are_no_cause_of_a_kill() -> None:
    lines = ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", *read(
        "tgi-2.0.4/launcher-shard-sigkill-num_shard-1"
    )]  # fmt: skip
    assert fatal_cause(lines) == KILLED
