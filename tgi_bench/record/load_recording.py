"""One attempt at a load as it is written, and what the trial's end needs to know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tgi_bench.load_observation import LoadPart, RequestObservation, RequestOutcome
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.record.store import RunStore

_TORN = frozenset(
    {
        RequestOutcome.CONNECTION_REFUSED,
        RequestOutcome.CONNECTION_RESET,
        RequestOutcome.INCOMPLETE,
        RequestOutcome.HTTP_ERROR,
        RequestOutcome.SERVER_ERROR,
        RequestOutcome.TIMEOUT,
    }
)
"""How requests end whose server dies."""


class LoadRecording:
    """attempt: number of it, as `begin` gave it. redacted: a text without secrets.

    torn: some of the requests written last ended as those of a dead server; silent: all did.
    """

    def __init__(self, store: RunStore, attempt: int, redacted: Callable[[str], str]) -> None:
        self._store, self.attempt = store, attempt
        self._redacted = redacted
        self._measured_ok = self._sent = False
        self._reasons: dict[str, int] = {}
        self.torn = self.silent = False

    def record(self, requests: Sequence[RequestObservation]) -> None:
        """Write some more."""
        clean = [replace(r, reason=self._redacted(r.reason)) if r.reason else r for r in requests]
        self._store.add(self.attempt, clean)
        for request in clean:
            if request.reason:
                self._reasons[request.reason] = self._reasons.get(request.reason, 0) + 1
            self._sent = self._sent or request.sent_ns is not None
            if request.outcome is RequestOutcome.OK and request.part is LoadPart.MEASURED:
                self._measured_ok = True
        outcomes = {request.outcome for request in clean}
        self.torn, self.silent = bool(outcomes & _TORN), bool(outcomes) and outcomes <= _TORN

    def end(self) -> TrialEnd:
        """OK where one measured request was answered."""
        if self._measured_ok:
            return TrialEnd(Outcome.OK, "")
        if self._reasons:
            most = max(self._reasons, key=lambda r: self._reasons[r])
            return TrialEnd(Outcome.FAILED, f"no request was answered: {most}")
        none = "no request was sent"
        if self._sent:  # in warm-up, and ended in it or after the window
            none = f"{none} and ended within the window, which is too short for one"
        return TrialEnd(Outcome.FAILED, none)
