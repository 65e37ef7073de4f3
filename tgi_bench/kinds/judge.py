"""Whether to believe a run: checks, each with what was found, and what mends trials that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.analysis.rules import Check, Failing, Verdict, failed, listed, passed
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.kinds.argument_rules import check_arguments, check_version
from tgi_bench.kinds.devices import telemetry_checks
from tgi_bench.kinds.identity_rules import identity_checks
from tgi_bench.kinds.kind import Kinds, Summary, View, views
from tgi_bench.kinds.roofline_rule import check_roofline
from tgi_bench.observation import Outcome, TrialEnd

_NAME_THE_KEY = (
    "name the environment variable that holds the API key in server.env, or write its header in "
    "server.headers"
)
_HOST_MEMORY = (
    "give the server more of the host's memory: raise the limit of its container "
    "(server.docker.options.mem_limit) or cgroup, or end what else takes it"
)
GO_ON = "go on with the same command and --resume"
_NO_KEY = ("API key", "HTTP 401", "HTTP 403")


def attached(run: Run) -> bool:
    """Whether every server ran already, and its log with it."""
    return not any(d.launcher.started_by_us for d in run.plan.deployments)


@dataclass(frozen=True, slots=True)
class Failed:
    """One trial's end that is no result. attached: its server ran already, and its log with it.

    unmeasured: of a load that sent requests, none of them in the part that is measured.
    """

    end: TrialEnd
    load: bool
    attached: bool
    unmeasured: bool = False


def clauses(failed: Failed) -> tuple[str, ...]:
    """What mends it, a clause for each thing to do."""
    if failed.end.outcome is Outcome.LAUNCH_FAILED:
        return _not_started(failed)
    if failed.end.outcome is Outcome.HOST_OUT_OF_MEMORY:
        return (_HOST_MEMORY,)
    log = "the server's own log" if failed.attached else "the server's log in launch/"
    read = f"read the reason and {log}"
    if failed.load:
        if any(word in failed.end.reason for word in _NO_KEY):
            return (_NAME_THE_KEY,)
        if failed.unmeasured:
            return (
                "raise load.duration above what a request takes; where requests failed, read the "
                f"reason and {log}",
            )
        return read, "a timeout is mended by load.request_timeout"
    if failed.end.outcome is Outcome.TIMEOUT:
        return (f"raise batches.step_timeout_s, or see in {log} what the server waited for",)
    return (read,)


def _not_started(failed: Failed) -> tuple[str, ...]:
    if not failed.attached:
        return (
            "read the reason and the server's log in launch/",
            "one that did not start in time is mended by server.timeouts",
        )
    if any(word in failed.end.reason for word in _NO_KEY):
        return (_NAME_THE_KEY,)
    if "certificate" in failed.end.reason:
        return (
            "let SSL_CERT_FILE name the certificate's issuer, or take any certificate by "
            "server.verify_tls: false",
        )
    return ("see that a server answers at that address (server.url) from this machine",)


FINE = (Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.SKIPPED, Outcome.REFUSED)
"""Ends that are results: running out of memory is one, and a refusal for want of room."""
_UNREACHED = "shards"
"""A word of every reason why batches cannot be sent at all, and of no refusal for room."""

Views = Sequence[View[Summary]]
Ends = Sequence[tuple[View[Summary], Summary, TrialEnd]]


def judge(run: Run, kinds: Kinds) -> Verdict:
    """Every check that this origin allows; one that cannot be made says so and passes.

    Those of the client come first. Of kinds that the run has none of no check is made. Those of
    devices are left out of a simulated run, which computes on none.
    """
    of_run = views(run, kinds)
    checks: list[Check] = []
    planned = [trial for kind in kinds for trial in kind.planned(run.plan)]
    if planned or not any(run.of(view.summary) for view in of_run):
        ends = _ends(run, of_run)
        checks += [_ended(run, kinds, ends), _failed(run, of_run, ends)]
    checks += [check for view in of_run for check in view.checks(run)]
    if run.origin is Origin.IMPORTED:
        return Verdict.of(checks)
    servers = run.deployments
    served = not planned or any(trial.deployment_id is not None for trial in planned)
    if served:
        checks.append(check_roofline(run))
    if run.origin is Origin.MEASURED:
        checks += telemetry_checks(run.telemetry)
    if served:
        checks += [*identity_checks(servers), check_arguments(servers), check_version(servers)]
    return Verdict.of(checks)


def _ends(run: Run, of_run: Views) -> Ends:
    """Each trial that is finished with its end, kind by kind."""
    return [
        (view, summary, summary.end)
        for view in of_run
        for summary in run.of(view.summary)
        if summary.end is not None
    ]


def _ended(run: Run, kinds: Kinds, ends: Ends) -> Check:
    ended = {summary.trial_id for _, summary, _ in ends}
    planned = [trial for kind in kinds for trial in kind.planned(run.plan)]
    missing = tuple(
        Failing(trial.trial_id, trial.trial_id, trial.deployment_id, "not finished")
        for trial in planned
        if trial.trial_id not in ended
    )
    name = "every trial ended"
    total = len(planned)
    if missing or not run.finished:
        what = listed([row.name for row in missing]) if missing else "the sweep itself"
        finding = f"{total - len(missing)} of {total} trials ended; not finished: {what}"
        return failed(name, finding, GO_ON, missing)
    return passed(name, f"{total} of {total}")


def _failed(run: Run, of_run: Views, ends: Ends) -> Check:
    name = "no trial failed"
    bad = [(view, summary, end) for view, summary, end in ends if end.outcome not in FINE]
    if bad:
        failing = tuple(
            Failing(s.trial_id, s.trial_id, s.deployment_id, f"{_word(end)}: {end.reason}")
            for _, s, end in bad
        )
        finding = listed([f"{row.name} ({row.text})" for row in failing])
        remedies = dict.fromkeys(clause for view, s, _ in bad for clause in view.mends(run, s))
        return failed(name, finding, "; ".join(remedies), failing)
    if not any(view.has_figures(s) for view in of_run for s in run.of(view.summary)):
        return failed(name, *_no_figures(run, of_run, [end for _, _, end in ends]))
    counts: dict[str, int] = {}
    for _, _, end in ends:
        counts[_word(end)] = counts.get(_word(end), 0) + 1
    return passed(name, ", ".join(f"{count} {word}" for word, count in counts.items()))


def _word(end: TrialEnd) -> str:
    return end.outcome.value.replace("_", " ")


def _no_figures(run: Run, of_run: Views, ends: Sequence[TrialEnd]) -> tuple[str, str]:
    """Finding and remedy of a run without any figure in which nothing failed."""
    if not ends:
        started = any(view.started(s) for view in of_run for s in run.of(view.summary))
        return "no trial was finished" if started else "no trial was run", GO_ON
    if all(end.outcome is Outcome.REFUSED and _UNREACHED in end.reason for end in ends):
        reasons = list(dict.fromkeys(end.reason for end in ends))
        remedy = (
            "name the socket of shard_rank 0 in server.sockets, or choose an engine and an image "
            "with gRPC shards: batches are sent to those"
        )
        return f"no trial has figures: {listed(reasons)}", remedy
    return "no trial has figures", of_run[0].figureless
