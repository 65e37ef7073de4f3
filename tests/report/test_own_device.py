"""A run of the embedded server's engine `transformers`: on this machine's own device."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.launch.deployments import transformers
from tests.report.example import simulated_run
from tests.report.made import documents
from tests.report.test_telemetry import ONE, cells, gpus, seen
from tgi_bench.analysis.accelerator_of import NamedAccelerator, NoDevice, device_of
from tgi_bench.analysis.planned import planned_setup, stack_name
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.errors import InputError
from tgi_bench.kinds.batch.estimated_measured import measured
from tgi_bench.kinds.devices import devices_section
from tgi_bench.launch.launcher import Launcher

H100 = "NVIDIA H100 80GB HBM3, 535.104.05, 81559 MiB"
UNKNOWN = "NVIDIA A100-PCIE-40GB, 535.104.05, 40960 MiB"
ON_CPU = "the model ran on this machine's CPU, of which there is no estimate"


def own_run(launcher: Launcher, gpu: str = "", info: str = "") -> Run:
    """The example's servers, as if they had run the model; each keeps its planned A100."""
    run = simulated_run()
    deployments = tuple(replace(d, launcher=launcher) for d in run.plan.deployments)
    details = (("/info", info),) if info else ()
    records = tuple(
        DeploymentRecord(
            made,
            None if r.facts is None else replace(r.facts, simulated=False, details=details),
            r.failure,
        )
        for made, r in zip(deployments, run.deployments, strict=True)
    )
    return replace(
        run,
        origin=Origin.MEASURED,
        plan=replace(run.plan, deployments=deployments),
        deployments=records,
        environment=(*run.environment, ("GPUs", gpu)),
    )


def found(launcher: Launcher, gpu: str, info: str = "") -> NamedAccelerator | NoDevice:
    run = own_run(launcher, gpu, info)
    return device_of(run.environment, run.origin, run.deployments[0])


def info(device_type: str) -> str:
    return json.dumps({"model_device_type": device_type})


@pytest.mark.parametrize(
    ("device", "gpu", "said"),
    [("cpu", "none found", ""), ("cpu", H100, ""), ("auto", H100, info("cpu"))],
)
def test_a_processor_is_no_row(device: str, gpu: str, said: str) -> None:
    assert found(transformers(device), gpu, said) == NoDevice(ON_CPU, nameable=False)


@pytest.mark.parametrize(
    ("device", "gpu", "said", "row"),
    [
        ("cuda", H100, "", "H100-SXM"),
        ("auto", H100, info("cuda"), "H100-SXM"),
        ("auto", f"{H100}; {H100}", "", "H100-SXM"),
        ("cuda", H100, "no JSON", "H100-SXM"),
        ("cuda", UNKNOWN, "", None),
        ("cuda", f"{H100}; {UNKNOWN}", "", None),
        ("auto", "none found", "", None),
        ("auto", "", "", None),
    ],
)
def test_the_row_of_the_driver_s_name(device: str, gpu: str, said: str, row: str | None) -> None:
    which = found(transformers(device), gpu, said)
    if row is not None:
        assert which == NamedAccelerator(row, "as the driver names it")
    else:
        assert isinstance(which, NoDevice)
        assert which.nameable
        assert gpu in which.why
        assert "accelerators" in which.why  # `calibrate` then says how to name it


def test_nothing_of_a_processor_is_estimated_whatever_the_caller_names() -> None:
    run = own_run(transformers("cpu"), H100)
    for device in (None, "A100-40GB-SXM"):
        of = measured(run, device)
        assert (of.figures, of.device_sources, of.reasons) == ((), (), (ON_CPU,))
    pages = documents(run)
    for name in ("report.md", "num_shard-1.md"):
        assert "A100" not in pages[name]
        assert "simulates" not in pages[name]
    assert f"Not estimated: {ON_CPU}." in pages["report.md"]


def test_an_unknown_gpu_may_be_named() -> None:
    run = own_run(transformers("cuda"), UNKNOWN)
    assert measured(run).figures == ()
    of = measured(run, "A100-40GB-SXM")
    assert of.device_sources == ("A100-40GB-SXM, as given",)
    assert of.figures


def test_a_known_gpu_is_estimated_as_transformers() -> None:
    of = measured(own_run(transformers("cuda"), H100))
    assert of.device_sources == ("H100-SXM, as the driver names it",)
    assert {f.setup.accelerator.name for f in of.figures} == {"H100-SXM"}
    assert {f.planned.stack for f in of.figures} == {"transformers"}
    assert {f.setup.generator for f in of.figures} == {"transformers"}


def test_a_plan_alone_names_no_device() -> None:
    deployment = own_run(transformers("auto")).plan.deployments[0]
    assert stack_name(deployment) == "transformers"
    with pytest.raises(InputError, match="this machine's own device"):
        planned_setup(deployment)
    assert planned_setup(deployment, "H100-SXM").setup.accelerator.name == "H100-SXM"
    split = replace(deployment, launcher=transformers("cuda", layer_split=True))
    with pytest.raises(InputError, match="several devices"):
        planned_setup(split, "H100-SXM")


def test_sampled_devices_are_their_own_estimate() -> None:
    run = own_run(transformers("cuda"), H100)
    h100 = replace(run, telemetry=(seen(ONE, gpus(name="NVIDIA H100 80GB HBM3")),))
    section = devices_section(h100, [ONE])
    assert cells(section, ONE)[0][5] == "700.0 W"
    assert "- the estimate is of the H100-SXM: at most" in section
    other = replace(run, telemetry=(seen(ONE, gpus(name="NVIDIA A100-PCIE-40GB")),))
    section = devices_section(other, [ONE])
    assert cells(section, ONE)[0][5] == "-"
    assert "- no estimate: NVIDIA A100-PCIE-40GB: no one row of the accelerators" in section
    assert "A100-40GB-SXM" not in section
