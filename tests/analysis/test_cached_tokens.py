"""How much of the prompts may come from a cache, as recorded servers say what did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.load_samples import CLOSED, MS, STAGE, Timing, request
from tests.dialects.recorded_http import Meant, meant
from tgi_bench.kinds.load.figures import LoadRow, LoadSummary, StageSummary
from tgi_bench.kinds.load.steady_rules import CACHED, cached_texts
from tgi_bench.kinds.load.summary import cached_tokens, summarise_stage
from tgi_bench.load_observation import CacheCounters, RequestObservation, StageConditions
from tgi_bench.trials.load import FileKind, Fixed, SharedPrefix, Turns, Workload, WorkloadFile

PLAIN = CLOSED.workload
KNOWN = StageConditions(words_by="server", added_tokens=18)


def of(*answers: Meant) -> list[RequestObservation]:
    """Requests of which the server said so much."""
    return [
        request(
            number,
            Timing(number * MS, MS),
            prompt_tokens_asked=one.prompt,
            prompt_tokens=one.prompt,
            cached_tokens=one.cached,
        )
        for number, one in enumerate(answers)
    ]


def recorded(server: str, *names: str) -> list[Meant]:
    return [one for name in names for one in meant() if (one.server, one.name) == (server, name)]


def row(
    requests: list[RequestObservation],
    workload: Workload = PLAIN,
    conditions: StageConditions = KNOWN,
) -> LoadRow:
    trial = replace(CLOSED, workload=workload)
    found = summarise_stage(trial, replace(STAGE, conditions=conditions), requests)
    return LoadRow("load", LoadSummary(trial, None, (found,), None), found)


LLAMACPP = "llamacpp-xllamacpp-2026.10.11549"
VLLM = "vllm-0.32.0"
LITELLM = "litellm-1.106.2"


@pytest.mark.parametrize("server", [LLAMACPP, LITELLM])
def test_a_repeated_prompt_and_a_half_of_one(server: str) -> None:
    """Its BOS, or a template's first words, are in every cache: 1 of 418 fails nothing."""
    first = row(of(*recorded(server, "cache-repeat-1-001", "cache-completions-repeat-1-001")))
    seen = CACHED.look(first)
    assert seen is not None
    assert not seen.bad
    assert seen.text.startswith("2 of 719 prompt tokens were cached (0.3%), as answers say")
    again = row(of(*recorded(server, "cache-repeat-2-001", "cache-repeat-3-001")))
    seen = CACHED.look(again)
    assert seen is not None
    assert seen.bad
    assert "834 of 836 prompt tokens were cached (99.8%)" in seen.text
    half = row(of(*recorded(server, "cache-half-shared-001")))
    assert (found := CACHED.look(half)) is not None
    assert found.bad
    shared = replace(PLAIN, shared_prefix=SharedPrefix(200, 1))
    half = row(of(*recorded(server, "cache-half-shared-001")), shared)
    assert (found := CACHED.look(half)) is not None
    assert not found.bad


def test_vllm_with_details_and_without() -> None:
    said = row(of(*recorded(VLLM, "prompt-tokens-details-repeat-1-001")))
    assert (seen := CACHED.look(said)) is not None
    assert (seen.bad, seen.text) == (
        False,
        "0 of 418 prompt tokens were cached (0.0%), as answers say",
    )
    said = row(of(*recorded(VLLM, "prompt-tokens-details-repeat-2-001")))
    assert (seen := CACHED.look(said)) is not None
    assert seen.bad
    silent = recorded(VLLM, "cache-repeat-1-001", "cache-repeat-2-001", "cache-repeat-3-001")
    assert CACHED.look(row(of(*silent))) is None
    counted = CacheCounters(2692, 1536, "/metrics: vllm:prompt_tokens_cached_total")
    told = row(of(*silent), conditions=replace(KNOWN, cache=counted))
    assert (seen := CACHED.look(told)) is not None
    assert seen.bad
    assert cached_texts(told.stage) == (seen.text,)
    assert "1,536 of 2,692 prompt tokens were cached (57.1%), by /metrics: vllm:" in seen.text


def share(found: StageSummary) -> float:
    assert found.cached is not None
    return found.cached.shared_share


def test_later_turns_may_have_what_was_said_before() -> None:
    talk = replace(PLAIN, prompt=Fixed(100), turns=Turns(Fixed(3), 0))
    turns = [
        replace(
            request(turn, Timing(turn * MS, MS), turn=turn, conversation=7),
            prompt_tokens_asked=None,
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=20,
        )
        for turn, prompt, cached in ((0, 100, 0), (1, 220, 120), (2, 340, 250))
    ]
    found = cached_tokens(talk, replace(KNOWN, added_tokens=0), turns)
    assert (found.told, found.prompt_tokens, found.cached_tokens) == (3, 660, 370)
    assert found.beyond_tokens == 9  # 250 where 240 had been said, and one may be a BOS
    assert found.shared_share == pytest.approx((1 + 121 + 241) / 660)


def test_a_trace_with_blocks_shares_what_it_says() -> None:
    blocks = replace(PLAIN, prompt=None, file=WorkloadFile("t", FileKind.MOONCAKE, False))
    assert share(row(of(*recorded(LLAMACPP, "cache-repeat-2-001")), blocks).stage) == 1.0


def test_where_nobody_counted_a_template_a_tenth_may_be_its_own() -> None:
    answers = of(*recorded(LLAMACPP, "cache-repeat-1-001"))
    assert share(row(answers, conditions=StageConditions()).stage) == pytest.approx(0.1)
    assert share(row(answers).stage) == pytest.approx(19 / 418)
