"""What the commands print on terminals of 80, 120 and 200 columns, byte by byte.

Without control sequences, and without spaces at the ends of lines, which nobody sees.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest

from tests.analysis import task_samples
from tests.cli.command_line import CommandLine
from tests.cli.test_kept_runs import KEPT, copy_of
from tests.cli.test_screen import CONTROL, DONE, ESTIMATES, PLAN, SEARCH, play, search
from tests.conftest import GOLDEN
from tests.record.samples import client, load_stage
from tests.report.made import print_summary
from tgi_bench.analysis.client_error import ClientErrors
from tgi_bench.cli.main import cli
from tgi_bench.cli.run_view import load
from tgi_bench.cli.screen import Screen
from tgi_bench.cli.tables import standard_output
from tgi_bench.kinds.direct.run import loaded, tell
from tgi_bench.load_observation import ClientFloor
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Plan
from tgi_bench.selfcheck.loads import CheckLoad, CheckResult, NullFacts, held, open_loop, paced
from tgi_bench.selfcheck.report import SelfcheckReport
from tgi_bench.trials.direct import Dtype, FindBatch

ROOT = Path(__file__).parents[2]
WIDTHS = (80, 120, 200)
Golden = Callable[[str, str], None]

BATCHES = """\
experiment: batches
model: bigscience/bloomz-7b1-mt
server:
  launcher: embedded
  version: 0.8.2
  constant: {max_input_length: 1000, max_total_tokens: 1512, max_batch_total_tokens: 32000}
  variable: {num_shard: [1, 8], quantize: [null, bitsandbytes]}
  skip: [{num_shard: 1, quantize: bitsandbytes}, {num_shard: 4}]
  embedded: {accelerator: A100-40GB-SXM, calibration: text-generation-inference 0.8}
batches: {sequence_length: [1024, 100], decode_length: 8, batch_size: [1, 32], runs: 10}
"""
ELSEWHERE = """\
experiment: elsewhere
model: org/unknown
server:
  launcher: docker
  image: vllm/vllm-openai:v0.6.0
  engine: vllm
  env: [HF_TOKEN]
  variable: {tensor_parallel_size: [1, 2]}
batches: {sequence_length: 16, decode_length: 4, batch_size: [1, 2], runs: 3}
load: {concurrency: 4, requests: 100}
"""
LOADS = """\
experiment: loads
model: bigscience/bloomz-1b1
server: {launcher: embedded, version: 3.3.7, embedded: {accelerator: H100-SXM}}
batches: {sequence_length: 16, decode_length: 4, batch_size: [1, 2], runs: 3}
load:
  - {concurrency: [1, 8], duration: 20s, warmup: 5s, cooldown: 1s}
  - {name: open, rate: 2.5, requests: 100, warmup: 10, arrivals: gamma, burstiness: 0.5}
  - ramp: [{from: 1, to: 20, for: 90s}, {rate: 20, for: 30s}]
    workload:
      prompt_tokens: {uniform: [100, 1000]}
      output_tokens: {values: [8, 16]}
      shared_prefix: {tokens: 64, groups: 4}
  - find: {max_rate: {start: 1, lowest: 1, highest: 16, tolerance: 25%, repeats: 3}}
    slo: {ttft_p99: 500ms}
    duration: 8s
    warmup: 2s
  - trace: {speed: 2}
    workload: {file: {path: trace.csv, kind: azure}}
  - name: stops
    concurrency: 4
    until: {ci: 2%, metric: ttft_p99}
    workload: {turns: {count: {normal: {mean: 3, deviation: 1, highest: 9}}, think: 2s}}
"""
DIRECT = """\
experiment: direct
backend: transformers
model: bigscience/bloomz-560m
transformers:
  random_weights: true
  device: auto
  dtype: 4bit
  layer_split: [1, 2]
generate:
  prompt_tokens: 9
  new_tokens: 100
  batch_size: [1, 4]
  find_batch: {start: 2, highest: 64, tolerance: 0.1}
  runs: 2
