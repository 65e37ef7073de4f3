"""What was sampled around a trial, for the JSON document."""

from __future__ import annotations

from tgi_bench.analysis.telemetry import DeviceFigures, TelemetrySummary
from tgi_bench.report.json_text import Json


def telemetry_json(seen: TelemetrySummary) -> Json:
    """An undefined figure is null. absent, no_energy: why; empty where there is no reason."""
    return {
        "trial_id": seen.trial_id,
        "part": seen.part,
        "absent": seen.absent,
        "no_energy": seen.no_energy,
        "devices": [_devices(devices) for devices in seen.devices],
        "samples": seen.measured,
        "throttled_samples": dict(seen.throttled),
        "power_limited_samples": seen.at_limit,
        "other_processes": seen.others,
        "sampler_core_share": seen.sampler_share,
        "period_ns": seen.period_ns,
        "gauges_before": dict(seen.began),
        "gauges_after": dict(seen.ended),
    }


def _devices(devices: DeviceFigures) -> Json:
    return {
        "kind": devices.kind.value,
        "names": list(devices.names),
        "energy_j": devices.energy_j,
        "integrated": devices.integrated,
        "j_per_token": devices.j_per_token,
        "average_power_w": devices.average_power_w,
        "peak_memory_bytes": devices.peak_memory_bytes,
    }
