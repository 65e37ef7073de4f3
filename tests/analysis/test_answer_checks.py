"""What is believed of answers: their first tokens, their counts, who they come from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.load_samples import CLOSED, MS, STAGE, S, lane
from tgi_bench.analysis.rules import Check, CheckStatus, Rule, apply
from tgi_bench.kinds.load.answer_rules import COUNTS, FIRST_TOLD, MODEL, OUTPUTS, PROMPTS
from tgi_bench.kinds.load.figures import LoadRow, LoadSummary, load_rows
from tgi_bench.kinds.load.rules import load_checks
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.load_observation import RequestObservation, StageConditions, TokenSource
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.trials.load import LoadTrial

OK = TrialEnd(Outcome.OK, "")
ASKED = StageConditions(
    engine="vllm", asked_model="tiny", own_names=("tiny", "/data/tiny"), answered_by=(("tiny", 9),)
)


def seen(**changes: object) -> list[RequestObservation]:
    """200 requests of 4 tokens; the changes are to the first two and a half percent of them."""
    every = lane(8, 400 * MS, 10 * S)
    return [
        replace(one, **changes) if i < 5 else one  # type: ignore[arg-type]
        for i, one in enumerate(every)
    ]


def checked(
    rule: Rule[LoadRow],
    requests: list[RequestObservation],
    conditions: StageConditions | None = None,
    asked: LoadTrial = CLOSED,
) -> Check:
    stage = replace(STAGE, conditions=conditions or ASKED)
    load = LoadSummary(asked, OK, (summarise_stage(asked, stage, requests),), None)
    assert rule.name in [check.name for check in load_checks((load,))]
    return apply(rule, load_rows((load,)))


def test_first_tokens_that_cannot_be_told() -> None:
    found = checked(FIRST_TOLD, seen(first_told=False))
    assert found.status is CheckStatus.FAILED
    assert "5 of 200 begin with what may be a token or none" in found.finding
    assert "server.engine" in found.remedy
    assert "token ids" in found.remedy
    two = [replace(one, first_told=i > 1) for i, one in enumerate(seen())]
    assert checked(FIRST_TOLD, two).status is CheckStatus.PASSED
    whole = replace(CLOSED, stream=False)
    assert checked(FIRST_TOLD, seen(), asked=whole).status is CheckStatus.NOT_CHECKED


@pytest.mark.parametrize(
    ("said", "text", "bad"),
    [
        (128, 128, False),
        (128, 127, False),  # the end of the sequence has no text
        (128, 120, False),
        (128, 119, True),
        (128, 98, True),  # 30 % more than there is
        (128, 130, False),
        (128, 146, False),  # random weights
        (128, 148, True),
        (4, 3, False),
        (4, 1, True),
        (4, 0, True),  # no text at all
        (1, 0, False),  # the end of the sequence alone
    ],
)
def test_a_tokenizers_count_beside_the_servers(said: int, text: int, bad: bool) -> None:
    every = [replace(one, output_tokens=said, text_tokens=text) for one in seen()]
    found = checked(COUNTS, every)
    assert (found.status is CheckStatus.FAILED) is bad
    if bad:
        assert "200 of 200 have another number in their text" in found.finding
        assert "hidden reasoning" in found.remedy
        assert "--tokenizer" not in found.remedy


def test_one_in_a_hundred_may_differ() -> None:
    every = [replace(one, text_tokens=4 if i > 1 else 1) for i, one in enumerate(seen())]
    assert checked(COUNTS, every).status is CheckStatus.PASSED


def test_a_tokenizer_is_not_laid_beside_itself() -> None:
    every = [replace(o, text_tokens=1, counted_by=TokenSource.TOKENIZER) for o in seen()]
    assert checked(COUNTS, every).status is CheckStatus.NOT_CHECKED


@pytest.mark.parametrize(("engine", "said"), [("tgi", True), ("vllm", True), ("llamacpp", False)])
def test_a_sum_beside_the_events_is_said(engine: str, said: bool) -> None:
    conditions = replace(ASKED, engine=engine)
    found = checked(COUNTS, seen(tokens_told=False), conditions)
    assert found.status is (CheckStatus.PASSED if said else CheckStatus.NOT_CHECKED)
    assert ("5 of 200 have more or fewer tokens than events" in found.finding) is said
    assert "load.tokenizer" in found.finding


@pytest.mark.parametrize(
    ("answered_by", "two_models", "finding", "remedy"),
    [
        ((("tiny", 200),), 0, "", ""),
        ((("/data/tiny", 200),), 0, "", ""),  # its own path
        (
            (("other", 200),),
            0,
            "200 of 200 answers name other, where tiny was asked for",
            "name the model in `model`",
        ),
        (
            (("tiny", 190), ("other", 10)),
            0,
            "10 of 200 answers name other",
            "name the model in `model`",
        ),
        (
            (("tiny", 190), ("/data/tiny", 10)),
            0,
            "answers name tiny (190), /data/tiny (10), 0 of them two",
            "one server's own address",
        ),
        (
            (("tiny", 200), ("/data/tiny", 200)),
            200,
            "answers name tiny (200), /data/tiny (200), 200 of them two",
            "one server's own address",
        ),
    ],
)
def test_who_answered(
    answered_by: tuple[tuple[str, int], ...], two_models: int, finding: str, remedy: str
) -> None:
    conditions = replace(ASKED, answered_by=answered_by, two_models=two_models)
    found = checked(MODEL, seen(), conditions)
    assert found.status is (CheckStatus.FAILED if finding else CheckStatus.PASSED)
    assert finding in found.finding
    assert remedy in found.remedy


def test_answers_that_name_no_model() -> None:
    assert checked(MODEL, seen(), replace(ASKED, answered_by=())).status is CheckStatus.NOT_CHECKED
    replaced = checked(MODEL, seen(), replace(ASKED, in_place_of="nonsense"))
    assert replaced.status is CheckStatus.PASSED
    assert replaced.finding == (
        "9 answers name tiny, the only model that the server lists, sent in the place of nonsense"
    )


@pytest.mark.parametrize(
    ("told", "words_by", "tokenizer", "remedy"),
    [
        (50, "", None, "it cuts longer prompts"),
        (50, "server", None, "it cuts longer prompts"),
        (74, "tokenizer", "tokenizer.json", "it cuts longer prompts"),
        (76, "tokenizer", "tokenizer.json", "the served model's own tokenizer"),
        (109, "server", None, "load.api: completions"),
        (131, "", None, "name the model's tokenizer in load.tokenizer"),
    ],
)
def test_prompts_of_another_length(
    told: int, words_by: str, tokenizer: str | None, remedy: str
) -> None:
    """A tokenizer is named only where it mends it."""
    every = seen(prompt_tokens=told)
    conditions = replace(ASKED, words_by=words_by)
    found = checked(PROMPTS, every, conditions, replace(CLOSED, tokenizer=tokenizer))
    assert found.status is CheckStatus.FAILED
    assert f"5 of 200 have another, together {told}% of the tokens asked" in found.finding
    assert remedy in found.remedy
    assert ("model's tokenizer in load.tokenizer" in found.remedy) is (told == 131)


@pytest.mark.parametrize(
    ("counted_by", "remedy"),
    [(TokenSource.EVENTS, "load.tokenizer"), (TokenSource.SERVER, "max_total_tokens")],
)
def test_outputs_of_another_length(counted_by: TokenSource, remedy: str) -> None:
    every = [
        replace(one, output_tokens=9, output_tokens_asked=8, counted_by=counted_by)
        for one in seen()
    ]
    found = checked(OUTPUTS, every)
    assert found.status is CheckStatus.FAILED
    assert remedy in found.remedy
    assert ("load.tokenizer" in found.remedy) is (counted_by is TokenSource.EVENTS)
