"""`tgi-bench estimate`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.sweep.experiments import write

MODEL = "bigscience/bloomz-7b1-mt"
CALIBRATED = "text-generation-inference 0.8"
MATRIX = (
    "--model",
    MODEL,
    "--num-shard",
    "1,8",
    "--batch-size",
    "1,32",
    "--prompt-tokens",
    "1024",
    "--new-tokens",
    "8",
)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}


def rows(tgi_bench: CommandLine, *arguments: str | Path) -> list[dict[str, str]]:
    ended = tgi_bench("estimate", *arguments, "--format", "csv")
    assert ended.code == 0, ended
    return list(csv.DictReader(io.StringIO(ended.stdout)))


def test_a_matrix_with_what_fits_and_what_does_not(tgi_bench: CommandLine) -> None:
    ended = tgi_bench("estimate", *MATRIX)
    assert ended.code == 0, ended
    text = ended.stdout
    assert text.startswith("Estimated: nothing here was measured.\n")
    assert "  Parameters: 7,069,016,064\n" in text
    assert "does not fit" in text
    assert "No calibration of text-generation-inference 3.3 on A100-40GB-SXM is known" in text
    assert f"(there: {CALIBRATED})" in text
    assert "(2^30 bytes)" in text


def test_csv_has_every_configuration_and_figure(tgi_bench: CommandLine) -> None:
    found = rows(tgi_bench, *MATRIX)
    assert [(r["num_shard"], r["batch_size"]) for r in found] == [
        ("1", "1"),
        ("1", "32"),
        ("8", "1"),
        ("8", "32"),
    ]
    assert {r["constants"] for r in found} == {"uncalibrated"}
    # 1024 prompt tokens at batch 32 need 32 x 1024 x 250880 logits of 2 bytes.
    assert [r["fits"] for r in found] == ["true", "false", "true", "false"]
    for row in found:
        assert all(row[name] for name in row if name not in ("quantize", "strangeness"))
        assert 0 < float(row["prefill_roofline_share"]) <= 1


def test_calibrated_stands_beside_uncalibrated(tgi_bench: CommandLine) -> None:
    found = rows(tgi_bench, *MATRIX, "--stack", CALIBRATED)
    assert [r["constants"] for r in found[:2]] == ["uncalibrated", "calibrated"]
    assert float(found[0]["prefill_s"]) != float(found[1]["prefill_s"])
    assert found[1]["strangeness"] == ""
    text = tgi_bench("estimate", *MATRIX, "--stack", f"{CALIBRATED}.2").stdout
    assert f"Calibrated on {CALIBRATED}, A100-40GB-SXM" in text
    assert "one num_shard held out" in text


def test_a_calibration_of_another_stack_says_so(tgi_bench: CommandLine) -> None:
    text = tgi_bench("estimate", *MATRIX, "--calibration", CALIBRATED).stdout
    assert "calibrated elsewhere" in text
    assert (
        "NOT OF THIS STACK: the calibration was fitted on 'text-generation-inference 0.8', not "
        "'text-generation-inference 3.3'." in text
    )
    h100 = ("--accelerator", "H100-SXM", "--calibration", CALIBRATED)
    found = rows(tgi_bench, *MATRIX, *h100)
    assert found[1]["strangeness"].startswith("the calibration was fitted on A100-40GB-SXM, not H")


def test_json_and_pages(tgi_bench: CommandLine) -> None:
    form = ("--stack", CALIBRATED, "--format")
    document = json.loads(tgi_bench("estimate", *MATRIX, *form, "json").stdout)
    assert document["schema"] == "tgi-bench-estimate"
    assert document["origin"] == "estimated"
    assert len(document["estimates"]) == 8
    assert document["estimates"][0]["quantize"] is None
    assert document["calibrations"][0]["stack"] == CALIBRATED
    page = tgi_bench("estimate", *MATRIX, *form, "md").stdout
    assert page.startswith("# Estimates\n\n**Estimated.** Nothing here was measured.\n")
    widths = [len(line) for line in page.splitlines() if line.startswith("|")]
    assert len(set(widths)) == 2  # one width a table
    rst = tgi_bench("estimate", *MATRIX, *form, "rst").stdout
    assert rst.startswith("Estimates\n=========\n")
    assert "\n+===" in rst


def test_one_new_token_has_no_decode_step(tgi_bench: CommandLine) -> None:
    one = ("--model", MODEL, "--new-tokens", "1")
    assert rows(tgi_bench, *one)[0]["decode_s"] == ""
    document = json.loads(tgi_bench("estimate", *one, "--format", "json").stdout)
    assert "decode_s" not in document["estimates"][0]


def test_an_experiment_as_plan_estimates_it(tgi_bench: CommandLine, tmp_path: Path) -> None:
    found = rows(tgi_bench, write(tmp_path), "--only", "num_shard=1")
    assert {r["num_shard"] for r in found} == {"1"}
    assert len(found) == 4
    refused = tgi_bench.refused("estimate", write(tmp_path), "--model", MODEL)
    assert "--model: of a matrix, not of an experiment" in refused


def test_a_config_json(tgi_bench: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "TinyLlama"
    folder.mkdir()
    file = folder / "config.json"
    file.write_text(json.dumps(LLAMA), encoding="utf-8")
    for word in (file, folder):
        [row] = rows(tgi_bench, "--model", word)
        # TinyLlama-1.1B's own count.
        assert (row["model"], row["parameters"]) == ("TinyLlama", "1100048384")
    file.write_text(json.dumps({**LLAMA, "model_type": "other"}), encoding="utf-8")
    assert "read as Llama's architecture" in tgi_bench("estimate", "--model", file).stdout
    file.write_text('{"model_type": "llama"', encoding="utf-8")
    assert "is not JSON" in tgi_bench.refused("estimate", "--model", file)


def test_a_calibration_file(tgi_bench: CommandLine, tmp_path: Path) -> None:
    from tgi_bench.estimate.calibration import dump, published

    file = tmp_path / "mine.yaml"
    file.write_text(dump(published()), encoding="utf-8")
    given = rows(tgi_bench, *MATRIX, "--stack", CALIBRATED, "--calibration", file)
    assert given == rows(tgi_bench, *MATRIX, "--stack", CALIBRATED)
    file.write_text("[1", encoding="utf-8")
    assert "is not YAML" in tgi_bench.refused("estimate", *MATRIX, "--calibration", file)


DEFAULT = "A100-40GB-SXM"
KEY = "server.embedded.accelerator"
BATCHES = """\
experiment: e
model: bigscience/bloomz-7b1-mt
server: {launcher: docker, image: "ghcr.io/huggingface/text-generation-inference:3.3.7"}
batches: {sequence_length: 8, decode_length: 2, batch_size: 1, runs: 1}
"""


@pytest.mark.parametrize("form", ["table", "md", "rst", "json"])
def test_an_accelerator_that_nobody_named_is_said_to_be_assumed(
    tgi_bench: CommandLine, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(BATCHES, encoding="utf-8")
    asked: tuple[tuple[tuple[str | Path, ...], tuple[str, ...], str], ...] = (
        (("--model", MODEL), ("--accelerator", DEFAULT), "--accelerator"),
        ((file,), ("--set", f"{KEY}={DEFAULT}"), KEY),
    )
    for what, named, how in asked:
        shown = tgi_bench("estimate", *what, "--format", form).stdout
        assert f"{DEFAULT} is assumed. {how} names it." in " ".join(shown.split())
        assert "assumed" not in tgi_bench("estimate", *what, *named, "--format", form).stdout


def test_a_plan_says_which_accelerator_it_assumes(tgi_bench: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(BATCHES, encoding="utf-8")
    shown = " ".join(tgi_bench("plan", file).stdout.split())
    assert f"estimated for {DEFAULT} (assumed, for nothing names it" in shown
    named = tgi_bench("plan", file, "--set", f"{KEY}={DEFAULT}").stdout
    assert f"estimated for {DEFAULT} ({KEY})" in " ".join(named.split())
