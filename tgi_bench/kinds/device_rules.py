"""Whether the devices were left to themselves while steps were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tgi_bench.analysis.rules import Check, Rule, Seen, apply, listed
from tgi_bench.analysis.telemetry import TelemetrySummary
from tgi_bench.devices.observation import DeviceKind

THROTTLED = "devices were not throttled"
ALONE = "no other process computed on the devices"


def telemetry_checks(seen: Sequence[TelemetrySummary]) -> tuple[Check, ...]:
    """Two checks; () where nothing was asked of any device, as in runs of older versions.

    What could not be sampled fails none.
    """
    if not seen:
        return ()
    throttled = replace(
        _THROTTLED, unmade=_why(seen, _THROTTLED.unmade), well=lambda _: _unhindered(seen)
    )
    alone = replace(_ALONE, unmade=_why(seen, _ALONE.unmade))
    return apply(throttled, seen), apply(alone, seen)


def _throttled(seen: TelemetrySummary) -> Seen | None:
    if not seen.measured:
        return None
    share = sum(count for _, count in seen.throttled) / seen.measured
    reasons = ", ".join(f"{why}, {n / seen.measured:.0%}" for why, n in seen.throttled)
    return Seen(bool(seen.throttled), share, f"{reasons} of {seen.measured} samples")


def _unhindered(seen: Sequence[TelemetrySummary]) -> str:
    samples = sum(s.measured for s in seen)
    finding = f"in none of {samples:,} samples"
    if limited := sum(s.at_limit for s in seen if s.measured):
        finding += (
            f"; in {limited / samples:.0%} of them the clocks were held at the device's own power "
            "limit, which is how it is built"
        )
    return finding


def _alone(seen: TelemetrySummary) -> Seen | None:
    if seen.others is None:
        return None
    text = f"{seen.others} other process{'' if seen.others == 1 else 'es'}"
    return Seen(seen.others > 0, seen.others, text)


def _why(seen: Sequence[TelemetrySummary], otherwise: str) -> str:
    """Not measured, and why; or what the samples lack."""
    reasons = dict.fromkeys(s.absent for s in seen if s.absent)
    if reasons:
        return f"not measured: {listed(list(reasons))}"
    gpus = any(d.kind is DeviceKind.GPU for s in seen for d in s.devices)
    return otherwise if gpus else "not measured: no GPU was sampled"


_THROTTLED = Rule(
    THROTTLED,
    _throttled,
    "the devices do not tell",
    "cool the device or let it rest between trials, and give it its default power limit "
    "(`nvidia-smi --power-limit`); then measure again",
    rows="trials",
)
_ALONE = Rule(
    ALONE,
    _alone,
    "whose the processes on them are nobody could tell",
    "end them (`nvidia-smi` lists them), or choose other GPUs with CUDA_VISIBLE_DEVICES or "
    "server.docker.gpus; then measure again",
    rows="trials",
    well=lambda seen: f"in none of {len(seen)} trials",
)
