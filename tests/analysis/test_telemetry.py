"""Energy, power and memory by hand, and what fails a check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.samples import deployment, plan, summary, trial
from tests.analysis.samples import observed as observed_steps
from tests.report.made import judge
from tgi_bench.analysis.rules import Check, CheckStatus
from tgi_bench.analysis.run import Origin
from tgi_bench.analysis.telemetry import (
    TELEMETRY_DEFINITIONS,
    MeasuredWindows,
    TelemetrySummary,
    summarise_telemetry,
)
from tgi_bench.devices.observation import (
    Device,
    DeviceKind,
    DeviceSample,
    Telemetry,
    without_devices,
)
from tgi_bench.kinds.devices import ALONE, THROTTLED, telemetry_checks
from tgi_bench.kinds.measured_windows import measured_batches

S, MS, GIB = 10**9, 10**6, 2**30
GPU, CPU = DeviceKind.GPU, DeviceKind.CPU


def device(index: int = 0, kind: DeviceKind = GPU, limit_mw: int = 700_000) -> Device:
    return Device(index, kind, "NVIDIA H100 80GB HBM3", 80 * GIB, limit_mw, 700_000)


def at(
    time_s: float,
    index: int = 0,
    *,
    power_w: float | None = None,
    energy_j: float | None = None,
    memory: int | None = None,
    throttle: int | None = None,
    others: int | None = None,
) -> DeviceSample:
    return DeviceSample(
        device=index,
        at_ns=round(time_s * S),
        power_mw=None if power_w is None else round(power_w * 1000),
        energy_mj=None if energy_j is None else round(energy_j * 1000),
        memory_bytes=memory,
        utilisation=None,
        sm_clock_mhz=None,
        memory_clock_mhz=None,
        temperature_c=None,
        throttle=throttle,
        others=others,
    )


def seen(*samples: DeviceSample, devices: tuple[Device, ...] = (device(),)) -> Telemetry:
    return Telemetry("", 100 * MS, 3 * MS, S, devices, samples, (), ())


def figures(
    telemetry: Telemetry, *windows_s: tuple[float, float], tokens: float = 100.0
) -> TelemetrySummary:
    windows = [(round(a * S), round(b * S)) for a, b in windows_s]
    return summarise_telemetry(telemetry, MeasuredWindows("d/t", windows, tokens))


def test_energy_of_a_counter_is_interpolated() -> None:
    # 100 W for 1 s, then 300 W for 1 s, sampled every 100 ms
    counts = [at(0.1 * i, energy_j=5000 + 10.0 * i + max(0, i - 10) * 20.0) for i in range(21)]
    found = figures(seen(*counts), (0.45, 0.85), (0.95, 1.05))
    (gpu,) = found.devices
    # 0.4 s at 100 W; 0.05 s at 100 W and 0.05 s at 300 W
    assert gpu.energy_j == pytest.approx(40 + 5 + 15)
    assert gpu.average_power_w == pytest.approx(60 / 0.5)
    assert gpu.j_per_token == pytest.approx(0.6)
    assert (gpu.integrated, found.no_energy, gpu.kind) == (False, "", GPU)
    assert found.sampler_share == pytest.approx(0.003)


def test_power_is_integrated_by_trapezoids_where_there_is_no_counter() -> None:
    # 0 W rising by 100 W each second: 50 t^2 J
    powers = [at(0.1 * i, power_w=10.0 * i) for i in range(21)]
    (gpu,) = figures(seen(*powers), (0.55, 1.85)).devices
    assert gpu.integrated
    assert gpu.energy_j == pytest.approx(50 * (1.85**2 - 0.55**2))


def test_a_counter_that_went_back_is_none() -> None:
    both = [at(0.1 * i, energy_j=100.0 - i, power_w=50) for i in range(11)]
    (gpu,) = figures(seen(*both), (0.0, 1.0)).devices
    assert gpu.integrated
    assert gpu.energy_j == pytest.approx(50.0)


def test_all_devices_of_one_kind_together() -> None:
    devices = (device(0), device(1), device(2, CPU))
    samples = [
        at(0.1 * i, index, energy_j=rate * i / 10, memory=memory)
        for i in range(11)
        for index, rate, memory in ((0, 300, 4 * GIB), (1, 200, 5 * GIB), (2, 90, None))
    ]
    gpu, cpu = figures(seen(*samples, devices=devices), (0.0, 1.0)).devices
    assert gpu.energy_j == gpu.average_power_w == pytest.approx(500)
    assert (gpu.peak_memory_bytes, len(gpu.names)) == (5 * GIB, 2)
    assert cpu.energy_j == pytest.approx(90)
    assert (cpu.kind, cpu.peak_memory_bytes) == (CPU, None)


def test_one_device_that_does_not_tell_leaves_the_sum_undefined() -> None:
    samples = [at(0.1 * i, 0, energy_j=i) for i in range(11)] + [at(0.5, 1, memory=GIB)]
    (gpu,) = figures(seen(*samples, devices=(device(0), device(1))), (0.0, 1.0)).devices
    assert (gpu.energy_j, gpu.j_per_token, gpu.average_power_w) == (None, None, None)
    assert gpu.peak_memory_bytes == GIB


@pytest.mark.parametrize(
    ("windows", "why"),
    [
        (((0.1, 0.55),), "measured for less than 5 sample intervals of 100 ms"),
        (((0.1, 0.2), (0.3, 0.6)), "measured for less than 5 sample intervals of 100 ms"),
        ((), "nothing was measured"),
    ],
)
def test_too_short_for_a_figure(windows: tuple[tuple[float, float], ...], why: str) -> None:
    counts = [at(0.1 * i, energy_j=10.0 * i, memory=GIB) for i in range(11)]
    found = figures(seen(*counts), *windows)
    assert found.no_energy == why
    (gpu,) = found.devices
    assert (gpu.energy_j, gpu.average_power_w, gpu.peak_memory_bytes) == (None, None, GIB)


def test_samples_that_do_not_reach_over_the_measured_time() -> None:
    counts = [at(0.1 * i, energy_j=10.0 * i) for i in range(11)]
    for window in ((-0.1, 0.9), (0.1, 1.1), (5.0, 6.0)):
        assert figures(seen(*counts), window).devices[0].energy_j is None


def test_tokens_that_are_not_known() -> None:
    counts = [at(0.1 * i, energy_j=10.0 * i) for i in range(11)]
    found = summarise_telemetry(seen(*counts), MeasuredWindows("d/t", ((0, S),), None))
    assert found.devices[0].energy_j == pytest.approx(100)
    assert found.devices[0].j_per_token is None


def test_one_sample_alone_and_none() -> None:
    found = figures(seen(at(0.5, energy_j=1, power_w=1)), (0.4, 0.6))
    assert found.devices[0].energy_j is None
    nothing = figures(without_devices("no driver"), (0.0, 1.0))
    assert (nothing.devices, nothing.absent, nothing.no_energy) == ((), "no driver", "no driver")
    assert (nothing.sampler_share, nothing.others, nothing.measured) == (None, None, 0)


def test_throttling_within_the_measured_time_alone() -> None:
    samples = [
        at(0.0, throttle=0x40),  # before
        at(1.0, throttle=0),
        at(1.1, throttle=0x48),  # a hardware slowdown, because of heat
        at(1.2, throttle=0x20),
        at(1.3, throttle=0x04),
        at(1.4, throttle=0x01),  # idle
        at(2.0, throttle=0x80),  # after
    ]
    found = figures(seen(*samples), (1.0, 1.5))
    assert found.throttled == (("heat (driver)", 1), ("heat (hardware)", 1))
    assert (found.at_limit, found.measured) == (1, 5)
    lowered = figures(seen(*samples, devices=(device(limit_mw=400_000),)), (1.0, 1.5))
    assert ("a power limit below the default", 1) in lowered.throttled
    assert lowered.at_limit == 0


def by_name(*summaries: TelemetrySummary) -> dict[str, Check]:
    return {check.name: check for check in telemetry_checks(summaries)}


def quiet(throttle: int | None = 0, others: int | None = 0) -> TelemetrySummary:
    samples = [at(0.1 * i, throttle=throttle, others=others) for i in range(11)]
    return figures(seen(*samples), (0.05, 0.95))


def test_checks_that_pass() -> None:
    found = by_name(quiet(), quiet(0x4))
    assert {check.status for check in found.values()} == {CheckStatus.PASSED}
    assert "in 50% of them" in found[THROTTLED].finding
    assert found[ALONE].finding == "in none of 2 trials"


@pytest.mark.parametrize("bit", [0x08, 0x20, 0x40, 0x80])
def test_throttling_fails_with_a_remedy(bit: int) -> None:
    found = by_name(quiet(), quiet(bit))[THROTTLED]
    assert found.status is CheckStatus.FAILED
    assert found.finding.startswith("1 of 2 trials: d/t (")
    assert "100% of 11 samples" in found.finding
    assert "nvidia-smi --power-limit" in found.remedy


def test_other_processes_fail_with_a_remedy() -> None:
    found = by_name(quiet(others=2), quiet(others=1), quiet())[ALONE]
    assert found.status is CheckStatus.FAILED
    assert found.finding == "2 of 3 trials: d/t (2 other processes), d/t (1 other process)"
    assert "CUDA_VISIBLE_DEVICES" in found.remedy


def test_what_was_not_measured_fails_no_check() -> None:
    absent = figures(without_devices("no driver"), (0.0, 1.0))
    for check in telemetry_checks([absent]):
        assert check.status is CheckStatus.NOT_CHECKED
        assert "not measured: no driver" in check.finding
    for check in telemetry_checks([quiet(None, None)]):
        assert check.status is CheckStatus.NOT_CHECKED
        assert "not measured" not in check.finding
    samples = [at(0.1 * i, energy_j=i) for i in range(11)]
    for check in telemetry_checks([figures(seen(*samples, devices=(device(0, CPU),)), (0, 1))]):
        assert check.finding == "not measured: no GPU was sampled"
    assert telemetry_checks([]) == ()


def test_a_trial_s_runs_are_its_windows() -> None:
    server = deployment(1)
    asked = trial(server, 4)
    measured = measured_batches(asked, observed_steps(asked, 50, 20))
    # run k of 3 starts at 10 k s; prefill 50 ms and two steps of 20 ms, 1 % slower each
    begin = 10 * S
    assert measured.windows == (
        (begin, begin + 90 * MS),
        (2 * begin, 2 * begin + 90_900_000),
        (3 * begin, 3 * begin + 91_800_000),
    )
    assert measured.tokens == 4 * 3 * 3
    assert measured_batches(asked, ()) == MeasuredWindows(asked.trial_id, (), None)


def test_the_verdict_has_the_checks_of_a_measured_run() -> None:
    server = deployment(1)
    asked = trial(server, 1)
    whole = plan([server], [asked])
    hot = replace(quiet(0x40), trial_id=asked.trial_id)
    for origin, expected in ((Origin.MEASURED, 1), (Origin.SIMULATED, 0)):
        verdict = judge(whole, origin, [], [summary(asked)], True, telemetry=[hot])
        assert sum(c.name == THROTTLED and not c.passed for c in verdict.checks) == expected
    assert len(dict(TELEMETRY_DEFINITIONS)) == len(TELEMETRY_DEFINITIONS)
