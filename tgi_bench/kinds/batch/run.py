"""Batches on the ranks of a server, over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tgi_bench.errors import LaunchError, StepError
from tgi_bench.kinds.running import Running, Served, Watcher, next_run
from tgi_bench.launch.cause import explained, usable
from tgi_bench.launch.launcher import RunningServer
from tgi_bench.observation import Outcome, Phase, ServerFacts, StepObservation, TrialEnd
from tgi_bench.plan.plan import BatchTrial
from tgi_bench.plan.prompts import prompts_of
from tgi_bench.record.runs import require_room
from tgi_bench.report.durations import duration

if TYPE_CHECKING:
    # grpc takes a while to import, which a load need not wait for.
    from tgi_bench.drive.ranks import Ranks
    from tgi_bench.drive.shard import Room

_LOG_TAIL = 50
_HEALTH_TIMEOUT_S = 5.0
_HARMLESS = (Outcome.OK, Outcome.REFUSED)


@contextmanager
def session(host: Served, running: Running) -> Iterator[Callable[[BatchTrial], bool]]:
    """What runs a trial and gives it its end; False where the server can run no further one.

    Raises LaunchError where its ranks cannot be reached.
    """
    server = host.server
    socket = server.endpoint.master_socket
    if socket is None:
        refused = TrialEnd(Outcome.REFUSED, server.endpoint.no_socket_reason)

        def refuse(trial: BatchTrial) -> bool:
            running.store.end_unstarted(trial.trial_id, refused)
            running.watcher.ended(trial.trial_id, refused)
            return True

        yield refuse
        return
    from tgi_bench.drive.ranks import Ranks

    try:
        ranks = Ranks.connect(socket)
    except StepError as error:
        raise LaunchError(str(error), server.log_tail(_LOG_TAIL)) from error
    with ranks:
        yield _Batches(server, ranks, running).run


@dataclass(frozen=True, slots=True)
class _Batches:
    server: RunningServer
    ranks: Ranks
    running: Running

    def run(self, trial: BatchTrial) -> bool:
        """As `session` says."""
        from tgi_bench.drive.shard import drive

        running, server = self.running, self.server
        prompts = prompts_of(trial, running.start)
        running.watcher.begins(trial.trial_id, next_run(-1, trial.warmups, trial.runs))
        attempt = running.store.begin(trial.trial_id)

        def record(observations: tuple[StepObservation, ...]) -> None:
            clean = tuple(
                replace(o, reason=running.redacted(o.reason)) if o.reason else o
                for o in observations
            )
            running.store.add(attempt, clean)
            tell(running.watcher, trial, observations)

        since = server.log_length()
        with running.telemetry.during(running.store, attempt):
            end = drive(self.ranks, trial, prompts, _room(server.endpoint.facts), record)
        going_on = end.outcome in _HARMLESS or usable(
            server, since, lambda: self.ranks.answer(_HEALTH_TIMEOUT_S)
        )
        if not going_on:
            require_room(running.run_dir)
            end = explained(end, server, since)
        end = TrialEnd(end.outcome, running.redacted(end.reason))
        running.store.end(attempt, end)
        running.watcher.ended(trial.trial_id, end)
        return going_on


def tell(watcher: Watcher, trial: BatchTrial, observations: Sequence[StepObservation]) -> None:
    """What a watcher is told of a run: its latencies, where there are any."""
    if seen := latencies(observations):
        following = next_run(observations[0].run_index, trial.warmups, trial.runs)
        watcher.going(trial.trial_id, f"{following}   last: {seen}", seen)


def latencies(observations: Sequence[StepObservation]) -> str:
    """ "prefill 139.8 ms, decode 28.8 ms": of one run, the decode steps' mean; "" for none."""
    ok = [o for o in observations if o.outcome is Outcome.OK]
    prefill = [o.latency_ns for o in ok if o.phase is Phase.PREFILL]
    decode = [o.latency_ns for o in ok if o.phase is Phase.DECODE]
    parts = []
    if prefill:
        parts.append(f"prefill {duration(prefill[0] / 1e9)}")
    if decode:
        parts.append(f"decode {duration(sum(decode) / len(decode) / 1e9)}")
    return ", ".join(parts)


def _room(facts: ServerFacts) -> Room | None:
    if facts.capacity_tokens is None:
        return None
    from tgi_bench.drive.shard import Room

    return Room(facts.capacity_tokens, facts.capacity_source)