summarize: {document_tokens: 2048}
"""
EXPERIMENTS = {"batches": BATCHES, "elsewhere": ELSEWHERE, "loads": LOADS, "direct": DIRECT}
MATRIX = (
    *("--model", "bigscience/bloomz-7b1-mt", "--num-shard", "1,8", "--batch-size", "1,32"),
    *("--prompt-tokens", "1024", "--new-tokens", "8", "--stack", "text-generation-inference 0.8"),
)
PUBLISHED = (
    "bigcode.md",
    "h2ogpt.md",
    "tgi_bloomz-7b1-mt.md",
    "torchcap_2025-04-10.rst",
    "torchcap_2025-04-13.rst",
)


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int, kind: str = "dumb") -> None:
    """The standard output is one. kind: a dumb one has no control sequences."""
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("COLUMNS", width), ("LINES", 50), ("FORCE_COLOR", 1), ("TERM", kind)):
        monkeypatch.setenv(name, str(value))


ERASED = re.compile(r"(?:\r|\x1b\[[0-9;]*[A-Za-z])*\x1b\[2K(?:\r|\x1b\[[0-9;]*[A-Za-z])*")
"""What is drawn after it stands where another status stood."""


def seen(text: str) -> str:
    """As it stands on the screen; a status that is drawn anew below the one before."""
    plain = CONTROL.sub("", ERASED.sub("\n", text)).replace("\r", "")
    assert "\x1b" not in plain
    return "\n".join(line.rstrip() for line in plain.splitlines()) + "\n"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_plan(
    tgi_bench: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    golden: Golden,
    name: str,
    width: int,
) -> None:
    on_a_terminal(monkeypatch, width)
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").touch()
    Path("e.yaml").write_text(EXPERIMENTS[name], encoding="utf-8")
    section = "generate" if name == "direct" else "batches"
    ended = tgi_bench("plan", "e.yaml", "--set", f"{section}.warmups=2")
    assert (ended.code, ended.stderr) == (0, "")
    golden(f"screen/plan_{name}_{width}.txt", seen(ended.stdout))


@pytest.mark.parametrize("width", WIDTHS)
def test_estimate(
    tgi_bench: CommandLine, monkeypatch: pytest.MonkeyPatch, golden: Golden, width: int
) -> None:
    on_a_terminal(monkeypatch, width)
    ended = tgi_bench("estimate", *MATRIX)
    assert (ended.code, ended.stderr) == (0, "")
    golden(f"screen/estimate_{width}.txt", seen(ended.stdout))


@pytest.mark.parametrize("width", WIDTHS)
def test_estimate_of_an_experiment(
    tgi_bench: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    golden: Golden,
    width: int,
) -> None:
    on_a_terminal(monkeypatch, width)
    file = tmp_path / "e.yaml"
    file.write_text(BATCHES, encoding="utf-8")
    ended = tgi_bench("estimate", file, "--only", "num_shard=8")
    assert (ended.code, ended.stderr) == (0, "")
    golden(f"screen/estimate_experiment_{width}.txt", seen(ended.stdout))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["5", "5-direct"])
def test_what_a_sweep_and_a_load_end_with(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    golden: Golden,
    name: str,
    width: int,
) -> None:
    on_a_terminal(monkeypatch, width)
    print_summary(standard_output(), load(copy_of(name, tmp_path)))
    golden(f"screen/summary_{name}_{width}.txt", seen(capsys.readouterr().out))


def frozen_clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The monotonic clock that the screen reads, in ns; set its one entry."""
    now = [0]
    monkeypatch.setattr("tgi_bench.cli.screen.time.monotonic_ns", lambda: now[0])
    monkeypatch.setattr("tgi_bench.cli.screen.time.monotonic", lambda: now[0] / 1e9)
    return now


@pytest.mark.parametrize("width", WIDTHS)
def test_the_lines_of_a_sweep(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
    width: int,
) -> None:
    on_a_terminal(monkeypatch, width)
    now = frozen_clock(monkeypatch)
    play(Screen(standard_output(), PLAN, ESTIMATES, DONE), now)
    loads = replace(PLAN, trials=(), load_trials=(SEARCH,))
    search(Screen(standard_output(), loads, {}))
    tasks(Screen(standard_output(), TASK_PLAN, {}), now)
    golden(f"screen/lines_{width}.txt", seen(capsys.readouterr().out))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_lines_of_a_sweep_and_the_status_below_them(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
    width: int,
) -> None:
    """Each drawing of the status follows the one before, as it came."""
    on_a_terminal(monkeypatch, width, "xterm")
    now = frozen_clock(monkeypatch)
    with Screen(standard_output(), PLAN, ESTIMATES, DONE) as screen:
        play(screen, now)
    loads = replace(PLAN, trials=(), load_trials=(SEARCH,))
    with Screen(standard_output(), loads, {}) as screen:
        search(screen)
    with Screen(standard_output(), TASK_PLAN, {}) as screen:
        tasks(screen, now)
    golden(f"screen/live_{width}.txt", seen(capsys.readouterr().out))


TASK_TRIALS = (
    task_samples.generate(1),
    task_samples.generate(8),
    task_samples.generate(16),
    task_samples.generate(None, find=FindBatch(1, 8, 0.1)),
    task_samples.summarize(task_samples.model(Dtype.INT4)),
)
TASK_PLAN = Plan("tasks", "org/model", (), (), (), "d" * 64, task_trials=TASK_TRIALS)


def tasks(screen: Screen, now: list[int]) -> None:
    """Direct mode: a model with four kinds of ends, and one that is not loaded."""
    fine, too_large, skipped, sought, unloaded = TASK_TRIALS
    screen.starting(fine.model.model_id, "loading")
    screen.ready(fine.model.model_id, "loaded", loaded(task_samples.facts(devices=2)))
    for trial, size in ((fine, 1), (sought, 4)):
        screen.begins(trial.trial_id)
        if trial is sought:
            screen.part_begins(trial.trial_id, f"batch size {size}")
        for run in task_samples.task_runs(size):
            tell(screen, trial, run)
        now[0] += 1_000_000_000
        screen.ended(trial.trial_id, task_samples.OK)
    screen.begins(too_large.trial_id)
    tell(screen, too_large, task_samples.failed_run(task_samples.MEMORY, 8))
    screen.ended(too_large.trial_id, task_samples.MEMORY)
    screen.ended(skipped.trial_id, task_samples.SKIPPED)
    screen.starting(unloaded.model.model_id, "loading")
    reason = "bitsandbytes is not installed"
    screen.ended(unloaded.trial_id, TrialEnd(Outcome.LAUNCH_FAILED, reason))


