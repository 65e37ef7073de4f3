"""Writes tgi_bench/estimate/calibrations.yaml: the published tables' constants, on all points.

python -m tests.accuracy.calibrations
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tests.accuracy import bigcode_rows, h2ogpt_rows, tgi_rows, torchcap_rows
from tests.accuracy.tables import h2ogpt
from tgi_bench.estimate.calibration import FILE, Calibration, dump
from tgi_bench.estimate.fitting import NOISE, Subject, calibrate

HEAD = """\
# Constants fitted to the published tables; `python -m tests.accuracy.calibrations` writes it.
# One entry an accelerator and software stack. Errors are means of |estimated / measured - 1|.
# RTX-4090 of the h2oGPT table is not here: 3 rows are too few to leave one out.

"""


def _torchcap(device: str) -> Calibration:
    rows = torchcap_rows.single(device)
    subject = Subject(
        device,
        "transformers forward pass with loss",
        "TorchCAP benchmark table, AISysSim/aisyssim.github.io benchmark.rst at bd73495",
    )
    points = [row.point() for row in rows]
    return calibrate(subject, points, torchcap_rows.NAMES, {}, NOISE)


def _tgi() -> Calibration:
    subject = Subject(
        "A100-40GB-SXM",
        "text-generation-inference 0.8",
        "text-generation-benchmark report of bloomz-7b1-mt, num_shard 2, 4 and 8 in float16; "
        "hosting repository not found, the accelerator is inferred",
    )
    splits = {
        "one num_shard": tgi_rows.by_num_shard(),
        "one batch size": tgi_rows.by_batch_size(),
    }
    return calibrate(subject, tgi_rows.points(), tgi_rows.NAMES, splits, tgi_rows.NOISE)


def _bigcode() -> Calibration:
    subject = Subject(
        "A100-80GB-SXM",
        "transformers 4.25 generate",
        "bigcode-project/bigcode-inference-benchmark README.md at d04dc14; the version of "
        "transformers is inferred from its date",
    )
    points = [row.point for row in bigcode_rows.cells()]
    splits = {"one batch size": bigcode_rows.by_batch_size()}
    return calibrate(subject, points, bigcode_rows.NAMES, splits, NOISE)


def _h2ogpt(device: str) -> Calibration:
    rows = [row for row in h2ogpt() if row.accelerator == device]
    subject = Subject(
        device,
        "transformers 4.30 generate",
        "h2oai/h2ogpt perf.md at 36df73a4; dispatch_s is of a host that the table does not name",
    )
    points = [row.point for row in rows]
    return calibrate(subject, points, h2ogpt_rows.NAMES, {}, NOISE)


def calibrations() -> tuple[Calibration, ...]:
    return (
        _tgi(),
        _bigcode(),
        *(_torchcap(device) for device in torchcap_rows.DEVICES),
        *(_h2ogpt(device) for device in ("RTX-6000-Ada", "A100-80GB-SXM", "RTX-3090")),
    )


def text() -> str:
    return HEAD + dump(calibrations())


def main() -> None:
    path = Path(str(files("tgi_bench.estimate").joinpath(FILE)))
    path.write_text(text(), encoding="utf-8")
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
