"""What a kind of trial is to the rooms that go over all of them.

To add a kind is to write its file or folder here, with its `KIND`, and to name that in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tgi_bench.analysis.rules import Check
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.analysis.telemetry import MeasuredWindows
from tgi_bench.devices.observation import Telemetry
from tgi_bench.kinds.running import Running
from tgi_bench.observation import TrialEnd
from tgi_bench.plan.plan import Plan
from tgi_bench.record.store import RunStore
from tgi_bench.report.json_text import Json
from tgi_bench.report.table import Table


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial of a plan. deployment_id: None where it needs no server. model_id: where it needs
    none, of the model that it runs on.

    trial: as its kind runs it. shape, batch_size: once a batch of a shape ran out of memory, larger
    ones are not run; None of one that is run in any case.
    """

    trial_id: str
    deployment_id: str | None = None
    model_id: str | None = None
    trial: object = None
    shape: object = None
    batch_size: int | None = None


class Summary(Protocol):
    """The figures of one trial."""

    @property
    def trial_id(self) -> str:
        """Of its trial."""

    @property
    def deployment_id(self) -> str | None:
        """Of its server; None where it has none."""

    @property
    def end(self) -> TrialEnd | None:
        """None where it is not finished."""


S = TypeVar("S", bound=Summary)


@dataclass(frozen=True, slots=True)
class Stored:
    """A run.db that is read. plan: what a server said in it is on one line and printable."""

    store: RunStore
    plan: Plan
    origin: Origin
    ends: dict[str, TrialEnd]


@dataclass(frozen=True, slots=True)
class NoFigures:
    """A row of the trials without figures."""

    name: str
    outcome: str
    reason: str


Section = Callable[[Run], str]
"""A part of a page; empty where there is nothing to say."""


def _nothing(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True)
class View(Generic[S]):
    """How the figures of a kind come from run.db, what is asked of them, and where they stand.

    summary: the type of its figures, by which a Run has them. read: them, and what stands beside
    them. measured: the times and tokens that the energy of one is of.
    has_figures: whether one has any; figureless: what mends a run in which none has. started:
    whether anything of it was run. mends: what mends one that failed, in clauses.
    checks: its part of the verdict.
    terms: every word of its tables with its formula.
    overview, closing: sections of report.md, before and after the verdict. on_server: sections of
    num_shard-N.md, for servers on so many GPUs; parameters: rows there of what its trials asked.
    unfinished: rows of trials without figures; partial: of those with a part of them.
    data: keys of the JSON document. missed: what was not met, in it and in words; goals: in one
    line. tables: CSV by file name; "" is not written.
    screen: the table that a sweep ends with, whose first `keys` columns name a row; answers: lines
    below it. means: what the latencies there are means of; "" where they are none.
    """

    summary: type[S]
    read: Callable[[Stored], Iterable[object]]
    checks: Callable[[Run], Iterable[Check]]
    data: Callable[[Run], dict[str, Json]]
    tables: dict[str, Section]
    screen: Callable[[Run], Table]
    keys: int
    overview: tuple[Section, ...]
    terms: Callable[[Run], Iterable[tuple[str, str]]]
    has_figures: Callable[[S], bool]
    started: Callable[[S], bool]
    figureless: str = ""
    mends: Callable[[Run, S], Iterable[str]] = _nothing
    measured: Callable[[RunStore, S, Telemetry], Sequence[MeasuredWindows]] = _nothing
    closing: tuple[Section, ...] = ()
    on_server: Callable[[Run, str, Sequence[S]], Iterable[str]] = _nothing
    parameters: Callable[[Sequence[S]], Iterable[tuple[str, str]]] = _nothing
    unfinished: Callable[[Run], Iterable[NoFigures]] = _nothing
    partial: Callable[[Run], Iterable[NoFigures]] = _nothing
    missed: Callable[[Run], Iterable[tuple[str, Json]]] = _nothing
    goals: Section = lambda _: ""
    answers: Callable[[Run], Iterable[str]] = _nothing
    means: str = ""


Session = Callable[[Any, Running], AbstractContextManager[Callable[[Any], bool]]]
"""Of a host, which is a Served deployment or a DirectModel: what runs a trial and gives it its
end; False where the host can run no further one."""


@dataclass(frozen=True, slots=True)
class TrialKind:
    """One kind of trial. planned: its trials of a plan.

    view: made when it is asked for, and what it needs imported only then: a load does not wait for
    what makes its report. session: the same, of how trials are run; None of what is only imported.
    on_ranks: whether its trials are sent to the ranks of a server.
    """

    name: str
    planned: Callable[[Plan], Sequence[PlannedTrial]]
    view: Callable[[], View[Any]]
    session: Callable[[], Session] | None = None
    on_ranks: bool = False


Kinds = Sequence[TrialKind]


def views(run: Run, kinds: Kinds) -> tuple[View[Any], ...]:
    """Those that the run has trials or figures of; of a run without any the first one."""
    found = [(kind, kind.view()) for kind in kinds]
    own = [view for kind, view in found if kind.planned(run.plan) or run.of(view.summary)]
    return tuple(own or [view for _, view in found[:1]])
