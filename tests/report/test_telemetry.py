"""What devices used, in pages and in the JSON document."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.report.example import simulated_run
from tests.report.load_example import load_run
from tests.report.made import as_json, documents
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.analysis.telemetry import DeviceFigures, TelemetrySummary
from tgi_bench.devices.observation import DeviceKind, Gauges
from tgi_bench.estimate.tables import accelerator_names
from tgi_bench.kinds.devices import HEADERS, devices_section
from tgi_bench.kinds.load.figures import LoadSummary

A100 = "NVIDIA A100-SXM4-40GB"
GIB = 2**30
IDLE: Gauges = (("tgi_batch_current_size", 0.0), ("tgi_queue_size", 0.0))


def gpus(count: int = 1, name: str = A100) -> DeviceFigures:
    return DeviceFigures(
        kind=DeviceKind.GPU,
        names=(name,) * count,
        energy_j=120.0,
        integrated=False,
        j_per_token=0.41234,
        average_power_w=287.44,
        peak_memory_bytes=round(14.2 * GIB),
    )


CPU = DeviceFigures(DeviceKind.CPU, ("package-0", "package-0 dram"), 9.0, False, 0.03, 21.5, None)


def seen(trial_id: str, *devices: DeviceFigures, why: str = "") -> TelemetrySummary:
    return TelemetrySummary(
        trial_id=trial_id,
        part="",
        absent="" if devices else why,
        no_energy=why,
        devices=devices,
        measured=90,
        throttled=(),
        at_limit=0,
        others=0,
        sampler_share=0.00271,
        period_ns=100_000_000,
        began=IDLE,
        ended=IDLE,
    )


ONE = "num_shard-1+quantize-none/s100-d3-b1"
TWO = "num_shard-1+quantize-none/s100-d3-b2"


def measured(*summaries: TelemetrySummary) -> Run:
    return replace(simulated_run(), origin=Origin.MEASURED, telemetry=summaries)


def cells(text: str, trial_id: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith(f"| {trial_id} ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_measured_beside_the_estimate() -> None:
    short = replace(gpus(), energy_j=None, j_per_token=None, average_power_w=None)
    why = "measured for less than 5 sample intervals of 100 ms"
    run = measured(seen(ONE, gpus(), CPU), seen(TWO, short, why=why))
    page = documents(run)["num_shard-1.md"]
    section = page[page.index("# Devices") : page.index("# Server before and after")]
    gpu, cpu = cells(section, ONE)
    assert len(gpu) == len(HEADERS)
    assert gpu[1:3] == [A100, "0.412 J"]
    assert gpu[4:7] == ["287.4 W", "400.0 W", "14.20 GiB"]
    # 400 W x (prefill of 100 tokens and 2 decode steps, about 10 ms each) / 3 tokens
    assert 0.5 < float(gpu[3].removesuffix(" J")) < 10
    assert 13 < float(gpu[7].removesuffix(" GiB")) < 18
    assert cpu[1] == "package-0 + package-0 dram"
    assert cpu[2:] == ["0.03 J", "-", "21.5 W", "-", "-", "-"]
    other = cells(section, TWO)[0]
    assert (other[2], other[4:7]) == ("-", ["-", "400.0 W", "14.20 GiB"])
    assert f"- energy of {TWO} was not measured: {why}\n" in section
    assert "- sampled every 100 ms by a process of its own, which took at most 0.27% of" in section
    assert "- the estimate is of the A100-40GB-SXM: at most its rated power" in section
    assert "had no request waiting and none running just before and just after each of 2" in page
    assert "- **J/token**: energy / new tokens" in page
    for line in section.splitlines():
        assert "simulated" not in line


def test_several_devices_and_integrated_power() -> None:
    two = replace(gpus(2, "NVIDIA L4"), integrated=True)
    section = devices_section(measured(seen(ONE, two)), [ONE])
    assert cells(section, ONE)[0][1:4] == ["2 x NVIDIA L4", "0.412 J", "-"]
    assert "- energy of 2 x NVIDIA L4 is its sampled power, integrated" in section
    assert "- no estimate: it would be of the A100-40GB-SXM, which these devices are not" in section


def test_nothing_was_sampled() -> None:
    none = "this machine has no NVIDIA driver and no RAPL counter"
    run = measured(seen(ONE, why=none), seen(TWO, why=none))
    page = documents(run)["num_shard-1.md"]
    assert f"# Devices\n\n- energy was not measured: {none}\n\n# Server before" in page
    assert "J/token**" not in page


def test_a_simulated_run_tells_of_its_server_only() -> None:
    run = replace(simulated_run(), telemetry=(seen(ONE, why="the server simulates"),))
    page = documents(run)["num_shard-1.md"]
    assert "# Devices" not in page
    assert "# Server before and after\n\nBy its /metrics it had no request waiting" in page
    assert "none running just before and just after the trial.\n" in page
    assert "# Server before" not in documents(run)["num_shard-2.md"]


def test_a_server_that_was_not_idle() -> None:
    busy = replace(
        seen(ONE, gpus()), ended=(("tgi_batch_current_size", 8.0), ("tgi_queue_size", 3.0))
    )
    section = devices_section(measured(busy, seen(TWO, gpus())), [ONE, TWO])
    assert f"not idle around these:\n\n- {ONE}: after, 3 waiting and 8 running\n" in section


def test_without_gauges_nothing_is_said_of_a_server() -> None:
    bare = replace(seen(ONE, gpus()), began=(), ended=())
    assert "# Server" not in devices_section(measured(bare), [ONE])


def test_of_loads_and_their_parts() -> None:
    run = load_run()
    trial_id = run.of(LoadSummary)[0].trial.trial_id
    part = replace(seen(trial_id, gpus()), part="step 2")
    page = devices_section(replace(run, origin=Origin.MEASURED, telemetry=(part,)), [trial_id])
    assert f"| {trial_id}, step 2 | {A100} " in page
    assert " - |" in page


def test_the_json_document() -> None:
    document = json.loads(as_json(measured(seen(ONE, gpus(), CPU))))
    (found,) = document["telemetry"]
    assert found["trial_id"] == ONE
    assert found["devices"][0]["j_per_token"] == 0.41234
    assert found["devices"][1]["kind"] == "cpu"
    assert found["gauges_before"] == {"tgi_batch_current_size": 0.0, "tgi_queue_size": 0.0}
    assert (found["other_processes"], found["sampler_core_share"]) == (0, 0.00271)
    assert json.loads(as_json(simulated_run()))["telemetry"] == []


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-40GB-SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A10", "A10"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX A5000", "RTX-A5000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
    ],
)
def test_the_estimate_is_of_the_device_that_was_found(device: str, name: str) -> None:
    run = measured(seen(ONE, gpus(1, device)))
    found = []
    for other in accelerator_names():
        deployments = tuple(replace(d, accelerator=other) for d in run.plan.deployments)
        asked = replace(run, plan=replace(run.plan, deployments=deployments))
        if "the estimate is of the" in devices_section(asked, [ONE]):
            found.append(other)
    assert found == [name]
