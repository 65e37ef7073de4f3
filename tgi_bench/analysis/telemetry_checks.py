"""Whether the devices were left to themselves while steps were measured."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.load_rows import listed, unchecked
from tgi_bench.analysis.run import Check
from tgi_bench.analysis.telemetry import TelemetrySummary
from tgi_bench.device_observation import DeviceKind

THROTTLED = "devices were not throttled"
ALONE = "no other process computed on the devices"


def telemetry_checks(seen: Sequence[TelemetrySummary]) -> tuple[Check, ...]:
    """Two checks; () where nothing was asked of any device, as in runs of older versions.

    What could not be sampled fails none.
    """
    return (_throttled(seen), _alone(seen)) if seen else ()


def _throttled(seen: Sequence[TelemetrySummary]) -> Check:
    told = [s for s in seen if s.measured]
    if not told:
        return unchecked(THROTTLED, _why(seen, "the devices do not tell"))
    bad = [
        f"{_name(s)} ({', '.join(f'{why}, {n / s.measured:.0%}' for why, n in s.throttled)} of "
        f"{s.measured} samples)"
        for s in sorted(told, key=lambda s: -_share(s))
        if s.throttled
    ]
    if bad:
        remedy = (
            "cool the device or let it rest between trials, and give it its default power limit "
            "(`nvidia-smi --power-limit`); then measure again"
        )
        return Check(THROTTLED, False, f"{len(bad)} of {len(told)} trials: {listed(bad)}", remedy)
    samples = sum(s.measured for s in told)
    finding = f"in none of {samples:,} samples"
    if limited := sum(s.at_limit for s in told):
        finding += (
            f"; in {limited / samples:.0%} of them the clocks were held at the device's own power "
            "limit, which is how it is built"
        )
    return Check(THROTTLED, True, finding, "")


def _share(seen: TelemetrySummary) -> float:
    return sum(count for _, count in seen.throttled) / seen.measured


def _alone(seen: Sequence[TelemetrySummary]) -> Check:
    told = [s for s in seen if s.others is not None]
    if not told:
        return unchecked(ALONE, _why(seen, "whose the processes on them are nobody could tell"))
    bad = [
        f"{_name(s)} ({s.others} other process{'' if s.others == 1 else 'es'})"
        for s in sorted(told, key=lambda s: -(s.others or 0))
        if s.others
    ]
    if bad:
        remedy = (
            "end them (`nvidia-smi` lists them), or choose other GPUs with CUDA_VISIBLE_DEVICES or "
            "server.docker.gpus; then measure again"
        )
        return Check(ALONE, False, f"{len(bad)} of {len(told)} trials: {listed(bad)}", remedy)
    return Check(ALONE, True, f"in none of {len(told)} trials", "")


def _why(seen: Sequence[TelemetrySummary], otherwise: str) -> str:
    """Not measured, and why; or what the samples lack."""
    reasons = dict.fromkeys(s.absent for s in seen if s.absent)
    if reasons:
        return f"not measured: {listed(list(reasons))}"
    gpus = any(d.kind is DeviceKind.GPU for s in seen for d in s.devices)
    return otherwise if gpus else "not measured: no GPU was sampled"


def _name(seen: TelemetrySummary) -> str:
    return f"{seen.trial_id}, {seen.part}" if seen.part else seen.trial_id
