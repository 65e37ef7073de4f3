"""The slips of TorchCAP's tables, each found by the figures themselves.

The tool prints Error = |measured - estimated| / estimated, the tables its signed form: so the
column that Error is relative to is the estimate, whatever its header says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tgi_bench.analysis.accelerator_of import published_row
from tgi_bench.estimate.tables import accelerator
from tgi_bench.observation import FigureKind, PublishedMetric
from tgi_bench.published.facts import known
from tgi_bench.published.reading import refused
from tgi_bench.report.torchcap_layout import ENERGY, THROUGHPUT

_HALF = 0.5000001
_HALF_CENT = 0.005
_HALF_PERCENT_DIGIT = 0.0000501
_ENERGY_HALF_DIGIT = 0.0005001


@dataclass(frozen=True, slots=True)
class Pair:
    """Both figures of one quantity in the file's column order, with the header's kinds.

    error: as printed, a fraction. reasons: why each figure is not what is printed, or in doubt.
    """

    metric: PublishedMetric
    kinds: tuple[FigureKind, FigureKind]
    values: tuple[float | None, float | None]
    error: float | None
    printed: tuple[str, str]
    line: int
    reasons: tuple[str, str] = ("", "")

    @property
    def known(self) -> bool:
        """Whether it has any figure."""
        return self.values != (None, None)

    def of(self, kind: FigureKind) -> float | None:
        """The figure of that kind."""
        return self.values[self.kinds.index(kind)]

    def figures(self) -> Iterator[tuple[FigureKind, float, str, str]]:
        """Kind, value, printed text and reason of each figure that is there, estimate first."""
        for kind in (FigureKind.ESTIMATED, FigureKind.MEASURED):
            place = self.kinds.index(kind)
            value = self.values[place]
            if value is not None:
                yield kind, value, self.printed[place], self.reasons[place]


@dataclass(frozen=True, slots=True)
class TorchcapRow:
    """One configuration; pairs are in the file's column order."""

    model: str
    accelerator: str
    devices: int
    line: int
    pairs: tuple[Pair, ...]

    @property
    def device(self) -> str:
        """ "NVIDIA RTX A5000 x 8"."""
        return self.accelerator + (f" x {self.devices}" if self.devices > 1 else "")

    @property
    def name(self) -> str:
        """ "facebook/opt-1.3b on NVIDIA RTX A5000 x 8"."""
        return f"{self.model} on {self.device}"

    @property
    def power_w(self) -> float | None:
        """The accelerator's rated power; None where it is not known."""
        row = published_row(self.accelerator)
        return None if row is None else accelerator(row).tdp_w


Slips = dict[str, list[str]]
"""The slips that a page has, by their word in facts.yaml, with the rows that have them where these
are named there: of a rated power by row, else by quantity and row."""

_TwinKey = tuple[str, int, float | None, float | None]


@dataclass(frozen=True, slots=True)
class _Page:
    """What of a whole page a figure is mended by. tokens: batch size x prompt tokens of each row.

    powers_w: rated, of every accelerator of the page. twins: accelerator and estimate of each
    memory pair whose error fits, the first of equal ones: memory does not depend on the
    accelerator, so the same model on as many devices has the same measurement, estimate and error.
    """

    tokens: int
    powers_w: tuple[float, ...]
    twins: Mapping[_TwinKey, tuple[str, float | None]]
    slips: Slips


def corrected(rows: Sequence[TorchcapRow], tokens: int, slips: Slips) -> list[TorchcapRow]:
    """Every row's figures after corrections; `slips` says which there were.

    tokens: batch size x prompt tokens. Raises TableError where the errors fit no reading of the
    columns.
    """
    pairs = [pair for row in rows for pair in row.pairs if pair.error is not None]
    estimate = _estimate_column(pairs)
    straight = [
        replace(row, pairs=tuple(_ordered(pair, estimate, slips) for pair in row.pairs))
        for row in rows
    ]
    powers = dict.fromkeys(row.power_w for row in rows)
    page = _Page(tokens, tuple(w for w in powers if w is not None), _twins(straight), slips)
    retyped = [
        replace(row, pairs=tuple(_retyped(pair, row, page) for pair in row.pairs))
        for row in straight
    ]
    return [
        replace(row, pairs=tuple(_converted(pair, row, page) for pair in row.pairs))
        for row in retyped
    ]


