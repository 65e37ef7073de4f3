"""What is said to mend a failed trial, by how it failed and whose server it was."""

from __future__ import annotations

import pytest

from tgi_bench.kinds.failure_remedies import Failed, remedies
from tgi_bench.observation import Outcome, TrialEnd

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
    remedy = remedies([Failed(TrialEnd(outcome, reason), load, attached)])
    assert said in remedy
    assert unsaid not in remedy


def test_failures_that_one_thing_mends_say_it_once() -> None:
    one = Failed(TrialEnd(Outcome.SHARD_DIED, "signal 9"), load=False, attached=False)
    other = Failed(TrialEnd(Outcome.TIMEOUT, "no answer"), load=False, attached=False)
    assert remedies([one, one]) == remedies([one])
    assert remedies([one, other]) == f"{remedies([one])}; {remedies([other])}"
    unstarted = Failed(TrialEnd(Outcome.LAUNCH_FAILED, "exit code 1"), load=False, attached=False)
    load = Failed(TrialEnd(Outcome.FAILED, "no answer"), load=True, attached=False)
    together = remedies([one, unstarted, load])
    assert together.count("the server's log in launch/") == 1
    assert "server.timeouts" in together
    assert "load.request_timeout" in together


def test_a_load_without_a_measured_request_is_mended_by_its_duration() -> None:
    end = TrialEnd(Outcome.FAILED, "no request was sent and ended within the window")
    remedy = remedies([Failed(end, load=True, attached=True, unmeasured=True)])
    assert "raise load.duration" in remedy
    assert "load.request_timeout" not in remedy
