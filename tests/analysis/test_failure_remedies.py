"""What is said to mend a failed trial, by how it failed and whose server it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.samples import deployment, plan, summary, trial
from tests.report.made import judge
from tgi_bench.analysis.run import Origin
from tgi_bench.kinds.judge import Failed, clauses
from tgi_bench.observation import Outcome, TrialEnd

SERVER = deployment(1)
ONE, OTHER = trial(SERVER, 1), trial(SERVER, 2)
LAUNCH = Outcome.LAUNCH_FAILED


@pytest.mark.parametrize(
    ("outcome", "reason", "load", "attached", "said", "unsaid"),
    [
        (LAUNCH, "Connection refused", True, True, "server.url", "launch/"),
        (LAUNCH, "its certificate does not verify", True, True, "SSL_CERT_FILE", "launch/"),
        (LAUNCH, "out of memory", True, False, "launch/", "server.url"),
        (Outcome.FAILED, "x wants an API key: HTTP 401", True, True, "server.env", "launch/"),
        (Outcome.FAILED, "every request failed", True, True, "own log", "launch/"),
        (Outcome.FAILED, "every request failed", True, False, "launch/", "step_timeout_s"),
        (Outcome.TIMEOUT, "no answer", False, False, "batches.step_timeout_s", "load."),
        (Outcome.SHARD_DIED, "signal 9", False, False, "launch/", "step_timeout_s"),
    ],
)
def test_a_remedy_fits(
    outcome: Outcome, reason: str, load: bool, attached: bool, said: str, unsaid: str
) -> None:
    remedy = "; ".join(clauses(Failed(TrialEnd(outcome, reason), load, attached)))
    assert said in remedy
    assert unsaid not in remedy


def test_failures_that_one_thing_mends_say_it_once() -> None:
    """A clause is a thing to do: of equal ones a verdict keeps one."""
    died, late = TrialEnd(Outcome.SHARD_DIED, "signal 9"), TrialEnd(Outcome.TIMEOUT, "no answer")
    found = judge(
        plan((SERVER,), (ONE, OTHER)),
        Origin.SIMULATED,
        (),
        [replace(summary(t), end=end) for t, end in ((ONE, died), (OTHER, died))],
    )
    of = Failed(died, load=False, attached=False)
    (bad,) = [check for check in found.checks if check.name == "no trial failed"]
    assert bad.remedy == "; ".join(clauses(of))
    assert clauses(of) != clauses(replace(of, end=late))


def test_a_load_without_a_measured_request_is_mended_by_its_duration() -> None:
    end = TrialEnd(Outcome.FAILED, "no request was sent and ended within the window")
    remedy = "; ".join(clauses(Failed(end, load=True, attached=True, unmeasured=True)))
    assert "raise load.duration" in remedy
    assert "load.request_timeout" not in remedy