def _fits(pair: Pair, denominator: int) -> bool:
    """Whether the printed error can be (second - first) / that column, digits considered."""
    first, second = pair.values
    if first is None or second is None or pair.error is None:
        return False
    lows = (first - _digit(pair, 0), second - _digit(pair, 1))
    highs = (first + _digit(pair, 0), second + _digit(pair, 1))
    corners = [
        (b - a) / (a, b)[denominator]
        for a in (lows[0], highs[0])
        for b in (lows[1], highs[1])
        if (a, b)[denominator] > 0
    ]
    return min(corners) - _HALF_PERCENT_DIGIT <= pair.error <= max(corners) + _HALF_PERCENT_DIGIT


def _digit(pair: Pair, place: int) -> float:
    """Half of the last digit that the cell prints."""
    return float(_HALF * 10.0 ** -len(pair.printed[place].partition(".")[2]))


def _estimate_column(pairs: Sequence[Pair]) -> int:
    """0 or 1: the column that the runtimes' errors are relative to."""
    runtimes = [p for p in pairs if p.metric is PublishedMetric.FORWARD_MS]
    if not runtimes:
        raise refused(1, "no runtime has an Error, by which its estimate could be told")
    fits = [sum(_fits(pair, column) for pair in runtimes) for column in (0, 1)]
    if fits[0] == fits[1] or 2 * max(fits) < len(runtimes):
        raise refused(
            runtimes[0].line,
            f"the errors of Runtime are (second - first) / first in "
            f"{fits[0]} and / second in {fits[1]} of {len(runtimes)} rows; expected one of both",
        )
    return 0 if fits[0] > fits[1] else 1


def _ordered(pair: Pair, estimate: int, slips: Slips) -> Pair:
    """With the estimate's column called so."""
    if pair.kinds[estimate] is FigureKind.ESTIMATED:
        return pair
    slips.setdefault("swapped", [])
    swapped = known("torchcap").reason("swapped")
    return replace(pair, kinds=(pair.kinds[1], pair.kinds[0]), reasons=(swapped, swapped))


def _twins(rows: Sequence[TorchcapRow]) -> dict[_TwinKey, tuple[str, float | None]]:
    found: dict[_TwinKey, tuple[str, float | None]] = {}
    for row in rows:
        for pair in row.pairs:
            estimate = pair.kinds.index(FigureKind.ESTIMATED)
            if pair.metric is PublishedMetric.MEMORY_GIB and _fits(pair, estimate):
                twin = (row.accelerator, pair.of(FigureKind.ESTIMATED))
                found.setdefault(_twin_key(pair, row), twin)
    return found


def _twin_key(pair: Pair, row: TorchcapRow) -> _TwinKey:
    return (row.model, row.devices, pair.error, pair.of(FigureKind.MEASURED))


def _retyped(pair: Pair, row: TorchcapRow, page: _Page) -> Pair:
    """An estimate that its error does not fit, as its twin has it; else left in doubt."""
    estimate = pair.kinds.index(FigureKind.ESTIMATED)
    direct = {PublishedMetric.FORWARD_MS: "Runtime", PublishedMetric.MEMORY_GIB: "Memory"}
    if pair.error is None or pair.metric not in direct or _fits(pair, estimate):
        return pair
    what = f"{direct[pair.metric]} of {row.name}"
    is_memory = pair.metric is PublishedMetric.MEMORY_GIB
    twin = page.twins.get(_twin_key(pair, row)) if is_memory else None
    if twin is not None:
        page.slips.setdefault("mistyped", []).append(what)
        device, right = twin
        why = known("torchcap").reason("mistyped", accelerator=device, estimate=right)
        return _with(pair, estimate, (right, why))
    page.slips.setdefault("contradicted", []).append(what)
    why = known("torchcap").reason("contradicted", error=f"{pair.error:.2%}")
    return _with(pair, estimate, (pair.values[estimate], why))


