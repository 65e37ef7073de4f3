"""Estimated beside measured, in every document of a run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.launch.deployments import docker
from tests.published.tables import APRIL_13, NAMES, run_of, text_of
from tests.report.example import PUBLISHED, published_run, simulated_run
from tests.report.made import as_json, documents
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import dump, published
from tgi_bench.kinds.batch.compared import SIMULATED_WITH
from tgi_bench.kinds.batch.estimated import section, summary_section
from tgi_bench.kinds.batch.estimated_measured import compared, estimates_csv
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.documents import rst_page
from tgi_bench.observation import PublishedEntry
from tgi_bench.published.tgi import parse
from tgi_bench.published.tgi_notes import tgi_notes
from tgi_bench.published.tgi_run import to_run_parts

Golden = Callable[[str, str], None]


def tgi_run() -> Run:
    """The published TGI report with its importer's notes, of which one names the accelerator."""
    run = published_run()
    report = parse(PUBLISHED.read_text(encoding="utf-8"))
    plan, found = to_run_parts(report, "tgi_bloomz-7b1-mt.md")
    notes = tgi_notes(report, plan, found)
    return replace(run, environment=(*run.environment, *notes))


def test_the_published_tgi_report_is_estimated_whole() -> None:
    found = compared(tgi_run())
    # 31 of 36 batches have figures: a prefill and a decode each.
    assert len(found.rows) == 62
    assert all(row.calibrated is not None for row in found.rows)
    assert found.device_sources == ("A100-40GB-SXM, inferred: the report does not name it",)
    assert sum(not v.fitted for v in found.memory) == 5
    assert all(v.estimated_fits == v.fitted for v in found.memory)
    one_gpu = [r for r in found.rows if r.measured.setup.num_shard == 1]
    assert {r.measured.setup.split_devices for r in one_gpu} == {8}
    for row in found.rows:
        assert row.roofline_share is not None
        assert 0 < row.roofline_share < 1


def test_a_row_by_hand() -> None:
    found = compared(tgi_run())
    row = next(
        r
        for r in found.rows
        if r.measured.source_id.startswith("num_shard-8+quantize-none/s1024-d8-b1")
        and r.measured.phase == "prefill"
        and r.measured.sizes.batch_size == 1
    )
    assert row.measured.seconds == pytest.approx(71.72e-3)
    assert row.tokens == 1024
    said = row.uncalibrated
    assert said.tokens_per_s == pytest.approx(1024 / said.seconds)
    # Eight devices of 400 W.
    assert said.energy_j_per_token == pytest.approx(8 * 400 * said.seconds / 1024)


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_the_tables_is_estimated_against(name: str) -> None:
    run = run_of(text_of(name), name)
    found = compared(run)
    with_figures = {e.entry_id for e in run.of(PublishedEntry) if e.values}
    assert {row.measured.source_id for row in found.rows} == with_figures
    assert found.reasons == ()
    assert all(v.estimated_fits == v.fitted for v in found.memory)
    page = documents(run)["report.md"]
    assert "# Estimated beside measured" in page
    assert "## Uncalibrated" in page
    assert "## Calibrated" in page
    assert "## Percent of the roofline" in page


def test_torchcap_is_estimated_in_both_readings_of_its_degree() -> None:
    found = compared(run_of(text_of(APRIL_13), APRIL_13))
    eight = [row for row in found.rows if row.measured.devices == 8]
    assert {row.measured.sizes.mlp_degree for row in eight} == {2, 8}
    single = [row for row in found.rows if row.measured.devices == 1]
    for row in single:
        # Memory within 0.2 % on one device, as `make accuracy` says.
        gib = (row.uncalibrated.memory_bytes or 0.0) / 2**30
        assert gib == pytest.approx(row.measured.memory_gib, rel=2e-3)


def test_simulated_and_measured_never_share_a_column() -> None:
    run = simulated_run()
    page = section(run)
    assert page.startswith("# Estimated beside simulated\n")
    assert "Runtime (ms): Simulated" in page
    assert "Measured" not in page
    assert "Error = (Estimated - Simulated) / Simulated." in page
    document = json.loads(as_json(run))
    assert {row["observed_kind"] for row in document["estimates"]} == {"simulated"}


def test_the_calibration_that_a_simulated_run_computed_with_is_its_own() -> None:
    run = simulated_run()
    own = published()[0]
    calibrated = replace(run, environment=(*run.environment, (SIMULATED_WITH, dump((own,)))))
    found = compared(calibrated)
    assert [c.stack for c in found.calibrations] == [own.stack]
    # The run is of TGI 2.4: that its constants are another stack's is said.
    assert found.strange == (
        "the calibration was fitted on 'text-generation-inference 0.8', not "
        "'text-generation-inference 2.4'",
    )
    assert "**Not of this stack**" in section(calibrated)
    index = documents(calibrated)["report.md"]
    assert "Its constants: dispatch_s" in index
    assert SIMULATED_WITH not in index


def test_without_a_calibration_it_says_how_to_have_one() -> None:
    page = section(simulated_run())
    assert "## Calibrated" not in page
    assert "No calibration of text-generation-inference 2.4 on A100-40GB-SXM is known" in page


def test_what_cannot_be_estimated() -> None:
    run = published_run()
    assert section(run) == summary_section(run) == estimates_csv(run) == ""
    assert compared(run).reasons == ("nothing names the accelerator",)
    with pytest.raises(InputError, match="nothing of it can be estimated"):
        rst_page(run)
    assert json.loads(as_json(run))["estimates"] == []


def test_measured_figures_on_the_accelerator_of_the_experiment() -> None:
    run = simulated_run()
    deployments = tuple(
        replace(d, deployment=replace(d.deployment, launcher=docker()), facts=None)
        for d in run.deployments
    )
    measured = replace(run, origin=Origin.MEASURED, deployments=deployments)
    page = section(measured)
    assert "Runtime (ms): Measured" in page
    assert "server.embedded.accelerator; nothing else names it" in page


def test_csv_has_two_rows_for_each_calibrated_figure() -> None:
    rows = list(csv.DictReader(io.StringIO(estimates_csv(tgi_run()))))
    assert len(rows) == 124
    assert {r["constants"] for r in rows} == {"uncalibrated", "calibrated"}
    for row in rows:
        estimated, observed = float(row["estimated_s"]), float(row["observed_s"])
        assert float(row["error"]) == pytest.approx((estimated - observed) / observed)


def test_golden_section_of_the_published_report(golden: Golden) -> None:
    run = tgi_run()
    ids = frozenset(
        t.trial.trial_id
        for t in run.of(TrialSummary)
        if t.trial.deployment_id.startswith("num_shard-2")
    )
    golden("estimated_num_shard-2.md", section(run, ids))


def test_golden_summary_of_the_published_report(golden: Golden) -> None:
    golden("estimated_summary.md", summary_section(tgi_run()))


def test_golden_page_in_restructured_text(golden: Golden) -> None:
    golden("estimated_simulated.rst", rst_page(simulated_run()))
