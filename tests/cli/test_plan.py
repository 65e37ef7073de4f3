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


def test_a_skip_entry_that_leaves_out_nothing(tgi_bench: CommandLine, tmp_path: Path) -> None:
    said = lines(tgi_bench, tmp_path, "server.skip=[{num_shard: 2}, {num_shard: 8}]")
    assert [line for line in said if line.startswith("skip")] == [
        "skip entry 2 matches no combination"
    ]


LOADS = """\
experiment: loads
model: bigscience/bloomz-1b1
server: {launcher: embedded, version: 3.3.7, embedded: {accelerator: H100-SXM}}
load:
  - {concurrency: [1, 8], duration: 20s, warmup: 5s, cooldown: 1s}
  - {name: open, rate: 2.5, requests: 100, warmup: 10, arrivals: gamma, burstiness: 0.5}
  - ramp: [{from: 1, to: 20, for: 90s}, {rate: 20, for: 30s}]
    workload: {prompt_tokens: {uniform: [100, 1000]}, output_tokens: {values: [8, 16]}}
  - find: {max_rate: {start: 1, lowest: 1, highest: 16, tolerance: 25%, repeats: 3}}
    slo: {ttft_p99: 500ms}
    duration: 8s
    warmup: 2s
  - trace: {speed: 2}
    workload: {file: {path: FILE, kind: azure}}
  - {name: stops, concurrency: 4, until: {ci: 2%, metric: ttft_p99}}
"""


def loads(tgi_bench: CommandLine, folder: Path, text: str = LOADS) -> str:
    file, trace = folder / "loads.yaml", folder / "t.csv"
    trace.touch()
    file.write_text(text.replace("FILE", str(trace)), encoding="utf-8")
    ended = tgi_bench("plan", file)
    assert ended.code == 0, ended
    return ended.stdout


def test_loads_without_batches(tgi_bench: CommandLine, tmp_path: Path) -> None:
    said = [" ".join(line.split()) for line in loads(tgi_bench, tmp_path).splitlines()]
    told = "\n".join(said)
    file = tmp_path / "t.csv"
    for row in (
        "load-c8 8 in flight 512 128 20.0 s after 5.0 s before 1.0 s 26.0 s",
        "load-open-gamma-r2.5 2.5 requests/s, gamma of shape 0.5 512 128 "
        "100 requests after 10 requests 44.0 s",  # 110 / 2.5
        "load-ramp 1 to 20 for 1 min 30 s then 20 for 30.0 s requests/s, poisson 100 to 1000 "
        "one of 2 values 2 min 00 s 2 min 00 s",
        # 1 + log2(16) doublings + log2(4) halvings = 7 values x 3 x 10 s.
        "load-find-max_rate search 1 to 16 requests/s from 1, within 25 %, each 3 times 512 128 "
        "8.0 s after 2.0 s <= 3 min 30 s",
        f"load-trace the file's times, 2 times as fast {file} as the file the whole file -",
        "load-stops-c4 4 in flight 512 128 30.0 s after 5.0 s, until ttft_p99 within 2 % <= 35.0 s",
        "1 deployment, 7 loads",
        # 26 + 26 + 44 + 120 + 210 + 35 = 461
        "loads: at most 7 min 41 s, and 1 load of unknown length",
    ):
        assert row in said, told
    assert "Sequence" not in told
    assert "estimated" not in told


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


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ("workload: {file: FILE.jsonl}", "FILE.jsonl: no such workload file (load.workload.file"),
        ("tokenizer: FILE", "FILE: no such tokenizer file (load.tokenizer)"),
        ("workload: {file: {path: /dev/null, kind: csv}}", "/dev/null: is no regular file (load."),
        ("tokenizer: FILE/..", "FILE/..: no such tokenizer file"),
    ],
)
def test_files_that_a_load_needs(
    tgi_bench: CommandLine, tmp_path: Path, load: str, message: str
) -> None:
    nobody = str(tmp_path / "nobody")
    file = tmp_path / "e.yaml"
    text = (
        "experiment: e\nmodel: m\nserver: {launcher: attach, url: 'http://h:1'}\n"
        f"load: {{concurrency: 8, {load.replace('FILE', nobody)}}}\n"
    )
    file.write_text(text, encoding="utf-8")
    said = tgi_bench.refused("plan", file)
    assert said.startswith("tgi-bench: " + message.replace("FILE", nobody))
    assert said.count("\n") == 1


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


@pytest.mark.parametrize("width", [80, 119, 120, 400])
def test_no_word_of_a_load_is_cropped(
    tgi_bench: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("tgi_bench.cli.tables._WIDTH_OF_A_FILE", width)
    said = loads(tgi_bench, tmp_path)
    assert "\u2026" not in said
    assert "<= 3 min 30 s" in said


@pytest.mark.parametrize("width", [80, 119, 120, 400])
def test_no_figure_is_cropped_on_a_terminal_of_80_columns(
    tgi_bench: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("tgi_bench.cli.tables._WIDTH_OF_A_FILE", width)
    settings = ("model=bigscience/bloom", "batches.sequence_length=20000", "batches.runs=100")
    said = lines(tgi_bench, tmp_path, *settings)
    assert "\u2026" not in "".join(said)
    assert any("NO: memory" in line for line in said)


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
