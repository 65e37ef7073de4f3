"""What mends trials that failed, by how they failed and whose server it was."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.analysis.run import Run
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
