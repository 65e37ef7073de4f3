from __future__ import annotations

from dataclasses import replace

from tests.analysis.load_samples import CLOSED, MS, STAGE, S, lane
from tgi_bench.kinds.load.figures import LoadSummary, SearchAnswer
from tgi_bench.kinds.load.missed import Goal, all_met, goals
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.trials.load import Find, LoadTrial, Slo, Sought

OK = TrialEnd(Outcome.OK, "")
ASKED = replace(CLOSED, slos=(Slo("ttft_p50", 150.0 * MS), Slo("itl_p99", 99.0 * MS)))
SEARCH = replace(ASKED, find=Find(Sought.MAX_CONCURRENCY, 8, 1, 64, 0.05, 2))
STAGES = (summarise_stage(ASKED, STAGE, lane(8, 400 * MS, 10 * S)),)


def of(trial: LoadTrial, found: SearchAnswer | None = None) -> LoadSummary:
    return LoadSummary(trial, OK, STAGES, found)


def test_each_slo_is_a_goal() -> None:
    """TTFT and ITL are 100 ms."""
    load = of(ASKED)
    met, missed = goals((load,))
    assert met == Goal(load, STAGES[0], ASKED.slos[0], 100.0 * MS, True)
    assert missed == Goal(load, STAGES[0], ASKED.slos[1], 100.0 * MS, False)
    assert all_met((met, missed)) is False
    assert all_met((met,)) is True
    assert all_met(()) is None


def test_a_load_without_a_stage_is_not_known_to_have_missed() -> None:
    none = goals((replace(of(ASKED), stages=()),))
    assert [goal.met for goal in none] == [None, None]
    assert all_met(none) is None


def test_of_a_search_its_answer_is_the_goal_and_not_its_steps() -> None:
    answer = SearchAnswer(8.0, 8.0, 9.0, True)
    assert [(g.slo, g.found, g.met) for g in goals((of(SEARCH, answer),))] == [(None, 8.0, True)]
    nothing = goals((of(SEARCH, SearchAnswer(None, None, 1.0, True)),))
    assert [(g.slo, g.found, g.met) for g in nothing] == [(None, None, False)]
    cut_off = goals((of(SEARCH, SearchAnswer(None, None, None, False)),))
    assert [g.met for g in cut_off] == [None]
