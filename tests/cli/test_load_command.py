"""`tgi-bench load`'s options: the experiment that they stand for, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.launch.deployments import attach
from tgi_bench.cli.load_command import in_options, load_plan_of, load_tree
from tgi_bench.cli.load_options import Given, given, load_options
from tgi_bench.errors import ExperimentError
from tgi_bench.plan.experiment_text import load
from tgi_bench.trials.load import ClosedLoop, LogNormal, OpenLoop, Uniform

URL = "http://h:80"


def typed(*words: str) -> Given:
    """The options of a command line, through click."""
    found: list[Given] = []

    @click.command()
    @load_options
    @click.option("--results", default="r")
    def command(url: str, results: str, **options: Any) -> None:
        assert results == "r"
        found.append(given(url, options))

    done = CliRunner().invoke(command, [URL, *words])
    assert done.exit_code == 0, done.output
    return found[0]


def test_the_address_alone() -> None:
    assert typed() == {"URL": (URL,)}
    experiment, plan = load_plan_of(typed())
    (deployment,), (trial,) = plan.deployments, plan.load_trials
    assert (plan.experiment, plan.model, plan.trials) == ("load", "auto", ())
    assert deployment.launcher == attach(URL)
    assert (trial.trial_id, trial.arrivals) == ("default/load-c1", ClosedLoop(1))
    assert experiment.batches is None


def test_texts_of_a_file_that_may_repeat() -> None:
    experiment, plan = load_plan_of(typed("--file", __file__, "--file-kind", "jsonl", "--repeats"))
    assert plan.load_trials[0].workload.repeats
    assert experiment.load is not None
    assert experiment.load[0].workload.repeats
    with pytest.raises(ExperimentError, match=r"--repeats: is read with a file of texts only"):
        load_plan_of(typed("--repeats"))


def test_everything_is_the_experiment_that_a_file_says() -> None:
    options = typed(
        *("--api", "chat", "--model", "org/m", "-r", "1,2.5", "-r", "4", "--arrivals", "gamma"),
        *("--burstiness", "0.5", "--slo", "ttft_p99=500ms", "--slo", "success=99.9%"),
        *("--prompt-tokens", "uniform:100,1000", "--output-tokens", "lognormal:300,0.8,1,900"),
        *("--duration", "60s", "--requests", "1000", "--warmup", "10s", "--cooldown", "5"),
        *("--until", "ttft_p99=2%", "--timeout", "30", "--api-key-env", "MY_KEY", "--seed", "7"),
        *("--workers", "2", "--max-in-flight", "100", "--no-stream", "--insecure", "--name", "n"),
        "--quickack",
        *("--engine", "vllm"),
    )
    text = """
experiment: n
model: org/m
server: {launcher: attach, url: "http://h:80", env: [MY_KEY], verify_tls: false, engine: vllm}
load:
  api: chat
  rate: [1, 2.5, 4]
  arrivals: gamma
  burstiness: 0.5
  slo: {ttft_p99: 500ms, success: 99.9%}
  workload:
    prompt_tokens: {uniform: [100, 1000]}
    output_tokens: {lognormal: {median: 300, sigma: 0.8, lowest: 1, highest: 900}}
    seed: 7
  duration: 60s
  requests: 1000
  warmup: 10s
  cooldown: 5
  until: {metric: ttft_p99, ci: 2%}
  request_timeout: 30
  arrival_seed: 7
  workers: 2
  max_in_flight: 100
  quickack: true
  stream: false
"""
    experiment, plan = load_plan_of(options)
    assert experiment == load(text, "e.yaml")
    assert [t.arrivals for t in plan.load_trials] == [
        OpenLoop(rate, (), t.arrivals.process, 0.5, 7)
        for rate, t in zip((1.0, 2.5, 4.0), plan.load_trials, strict=True)
        if isinstance(t.arrivals, OpenLoop)
    ]
    assert plan.load_trials[0].workload.prompt == Uniform(100, 1000)
    assert plan.load_trials[0].workload.output == LogNormal(300.0, 0.8, 1, 900)


def test_a_trace_and_a_search(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.touch()
    trace = typed("--trace-speed", "2", "--file", str(file), "--file-kind", "azure")
    assert load_plan_of(trace)[1].load_trials[0].trial_id == "default/load-trace"
    search = typed("--find", "max_concurrency", "--slo", "success=1")
    assert load_plan_of(search)[1].load_trials[0].trial_id == "default/load-find-max_concurrency"


def test_what_was_not_given_is_not_in_the_tree() -> None:
    assert load_tree(typed()) == {
        "experiment": "load",
        "model": "auto",
        "server": {"launcher": "attach", "url": URL},
        "load": {"concurrency": 1},
    }


@pytest.mark.parametrize(
    ("remedy", "said"),
    [
        ("raise load.duration or load.requests", "raise --duration or --requests"),
        ("raise load.until.ci.", "raise --until."),
        ("lower load.workload.output_tokens", "lower --output-tokens"),
        ("may answer them: load.workload.repeats: true", "may answer them: --repeats"),
        ("leave load.workload.seed out", "leave --seed out"),
        ("say it in load.workload.shared_prefix", "say it in load.workload.shared_prefix"),
        ("raise load.find's highest", "raise load.find's highest"),
        ("or take any by server.verify_tls: false", "or take any by --insecure"),
        ("set load.quickack: true, or", "set --quickack, or"),
        ("that address (server.url), not server.sockets", "that address (URL), not server.sockets"),
    ],
)
def test_a_remedy_in_options(remedy: str, said: str) -> None:
    assert in_options(remedy) == said