def _with(pair: Pair, place: int, figure: tuple[float | None, str]) -> Pair:
    value, reason = figure
    values, reasons = list(pair.values), list(pair.reasons)
    values[place] = value
    reasons[place] = "; ".join(why for why in (reasons[place], reason) if why)
    return replace(pair, values=(values[0], values[1]), reasons=(reasons[0], reasons[1]))


def _converted(pair: Pair, row: TorchcapRow, page: _Page) -> Pair:
    """Throughput and energy, which the tables compute from the runtime in the same row."""
    if pair.metric not in (PublishedMetric.PROMPT_TOKENS_PER_S, PublishedMetric.ENERGY_J_PER_TOKEN):
        return pair
    runtime = next((p for p in row.pairs if p.metric is PublishedMetric.FORWARD_MS), None)
    for kind in FigureKind:
        place = pair.kinds.index(kind)
        printed = pair.values[place]
        runtime_ms = None if runtime is None else runtime.of(kind)
        if printed is None:
            continue
        if runtime_ms is None:
            raise refused(pair.line, f"a {pair.metric.value} without its runtime")
        if pair.metric is PublishedMetric.PROMPT_TOKENS_PER_S:
            figure = _rate(pair, printed, runtime_ms, page)
        else:
            figure = _energy(printed, runtime_ms, row, page)
        pair = _with(pair, place, figure)
    return pair


def _rate(pair: Pair, printed: float, runtime_ms: float, page: _Page) -> tuple[float, str]:
    """tokens / runtime; printed is the time of a token in us, or that rate already."""
    rate = page.tokens / (runtime_ms / 1e3)
    us_per_token = runtime_ms * 1e3 / page.tokens
    if abs(printed - us_per_token) <= _HALF_CENT * 1.001 + 1e-4 * us_per_token:
        page.slips.setdefault("time_per_token", [])
        return round(rate, THROUGHPUT.decimals), known("torchcap").reason("time_per_token")
    if abs(printed - rate) <= 1e-3 * rate:
        return printed, ""
    raise refused(
        pair.line,
        f"throughput {printed} is neither the {rate:.1f} tokens/s nor the "
        f"{us_per_token:.2f} us per token of its runtime",
    )


def _energy(printed: float, runtime_ms: float, row: TorchcapRow, page: _Page) -> tuple[float, str]:
    """Rated power x all devices x runtime / tokens; printed is one device's, in three decimals."""
    per_watt = runtime_ms / 1e3 / page.tokens
    said = known("torchcap").reason
    power_w = row.power_w
    if power_w is None:
        return printed, said("unknown_power")
    fitting = [w for w in (power_w, *page.powers_w) if _is_energy(printed, w * per_watt)]
    if not fitting:
        return printed, said("no_power")
    reason = said("rated_power", watts=f"{power_w:g}")
    if fitting[0] != power_w:
        page.slips.setdefault("wrong_power", []).append(row.name)
        reason = said("other_power", rated_power=reason, other_watts=f"{fitting[0]:g}")
    if row.devices > 1:
        page.slips.setdefault("one_device_energy", [])
        reason = said("of_all_devices", energy=reason, devices=row.devices)
    return round(power_w * per_watt * row.devices, ENERGY.decimals), reason


def _is_energy(printed: float, joules: float) -> bool:
    return abs(printed - joules) <= _ENERGY_HALF_DIGIT
