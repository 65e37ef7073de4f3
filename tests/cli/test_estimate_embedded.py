"""A calibration from an experiment's key to the embedded server's engine, and into the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.launch.deployments import command_of, embedded
from tests.record import samples
from tests.sweep.experiments import write
from tgi_bench.analysis.planned import calibration_of, plan_estimate
from tgi_bench.cli.files import chooser
from tgi_bench.errors import ExperimentError, InputError
from tgi_bench.estimate.calibration import dump, published
from tgi_bench.estimate.setup import UNCALIBRATED
from tgi_bench.plan.expand import expand
from tgi_bench.plan.experiment_text import load
from tgi_bench.plan.plan import Plan
from tgi_bench.record.store import RunStore
from tgi_bench.server.command import EngineOptions, configuration
from tgi_bench.server.device import setup_of

NAME = "text-generation-inference 0.8"
TEXT = """experiment: e
model: bigscience/bloomz-7b1-mt
server:
  launcher: embedded
  version: "0.8.2"
  variable: {{num_shard: [1, 2]}}
  {embedded}
batches: {{sequence_length: 1024, decode_length: 8, batch_size: [1, 32], runs: 1}}
"""
EMBEDDED = "embedded: {calibration: text-generation-inference 0.8, visible_devices: 8}"


def plan_of(embedded: str = EMBEDDED) -> Plan:
    return expand(load(TEXT.format(embedded=embedded), "e.yaml"))


def test_the_keys_are_in_the_plan_and_in_the_command() -> None:
    deployment = plan_of().deployments[0]
    assert deployment.launcher == embedded(calibration=NAME, visible_devices=8)
    command = command_of(deployment, Path("shard"))
    where = command.index("--calibration")
    assert command[where : where + 4] == ("--calibration", NAME, "--visible-devices", "8")


def test_a_plan_without_them_is_what_it_was() -> None:
    plain = plan_of("embedded: {engine: simulated}")
    assert plain.deployments[0].launcher == embedded()
    assert plain.digest == plan_of("embedded: {visible_devices: 1}").digest
    assert plain.digest != plan_of().digest
    command = command_of(plain.deployments[0], Path("shard"))
    assert not {"--calibration", "--visible-devices"} & set(command)


def test_they_are_recorded(tmp_path: Path) -> None:
    header = replace(samples.header(), plan=plan_of())
    with RunStore.create(tmp_path, header) as store:
        assert store.header().plan == plan_of()


def test_plan_estimates_with_them() -> None:
    plan = plan_of()
    known = plan_estimate(plan, chooser).trials
    for trial in plan.trials:
        found = known[trial.trial_id]
        assert found.calibrated is not None
        assert found.calibrated.prefill_s != found.times.prefill_s
        # Eight devices hold the layers of num_shard 1: batch size 32 fits, with num_shard 2 not.
        assert found.fits == (trial.batch_size == 1 or trial.deployment_id == "num_shard-1")


def test_an_embedded_server_without_one_is_uncalibrated() -> None:
    plan = plan_of("embedded: {engine: simulated}")
    assert calibration_of(plan.deployments[0], chooser) is None
    assert all(
        estimate.calibrated is None for estimate in plan_estimate(plan, chooser).trials.values()
    )


def test_the_engine_computes_with_them(tmp_path: Path) -> None:
    own = published()[0]
    file = tmp_path / "mine.yaml"
    file.write_text(dump((own,)), encoding="utf-8")
    arguments = ("--model-id", "bigscience/bloomz-7b1-mt")
    for word in (NAME, str(file)):
        options = EngineOptions(
            "0.8.2", "simulated", "A100-40GB-SXM", calibration=word, visible_devices=8
        )
        one = setup_of(configuration(options, arguments, {}, chooser).engine)
        assert one.constants == own.constants
        assert one.split_devices == 8
        two = setup_of(configuration(options, (*arguments, "--num-shard", "2"), {}, chooser).engine)
        assert (two.num_shard, two.split_devices) == (2, 1)
    plain = EngineOptions("0.8.2", "simulated", "A100-40GB-SXM")
    assert setup_of(configuration(plain, arguments, {}, chooser).engine).constants == UNCALIBRATED
    with pytest.raises(InputError, match="no published calibration is named"):
        configuration(replace(plain, calibration="mine"), arguments, {}, chooser)


@pytest.mark.parametrize("word", ["-x", "''", "' a'", "3", "[a]"])
def test_what_is_no_calibration(word: str) -> None:
    with pytest.raises(ExperimentError, match=r"server\.embedded\.calibration"):
        plan_of(f"embedded: {{calibration: {word}}}")


@pytest.mark.parametrize("count", ["0", "-1", "1025", "1.5"])
def test_no_count_of_devices(count: str) -> None:
    with pytest.raises(ExperimentError, match=r"server\.embedded\.visible_devices"):
        plan_of(f"embedded: {{visible_devices: {count}}}")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("text-generation-inference", "nearest: 'text-generation-inference 0.8'"),
        ("no/such.yaml", "no such calibration file"),
    ],
)
def test_a_sweep_that_could_not_start_is_refused(
    tgi_bench: CommandLine, tmp_path: Path, word: str, message: str
) -> None:
    setting = ("--set", f"server.embedded.calibration={word}")
    said = tgi_bench.refused("sweep", write(tmp_path), *setting, "--results", tmp_path / "r")
    assert message in said
    assert not (tmp_path / "r").exists()
    plan = tgi_bench("plan", write(tmp_path), *setting)
    assert plan.code == 0
    assert f"cannot start: {message}" in plan.stdout or message in plan.stdout
