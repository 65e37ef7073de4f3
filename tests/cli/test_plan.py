"""What `plan` says beside its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.sweep.experiments import write


def lines(tgi_bench: CommandLine, folder: Path, *settings: str) -> list[str]:
    options = [word for setting in settings for word in ("--set", setting)]
    ended = tgi_bench("plan", write(folder), *options)
    assert ended.code == 0, ended
    return ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("model=org/unknown", "unknown model 'org/unknown'"),
        ("server.embedded.accelerator=abacus", "unknown accelerator 'abacus'"),
        ("server.variable.num_shard=[3]", "num_shard 3 does not divide the 16 heads"),
    ],
)
def test_what_the_embedded_server_cannot_start(
    tgi_bench: CommandLine, tmp_path: Path, setting: str, why: str
) -> None:
    said = lines(tgi_bench, tmp_path, setting)
    assert any(line.startswith(f"cannot start: {why}") for line in said), said
    assert not any(line.startswith("no estimate") for line in said)
    process = lines(tgi_bench, tmp_path, setting, "server.launcher=process")
    assert any(line.startswith(f"no estimate: {why}") for line in process), process


def test_a_newer_version_than_the_newest_known(tgi_bench: CommandLine, tmp_path: Path) -> None:
    settings = ("server.version=9.9.9", "server.launcher=process")
    said = "\n".join(lines(tgi_bench, tmp_path, *settings))
    assert "9.9.9 (newer than 3.3.7, whose arguments are taken)" in said
    assert "newer" not in "\n".join(lines(tgi_bench, tmp_path, "server.version=3.3.7"))


def test_one_of_each_has_no_s(tgi_bench: CommandLine, tmp_path: Path) -> None:
    settings = ("batches.batch_size=1", "batches.sequence_length=16", "server.variable={}")
    assert "1 deployment, 1 trial" in lines(tgi_bench, tmp_path, *settings)
    assert "2 deployments, 8 trials" in lines(tgi_bench, tmp_path)


def loads(tgi_bench: CommandLine, folder: Path, text: str) -> str:
    file = folder / "loads.yaml"
    file.write_text(text, encoding="utf-8")
    ended = tgi_bench("plan", file)
    assert ended.code == 0, ended
    return ended.stdout


def test_loads_beside_batches(tgi_bench: CommandLine, tmp_path: Path) -> None:
    setting = "load={concurrency: 1, duration: 1s, warmup: 0}"
    said = lines(tgi_bench, tmp_path, setting)
    assert "2 deployments, 8 trials, 2 loads" in said
    assert any(line.startswith("loads: 2.0 s; with the batches 3.") for line in said), said


def test_a_closed_loop_of_a_count_is_estimated(tgi_bench: CommandLine, tmp_path: Path) -> None:
    setting = "load={concurrency: 4, requests: 8, warmup: 0}"
    known = lines(tgi_bench, tmp_path, setting)
    assert any(line.startswith("loads: ") and "unknown" not in line for line in known), known
    unknown = lines(tgi_bench, tmp_path, setting, "server.embedded.accelerator=abacus")
    assert any(line.startswith("loads: 0.0 ms, and 2 loads of unknown") for line in unknown)


def test_loads_of_another_model_need_no_estimate(tgi_bench: CommandLine, tmp_path: Path) -> None:
    text = (
        "experiment: e\nmodel: org/unknown\nserver: {launcher: attach, url: 'http://h:1'}\n"
        "load: {concurrency: 8}\n"
    )
    said = loads(tgi_bench, tmp_path, text)
    assert "no estimate" not in said
    assert "1 deployment, 1 load\nloads: 35.0 s\n" in said


def test_a_tokenizer_may_be_a_models_folder(tgi_bench: CommandLine, tmp_path: Path) -> None:
    text = (
        "experiment: e\nmodel: m\nserver: {launcher: attach, url: 'http://h:1'}\n"
        f"load: {{concurrency: 8, tokenizer: {tmp_path}}}\n"
    )
    file = tmp_path / "e.yaml"
    file.write_text(text, encoding="utf-8")
    missing = f"tgi-bench: {tmp_path}/tokenizer.json: no such tokenizer file (load.tokenizer)"
    assert tgi_bench.refused("plan", file).startswith(missing)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert "1 deployment, 1 load" in loads(tgi_bench, tmp_path, text)


REAL = """\
experiment: real
model: bigscience/bloomz-1b1
server: {launcher: embedded, version: 3.3.7, embedded: {engine: transformers, device: cpu}}
batches: {sequence_length: 16, decode_length: 4, batch_size: [1], runs: 1}
"""


def test_a_model_that_runs_here_is_estimated_for_no_accelerator(
    tgi_bench: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "real.yaml"
    file.write_text(REAL, encoding="utf-8")
    said = tgi_bench("plan", file)
    assert said.code == 0, said
    assert "embedded (transformers, device cpu)" in said.stdout
    assert "A100" not in said.stdout
    assert "estimated for" not in said.stdout
    why = "no estimate: the engine `transformers` runs the model on this machine's own device"
    assert why in said.stdout
    refused = tgi_bench("plan", file, "--set", "server.embedded.accelerator=H100-SXM")
    assert refused.code == 2
    assert "is read by the engine `simulated` only, not `transformers`" in refused.stderr
