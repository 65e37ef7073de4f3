"""What devices used while steps were measured: energy, power, memory, and what disturbed them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from tgi_bench.devices.observation import (
    Device,
    DeviceKind,
    DeviceSample,
    Gauges,
    Telemetry,
    Throttle,
)

LEAST_INTERVALS = 5
"""Sample intervals that measured time must span: a sample is off by at most one at each end."""

TELEMETRY_DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "energy",
        "of all devices of one kind over the measured steps, from their energy counters read just "
        "before and after and interpolated in between; where a device has none, its sampled power "
        "integrated by the trapezoidal rule, which is then said",
    ),
    ("J/token", "energy / new tokens of the measured steps; the prompts' energy is in it"),
    ("average power", "energy / measured time, of all devices of one kind together"),
    (
        "peak memory",
        "the most that any sample of the trial saw in use on one device, warm-ups included, by "
        "whomever: memory that a server keeps from an earlier trial is in it",
    ),
    (
        "throttled",
        "a sample with the clocks held down by heat, by the hardware, or by a power limit below "
        "the device's default",
    ),
)

Windows = Sequence[tuple[int, int]]
"""begin_ns, end_ns of what was measured, ascending."""

_NS_PER_S = 1e9
_MJ_PER_J = 1e3

_WORDS = (
    (Throttle.HW_THERMAL, "heat (hardware)"),
    (Throttle.SW_THERMAL, "heat (driver)"),
    (Throttle.POWER_BRAKE, "the power brake"),
    (Throttle.HW_SLOWDOWN, "a hardware slowdown"),
)
_LOWERED = "a power limit below the default"


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """All devices of one kind. None: undefined.

    names: of each. integrated: the energy of at least one is of sampled power, not of a counter.
    peak_memory_bytes: of the one that used most.
    """

    kind: DeviceKind
    names: tuple[str, ...]
    energy_j: float | None
    integrated: bool
    j_per_token: float | None
    average_power_w: float | None
    peak_memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class TelemetrySummary:
    """What was sampled of one trial, or of a part of it that has figures of its own.

    part: which; empty where it is the whole.
    absent: why there are no samples; empty where there are.
    no_energy: why samples give no energy; empty where they do.
    measured: samples within the measured time that tell what holds the clocks down.
    throttled: reason and number of those samples. at_limit: those held down by a power limit that
    is the device's default.
    others: the most processes of somebody else that one of them saw; None: nobody could tell.
    sampler_share: of one core. began, ended: the server's gauges around the trial.
    """

    trial_id: str
    part: str
    absent: str
    no_energy: str
    devices: tuple[DeviceFigures, ...]
    measured: int
    throttled: tuple[tuple[str, int], ...]
    at_limit: int
    others: int | None
    sampler_share: float | None
    period_ns: int | None
    began: Gauges
    ended: Gauges

    @property
    def name(self) -> str:
        """As checks show it."""
        return f"{self.trial_id}, {self.part}" if self.part else self.trial_id

    @property
    def deployment_id(self) -> None:
        """None: a trial says it."""
        return None


@dataclass(frozen=True, slots=True)
class MeasuredWindows:
    """What was measured. tokens: new ones in the windows; None: not known. part: of the trial."""

    trial_id: str
    windows: Windows
    tokens: float | None
    part: str = ""


def summarise_telemetry(seen: Telemetry, of: MeasuredWindows) -> TelemetrySummary:
    """The figures of one trial or stage from everything sampled around it."""
    spacing_ns = _spacing_ns(seen)
    within = _within(seen.samples, of.windows, spacing_ns)
    no_energy = _why_no_energy(seen, of.windows, spacing_ns)
    throttled, at_limit = _throttled(seen.devices, within)
    others = [sample.others for sample in within if sample.others is not None]
    return TelemetrySummary(
        trial_id=of.trial_id,
        part=of.part,
        absent=seen.absent,
        no_energy=no_energy,
        devices=_by_kind(seen, of, energy=not no_energy),
        measured=sum(sample.throttle is not None for sample in within),
        throttled=throttled,
        at_limit=at_limit,
        others=max(others, default=None),
        sampler_share=_share(seen.cpu_ns, seen.wall_ns),
        period_ns=seen.period_ns,
        began=seen.began,
        ended=seen.ended,
    )


def _share(cpu_ns: int | None, wall_ns: int | None) -> float | None:
    return None if cpu_ns is None or not wall_ns else cpu_ns / wall_ns


def _by_kind(seen: Telemetry, of: MeasuredWindows, energy: bool) -> tuple[DeviceFigures, ...]:
    figures = []
    for kind in DeviceKind:
        devices = [device for device in seen.devices if device.kind is kind]
        if devices:
            figures.append(_figures(kind, devices, seen, of if energy else None))
    return tuple(figures)


def _figures(
    kind: DeviceKind, devices: Sequence[Device], seen: Telemetry, of: MeasuredWindows | None
) -> DeviceFigures:
    """of: None: no energy is to be had."""
    curves = [_curve([s for s in seen.samples if s.device == d.index]) for d in devices]
    energy_j = None
    if of is not None:
        parts = [None if curve is None else curve.energy_j(of.windows) for curve in curves]
        known = [part for part in parts if part is not None]
        energy_j = sum(known) if len(known) == len(parts) else None
    measured_s = 0.0 if of is None else sum(e - b for b, e in of.windows) / _NS_PER_S
    tokens = None if of is None else of.tokens
    indices = {device.index for device in devices}
    used = [s.memory_bytes for s in seen.samples if s.device in indices and s.memory_bytes]
    return DeviceFigures(
        kind=kind,
        names=tuple(device.name for device in devices),
        energy_j=energy_j,
        integrated=energy_j is not None and any(c is not None and c.integrated for c in curves),
        j_per_token=energy_j / tokens if energy_j is not None and tokens else None,
        average_power_w=energy_j / measured_s if energy_j is not None and measured_s else None,
        peak_memory_bytes=max(used, default=None),
    )


@dataclass(frozen=True, slots=True)
class _Curve:
    """Energy against time: points, and the power at each where it was integrated."""

    at_ns: tuple[int, ...]
    energy_mj: tuple[float, ...]
    power_mw: tuple[int, ...]

    @property
    def integrated(self) -> bool:
        return bool(self.power_mw)

    def energy_j(self, windows: Windows) -> float | None:
        """None where samples do not reach over a window."""
        if any(begin < self.at_ns[0] or end > self.at_ns[-1] for begin, end in windows):
            return None
        return sum(self._until(end) - self._until(begin) for begin, end in windows) / _MJ_PER_J

    def _until(self, at_ns: int) -> float:
        """Linear between two counts; below a trapezoid where power was integrated."""
        left = min(bisect_right(self.at_ns, at_ns), len(self.at_ns) - 1) - 1
        span_ns, past_ns = self.at_ns[left + 1] - self.at_ns[left], at_ns - self.at_ns[left]
        if not self.power_mw:
            grown = self.energy_mj[left + 1] - self.energy_mj[left]
            return self.energy_mj[left] + grown * past_ns / span_ns
        low, high = self.power_mw[left], self.power_mw[left + 1]
        then_mw = low + (high - low) * past_ns / span_ns
        return self.energy_mj[left] + (low + then_mw) / 2 * past_ns / _NS_PER_S


def _curve(samples: Sequence[DeviceSample]) -> _Curve | None:
    """Of one device; None with fewer than two samples, or where it tells neither.

    A counter that went back (the driver was loaded again) is no counter.
    """
    counts = [(s.at_ns, s.energy_mj) for s in samples if s.energy_mj is not None]
    if len(counts) >= 2 and all(a[1] <= b[1] for a, b in pairwise(counts)):
        return _Curve(tuple(t for t, _ in counts), tuple(float(e) for _, e in counts), ())
    powers = [(s.at_ns, s.power_mw) for s in samples if s.power_mw is not None]
    if len(powers) < 2:
        return None
    energy = [0.0]
    for (begin_ns, low), (end_ns, high) in pairwise(powers):
        energy.append(energy[-1] + (low + high) / 2 * (end_ns - begin_ns) / _NS_PER_S)
    return _Curve(tuple(t for t, _ in powers), tuple(energy), tuple(p for _, p in powers))


def _spacing_ns(seen: Telemetry) -> float:
    """The median time from one sample of a device to its next; 0 where there is none."""
    gaps = [
        later - earlier
        for device in seen.devices
        for earlier, later in pairwise(s.at_ns for s in seen.samples if s.device == device.index)
    ]
    return median(gaps) if gaps else 0.0


def _why_no_energy(seen: Telemetry, windows: Windows, spacing_ns: float) -> str:
    if seen.absent:
        return seen.absent
    if not windows:
        return "nothing was measured"
    if sum(end - begin for begin, end in windows) < LEAST_INTERVALS * spacing_ns:
        return (
            f"measured for less than {LEAST_INTERVALS} sample intervals of "
            f"{spacing_ns / 1e6:.0f} ms"
        )
    return ""


def _within(
    samples: Sequence[DeviceSample], windows: Windows, spacing_ns: float
) -> tuple[DeviceSample, ...]:
    """Those of the measured time and the ones next to it: a short trial may have no other."""
    if not windows:
        return ()
    begin, end = windows[0][0] - spacing_ns, windows[-1][1] + spacing_ns
    return tuple(sample for sample in samples if begin <= sample.at_ns <= end)


def _throttled(
    devices: Sequence[Device], within: Sequence[DeviceSample]
) -> tuple[tuple[tuple[str, int], ...], int]:
    """Reasons with their samples, the most frequent first; samples at a default power limit."""
    lowered = {
        d.index
        for d in devices
        if d.power_limit_mw is not None
        and d.default_power_limit_mw is not None
        and d.power_limit_mw < d.default_power_limit_mw
    }
    counts: dict[str, int] = {}
    at_limit = 0
    for sample in within:
        bits = sample.throttle or 0
        # HW_SLOWDOWN is set along with its causes: one reason a sample.
        reason = next((word for bit, word in _WORDS if bits & bit), None)
        if reason is None and bits & Throttle.POWER_CAP:
            reason = _LOWERED if sample.device in lowered else None
            at_limit += reason is None
        if reason is not None:
            counts[reason] = counts.get(reason, 0) + 1
    return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))), at_limit
