"""A figure declared once: its key and its title, its value, and the cells that are made of it.

To add a figure is to add one `Column` to a tuple of its kind: `OF_A_TRIAL` of
`kinds/batch/columns`, `RATES` of `kinds/load/columns`, `BESIDE` of `kinds/direct/columns`. It
stands wherever it has a name: in JSON and CSV by its key, on pages by its title, on the screen by
its title there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Generic, TypeVar, cast

from tgi_bench.analysis.run import DeploymentRecord, Run
from tgi_bench.analysis.samples import Figure
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.report import units
from tgi_bench.report.json_text import Json
from tgi_bench.report.table import Table, csv_text
from tgi_bench.report.units import Unit, Value
from tgi_bench.report.words import known_num_shard

R = TypeVar("R", contravariant=True)
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One figure of a row, or what a row is of, wherever it has a name.

    key: in JSON and CSV, without its unit's suffix. value: in the unit of the key; None where it is
    undefined. title: on pages. screen: title on the screen. csv: False where only JSON has it.
    interval: the value is a Figure: {value, low, high} in JSON, three cells in CSV.
    """

    key: str
    value: Callable[[R], Value]
    title: str = ""
    unit: Unit = units.PLAIN
    screen: str = ""
    csv: bool = True
    interval: bool = False

    def cell(self, row: R) -> str:
        """On a page."""
        return self.unit.text(self.value(row))

    def short(self, row: R) -> str:
        """On the screen."""
        return self.unit.short(self.value(row))

    def plain(self, row: R) -> str:
        """In CSV, without loss."""
        match self.value(row):
            case None:
                return self.unit.none
            case bool() as yes:
                return str(yes).lower()
            case str() as text:
                return text
            case value:
                return repr(value)

    def in_csv(self) -> tuple[Column[R], ...]:
        """Itself; of a Figure one for its value and one for each end of its interval."""
        if not self.interval:
            return (self,)

        def figure(row: R) -> Figure | None:
            value = self.value(row)
            return value if isinstance(value, Figure) else None

        return tuple(replace(c, unit=self.unit) for c in of(figure, _OF_A_FIGURE, self.key))

    @property
    def name(self) -> str:
        """In JSON and CSV: "p50_ns"."""
        return f"{self.key}{self.unit.suffix}"


def of(
    part: Callable[[R], P | None], columns: Sequence[Column[P]], before: str = ""
) -> tuple[Column[R], ...]:
    """The columns of a part of a row: undefined where the row has no such part.

    before: begins their keys.
    """

    def lifted(column: Column[P]) -> Column[R]:
        def value(row: R) -> Value:
            found = part(row)
            return None if found is None else column.value(found)

        return replace(cast("Column[R]", column), key=f"{before}{column.key}", value=value)

    return tuple(map(lifted, columns))


_OF_A_FIGURE: tuple[Column[Figure], ...] = (
    Column("", lambda figure: figure.value),
    Column("_low", lambda figure: figure.low),
    Column("_high", lambda figure: figure.high),
)


def fields(columns: Sequence[Column[R]], row: R) -> dict[str, Json]:
    """The keys and values of a JSON object."""
    return {c.name: _json(c.value(row)) for c in columns if c.key}


def _json(value: Value) -> Json:
    return asdict(value) if isinstance(value, Figure) else value


@dataclass(frozen=True, slots=True)
class Grid(Generic[R]):
    """Columns over rows, as a table. word: stands in each figure's cell of a row without figures;
    None for a row that has some."""

    columns: Sequence[Column[R]]
    rows: Sequence[R]
    word: Callable[[R], str | None] = lambda _: None

    def page(self) -> Table:
        """The columns that have a title, for Markdown and reStructuredText."""
        return self._table([(c.title, c) for c in self.columns if c.title], Column.cell)

    def screen(self) -> Table:
        """The columns that have a title there."""
        return self._table([(c.screen, c) for c in self.columns if c.screen], Column.short)

    def csv(self) -> str:
        """The columns that have a key; an undefined figure is an empty cell."""
        of_csv = [one for c in self.columns if c.key and c.csv for one in c.in_csv()]
        return csv_text(self._table([(c.name, c) for c in of_csv], Column.plain))

    def _table(
        self, headed: Sequence[tuple[str, Column[R]]], cell: Callable[[Column[R], R], str]
    ) -> Table:
        rows = tuple(
            tuple(cell(c, row) if word is None or not c.unit.figure else word for _, c in headed)
            for row, word in zip(self.rows, map(self.word, self.rows), strict=True)
        )
        right = frozenset(i for i, (_, c) in enumerate(headed) if c.unit.right)
        return Table(tuple(header for header, _ in headed), rows, right)


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A row of a trial of a run, or of a part of one, that ended like this.

    deployment_id: None in direct mode, which has no server. end: None where it is not finished.
    """

    run: Run
    trial_id: str
    deployment_id: str | None
    end: TrialEnd | None

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.end is not None and self.end.outcome is Outcome.OK

    @property
    def record(self) -> DeploymentRecord:
        """Its server; KeyError where it has none."""
        return self.run.record(self.deployment_id or "")

    @property
    def verdict(self) -> str:
        """The trial's own word."""
        return self.run.verdict.word_of(self.trial_id, self.deployment_id)


PLACE: tuple[Column[TrialRow], ...] = (
    Column("run_id", lambda row: row.run.run_id, unit=units.NAME),
    Column("origin", lambda row: row.run.origin.value, unit=units.NAME),
    Column("trial_id", lambda row: row.trial_id, unit=units.NAME),
)
SERVER: tuple[Column[TrialRow], ...] = (
    Column("num_shard", lambda row: known_num_shard(row.record), unit=units.ASKED),
    Column("quantize", lambda row: row.record.deployment.quantize, unit=units.NAME),
)
DEPLOYMENT: Column[TrialRow] = Column("", lambda r: r.deployment_id, "", units.NAME, "Deployment")
OUTCOME: Column[TrialRow] = Column(
    "outcome",
    lambda r: r.end.outcome.value if r.end else "not_finished",
    "",
    units.OUTCOME,
    "Outcome",
)
VERDICT: Column[TrialRow] = Column(
    "verdict", lambda row: row.verdict, "Verdict", units.NAME, "Verdict"
)
