"""The check that texts were sent once, but for what the experiment says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.load_samples import CLOSED, MS, STAGE, S, lane
from tgi_bench.analysis.rules import Seen
from tgi_bench.kinds.load.figures import LoadRow, LoadSummary
from tgi_bench.kinds.load.steady_rules import TEXTS
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.load_observation import PromptTexts, StageConditions
from tgi_bench.trials.load import FileKind, Fixed, SharedPrefix, Turns, Workload, WorkloadFile

PLAIN = CLOSED.workload
NEW = PromptTexts(sent=100, characters=100_000)
FILE = replace(PLAIN, prompt=None, file=WorkloadFile("f", FileKind.JSONL, False))
CHATS = replace(FILE, file=WorkloadFile("f", FileKind.SHAREGPT, False))
BLOCKS = replace(FILE, file=WorkloadFile("f", FileKind.MOONCAKE, False))


def repeated(count: int, characters: int) -> PromptTexts:
    return replace(NEW, repeated=count, repeated_characters=characters)


def alike(characters: int) -> PromptTexts:
    return replace(NEW, shared_heads=9, shared_characters=characters)


def look(texts: PromptTexts | None, workload: Workload = PLAIN) -> Seen | None:
    trial = replace(CLOSED, workload=workload)
    stage = replace(STAGE, conditions=StageConditions(prompts=texts))
    found = summarise_stage(trial, stage, lane(8, 400 * MS, 10 * S))
    return TEXTS.look(LoadRow("load", LoadSummary(trial, None, (found,), None), found))


def bad(texts: PromptTexts, workload: Workload = PLAIN) -> bool:
    seen = look(texts, workload)
    assert seen is not None
    return seen.bad


@pytest.mark.parametrize(
    ("passing", "failing"),
    [
        (repeated(1, 1000), repeated(1, 1001)),
        (repeated(5, 10), repeated(6, 10)),  # short ones by their number
        (alike(1000), alike(1001)),
    ],
)
def test_where_it_fails(passing: PromptTexts, failing: PromptTexts) -> None:
    assert not bad(NEW)
    assert not bad(passing, FILE)
    assert bad(failing, FILE)
    assert bad(failing)  # of made texts too: they are new, or something is wrong
    assert not bad(failing, replace(FILE, repeats=True))
    assert not bad(failing, BLOCKS)


@pytest.mark.parametrize(
    "workload",
    [
        CHATS,
        replace(PLAIN, shared_prefix=SharedPrefix(50, 2)),
        replace(PLAIN, turns=Turns(Fixed(3), 0)),
    ],
)
def test_heads_that_are_shared_on_purpose_are_no_repeated_texts(workload: Workload) -> None:
    assert not bad(alike(90_000), workload)
    assert bad(repeated(50, 50_000), workload)


def test_what_it_says() -> None:
    seen = look(replace(repeated(40, 40_000), shared_heads=3, shared_characters=12_500), FILE)
    assert seen is not None
    assert seen.text == (
        "40 of 100 texts had been sent before; 3 more begin as one before (12.5% of all characters)"
    )
    seen = look(alike(90_000), CHATS)
    assert seen is not None
    assert seen.text.endswith(", as the workload says")
    assert "load.workload.repeats: true" in TEXTS.remedy


def test_nobody_counted() -> None:
    assert look(None) is None
    assert look(PromptTexts()) is None