NOTHING = np.array([], dtype=np.int64)


def selfcheck_result(of: CheckLoad, differing: int = 0, kernel: bool = True) -> CheckResult:
    opened = of.name.startswith("open")
    floor = ClientFloor(
        streams=of.streams,
        interval_ns=20_000_000,
        events=128_000,
        events_per_s=12_800.25,
        cpu_ns_per_event=8_765.4,
        ttft_error_ns=(21_000.0, 80_000.0, 230_000.0),
        itl_error_ns=None if of.watch_memory else (0.4, 1_234.5, 45_678.9),
        start_lateness_ns=(5e3, 2e4, 9e4) if opened else None,
        kernel_stamps=kernel,
    )
    facts = replace(
        client(), kernel_stamps=kernel, stamp_reason="" if kernel else "the system is not Linux"
    )
    return CheckResult(
        load=of,
        floor=floor,
        errors=ClientErrors(
            compared=1_000,
            missing=2 * differing,
            differing=differing,
            failed=3 * differing,
            ttft_ns=NOTHING,
            itl_ns=NOTHING,
            lateness_ns=NOTHING,
        ),
        stage=replace(load_stage(), client=facts),
        most_in_flight=of.streams,
        memory_bytes=300 << 20 if of.watch_memory else None,
        null=NullFacts(2_000.5, None, kernel, -4_500),
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_selfcheck(
    tgi_bench: CommandLine, monkeypatch: pytest.MonkeyPatch, golden: Golden, width: int
) -> None:
    on_a_terminal(monkeypatch, width)
    results = (paced(1, 10.0), paced(512, 10.0), open_loop(10.0), held(5000))
    report = SelfcheckReport(
        machine=(("tgi-bench", "0.1.0"), ("CPU", "two sockets"), ("CPU cores", "48 of 96")),
        results=(
            *map(selfcheck_result, results[:3]),
            selfcheck_result(results[3], differing=1, kernel=False),
        ),
    )
    monkeypatch.setattr("tgi_bench.selfcheck.report.measure", lambda *_: report)
    ended = tgi_bench("selfcheck")
    assert (ended.code, ended.stderr) == (1, "")
    golden(f"screen/selfcheck_{width}.txt", seen(ended.stdout))


def test_import(
    tgi_bench: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden
) -> None:
    on_a_terminal(monkeypatch, 80)
    monkeypatch.chdir(ROOT)
    files = [GOLDEN.relative_to(ROOT) / f"published_{name}" for name in PUBLISHED]
    said = [tgi_bench("import", file, "--results", tmp_path).stdout for file in files]
    text = "".join(said).replace(str(tmp_path), "RESULTS")
    golden("screen/import.txt", re.sub(r"\d{8}T\d{6}Z", "TIME", text))


def test_report(
    tgi_bench: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden
) -> None:
    """The names of the files that it writes; without --output the files themselves."""
    on_a_terminal(monkeypatch, 80)
    run_dir, said = copy_of("5", tmp_path), []
    for form in ("md", "csv"):
        ended = tgi_bench("report", run_dir, "--format", form, "--output", tmp_path / "pages")
        said.append(ended.stdout)
        names = [Path(line).name for line in ended.stdout.splitlines()]
        # On one stream tables of CSV that have other columns are left out.
        names = [name for name in names if name not in ("estimates.csv", "slos.csv")]
        pages = [(KEPT / "5" / name).read_text(encoding="utf-8") for name in names]
        assert tgi_bench("report", run_dir, "--format", form).stdout == "\n".join(pages)
    golden("screen/report.txt", "".join(said).replace(str(tmp_path), "FOLDER"))


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_are_of_no_width(
    tgi_bench: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int
) -> None:
    on_a_terminal(monkeypatch, width)
    printed = tgi_bench("report", copy_of("4-direct", tmp_path)).stdout
    assert printed == (KEPT / "4-direct" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", WIDTHS)
def test_help(
    tgi_bench: CommandLine, monkeypatch: pytest.MonkeyPatch, golden: Golden, width: int
) -> None:
    """click lays it out for 80 columns at most."""
    on_a_terminal(monkeypatch, width)
    said = []
    assert isinstance(cli, click.Group)
    for words in ([], *([name] for name in sorted(cli.commands))):
        ended = tgi_bench(*words, "--help")
        assert (ended.code, ended.stderr) == (0, "")
        said.append(f"$ {' '.join(['tgi-bench', *words, '--help'])}\n{ended.stdout}")
    golden("screen/help.txt", "\n".join(said))
