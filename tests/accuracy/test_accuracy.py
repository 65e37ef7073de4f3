"""The harness behind `make accuracy`: tables, splits, layouts, and that its result is committed."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.accuracy import bigcode_rows, h2ogpt_rows, memory_rows, tgi_rows, torchcap_rows
from tests.accuracy.__main__ import RESULTS, differences
from tests.accuracy.row import Row, document, notes, table
from tests.accuracy.tables import bigcode, h2ogpt, tgi, torchcap
from tgi_bench.estimate.calibration import find
from tgi_bench.estimate.fitting import NOISE, Point, fit
from tgi_bench.estimate.setup import MOST_FITTED, RANGES

ROW = Row("T", "runtime", "one model", 3, "8.4", 5.0, 9.126, 4.999, "said.")


def test_every_figure_of_the_tables_is_there() -> None:
    assert Counter((row.accelerator, row.devices) for row in torchcap()) == {
        ("RTX-A5000", 1): 6,
        ("RTX-A6000", 1): 6,
        ("RTX-A5000", 8): 6,
        ("RTX-A6000", 8): 6,
    }
    cells = Counter((row.num_shard, row.prompt_tokens, row.quantize) for row in tgi())
    assert cells == {
        (1, 1024, None): 6,
        (2, 1024, None): 6,
        (4, 1024, None): 6,
        (8, 1024, None): 6,
        (8, 100, None): 6,
        (8, 100, "bitsandbytes"): 6,
    }
    assert sum(row.prefill_s is None for row in tgi()) == 5
    assert all((row.prefill_s is None) == (row.decode_s is None) for row in tgi())
    assert len(bigcode()) == 44
    assert sum(row.tokens_per_s is None for row in bigcode()) == 9
    assert len(h2ogpt()) == 30
    assert Counter(row.bits for row in h2ogpt()) == {16: 10, 8: 10, 4: 10}


def test_points_by_hand() -> None:
    """Batch size 1 in float32: 100 tokens at 45.31 tokens a second; the others as printed."""
    assert bigcode()[0].point.measured_s == pytest.approx(100 / 45.31)
    assert bigcode()[0].point.sizes.prompt_tokens == 7
    assert tgi_rows.cells()[0].point("prefill").measured_s == pytest.approx(0.10649)
    decode = tgi_rows.cells()[0].point("decode")
    assert decode.measured_s == pytest.approx(0.01756)
    assert decode.sizes.prompt_tokens == 1028
    assert h2ogpt()[0].point.measured_s == pytest.approx(1 / 41.9433)
    assert torchcap()[0].point().measured_s == pytest.approx(0.69377)


def test_no_split_fits_more_than_five_constants() -> None:
    for names in (
        torchcap_rows.SHARED_NAMES,
        tgi_rows.NAMES,
        bigcode_rows.NAMES,
        h2ogpt_rows.NAMES,
    ):
        assert len(names) <= MOST_FITTED
        assert set(names) <= set(RANGES)


def test_one_num_shard_is_all_of_it() -> None:
    """What is held out together is a whole num_shard, prefill and decode."""
    labels = Counter(tgi_rows.by_num_shard())
    assert labels == {2: 2 * 4, 4: 2 * 4, 8: 2 * (5 + 6)}
    assert len(tgi_rows.points()) == sum(labels.values()) == 38


def test_a_row_says_met_or_missed() -> None:
    assert ROW.verdict == "met"
    missed = Row("T", "runtime", "one model", 3, "8.4", 5.0, None, 5.001, "")
    assert missed.verdict == "missed"
    lines = table([ROW, missed]).splitlines()
    assert lines[2] == "| T | runtime | one model | 3 | 8.4 | 5 | 9.13 | 5.00 | met |"
    assert lines[3] == "| T | runtime | one model | 3 | 8.4 | 5 | - | 5.00 | missed |"
    assert notes([ROW, missed]) == "- T, runtime, one model (met): said.\n"
    [entry, other] = json.loads(document([ROW, missed]))
    assert (entry["ours"], entry["uncalibrated"], entry["verdict"]) == (5.0, 9.13, "met")
    assert (other["uncalibrated"], other["verdict"]) == (None, "missed")


def test_the_committed_result_is_what_the_code_gives() -> None:
    """The rows that take little time; `python -m tests.accuracy --check` compares all."""
    entries = json.loads((RESULTS / "accuracy.json").read_text(encoding="utf-8"))
    committed = {(e["table"], e["figure"], e["split"]): e for e in entries}
    made = [*memory_rows.rows(), *bigcode_rows.rows()]
    for entry in json.loads(document(made)):
        other = committed[entry["table"], entry["figure"], entry["split"]]
        assert entry["ours"] == pytest.approx(other["ours"], abs=0.05)
        assert entry["uncalibrated"] == pytest.approx(other["uncalibrated"], abs=0.05)
        assert (entry["verdict"], entry["points"]) == (other["verdict"], other["points"])
    page = (RESULTS / "accuracy.md").read_text(encoding="utf-8")
    for entry in entries:
        assert f"| {entry['table']} | {entry['figure']} | {entry['split']} |" in page
    assert page.count(" | met |\n") == sum(entry["verdict"] == "met" for entry in entries)
    assert page.count(" | missed |\n") == sum(entry["verdict"] == "missed" for entry in entries)


def test_differences_are_told() -> None:
    [entry] = json.loads(document([ROW]))
    assert differences([entry], [dict(entry, ours=5.04, why="other words")]) == []
    assert differences([entry], [dict(entry, ours=5.1)]) == [
        "T, runtime, one model: ours is 5.1 there, 5.0 here"
    ]
    assert differences([entry], [dict(entry, verdict="missed")]) == [
        "T, runtime, one model: verdict"
    ]
    assert differences([entry], [dict(entry, uncalibrated=None)]) == [
        "T, runtime, one model: uncalibrated"
    ]
    assert differences([entry], []) == ["0 rows there, 1 here"]


def _single(device: str) -> list[Point]:
    return [row.point() for row in torchcap_rows.single(device)]


def test_the_package_s_calibrations_are_what_the_code_gives() -> None:
    bigcodes = [row.point for row in bigcode_rows.cells()]
    for device, stack, points, names in (
        ("RTX-A5000", "transformers forward pass with loss", None, torchcap_rows.NAMES),
        ("RTX-A6000", "transformers forward pass with loss", None, torchcap_rows.NAMES),
        ("A100-80GB-SXM", "transformers 4.25 generate", bigcodes, bigcode_rows.NAMES),
    ):
        calibration = find(device, stack)
        assert calibration is not None
        found = fit(_single(device) if points is None else points, names, NOISE)
        assert dict(calibration.fitted) == pytest.approx(found.values, rel=1e-3)
