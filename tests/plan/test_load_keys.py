"""The `load:` section: what is refused, in which words and at which line."""

from __future__ import annotations

import pytest

from tgi_bench.codec import from_json, to_json
from tgi_bench.errors import ExperimentError
from tgi_bench.plan.experiment_text import load, load_plan, parse_overrides
from tgi_bench.trials.load import LoadTrial

HEAD = """\
experiment: e
model: org/model
server: {launcher: attach, url: "http://h:80"}
load:
"""


def said(*lines: str, sets: tuple[str, ...] = ()) -> str:
    """The refusal of a lone load; its first line is the file's fifth."""
    with pytest.raises(ExperimentError) as caught:
        load_plan(HEAD + "".join(f"  {line}\n" for line in lines), "e.yaml", parse_overrides(sets))
    return str(caught.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        # How requests come.
        (
            ["stream: true"],
            "e.yaml:4: load: does not say how requests come: give one of concurrency, rate, ramp, "
            "trace, find",
        ),
        (
            ["rate: 1", "concurrency: 1"],
            "e.yaml:5: load.rate: stands beside `concurrency`: give one of concurrency, rate, "
            "ramp, trace, find in a load",
        ),
        (
            ["concurrency: 1", "arrivals: poisson", "burstiness: 2"],
            "e.yaml:6: load.arrivals: is read with `rate`, `ramp` and `find: max_rate` only: "
            "leave it out\n"
            "e.yaml:7: load.burstiness: is read with `rate`, `ramp` and `find: max_rate` only: "
            "leave it out",
        ),
        (
            ["rate: 1", "burstiness: 2"],
            "e.yaml:6: load.burstiness: is read with `arrivals: gamma` only: say so, or leave it "
            "out",
        ),
        (
            ["rate: 1", "arrivals: posson"],
            "e.yaml:6: load.arrivals: must be one of constant, poisson, gamma, not the string "
            "`posson`; did you mean `poisson`?",
        ),
        (["rate: [1, 0]"], "e.yaml:5: load.rate.1: must be more than 0, not 0"),
        (["rate: .nan"], "e.yaml:5: load.rate.0: must be a finite number, not nan"),
        (["rate: 1e9"], "e.yaml:5: load.rate.0: must be at most 1000000, not 1000000000.0"),
        (["rate: []"], "e.yaml:5: load.rate: must hold at least one value"),
        (["rate: [1, 1.0]"], "e.yaml:5: load.rate: holds `1.0` twice"),
        (["concurrency: [2, -1]"], "e.yaml:5: load.concurrency.1: must be at least 1, not -1"),
        (["concurrency: true"], "e.yaml:5: load.concurrency.0: must be an integer, not `true`"),
        (
            ["concurrency: 200000"],
            "e.yaml:5: load.concurrency.0: must be at most 100000, not 200000",
        ),
        (["concurrency: [4, 4]"], "e.yaml:5: load.concurrency: holds `4` twice"),
        (
            ["concurrency: [4, 9]", "max_in_flight: 8"],
            "e.yaml:6: load.max_in_flight: is less than the concurrency 9: leave it out",
        ),
        (
            ["concurrency: [4, 9]", "max_in_flight: 10"],
            "e.yaml:6: load.max_in_flight: is read with `rate`, `ramp`, `trace` and "
            "`find: max_rate` only: leave it out",
        ),
        (
            ["concurrency: 4", "workload: {turns: {count: 0}}"],
            "e.yaml:6: load.workload.turns.count: must be a number of requests from 1 to "
            "10000000, or {uniform: [100, 1000]}, {normal: ...}, {lognormal: ...} or "
            "{values: [...]}, not `0`",
        ),
        (
            ["concurency: 4"],
            "e.yaml:5: load.concurency: is no key here; allowed: name, api, stream, workload, "
            "concurrency, rate, ramp, trace, find, arrivals, burstiness, arrival_seed, duration, "
            "requests, warmup, cooldown, until, slo, request_timeout, max_in_flight, workers, "
            "tokenizer, quickack, sampling; did you mean `concurrency`?",
        ),
        # Ramps.
        (
            ["ramp: [{rate: 1, from: 2, for: 1s}]"],
            "e.yaml:5: load.ramp.0: holds `rate` and `from` or `to`: give `rate`, or `from` and "
            "`to`",
        ),
        (
            ["ramp: [{from: 2, for: 1s}]"],
            "e.yaml:5: load.ramp.0: needs `rate`, or both `from` and `to`",
        ),
        (
            ["ramp: [{rate: 0, for: 1s}]"],
            "e.yaml:5: load.ramp: has no part with a rate above 0: nothing would be sent",
        ),
        (
            ["ramp: [{rate: 1}]"],
            "e.yaml:5: load.ramp.0.for: is missing: how long the part is: `60s`",
        ),
        (
            ["ramp: [{rate: 1, fro: 1s}]"],
            "e.yaml:5: load.ramp.0.for: is missing: how long the part is: `60s`\n"
            "e.yaml:5: load.ramp.0.fro: is no key here; allowed: rate, from, to, for; did you "
            "mean `from`?",
        ),
        (
            ["ramp: [{rate: 1, for: 9s}]", "duration: 9s"],
            "e.yaml:6: load.duration: is what the ramp's parts add up to: leave it out",
        ),
        (
            ["ramp: [{rate: 1, for: 9s}]", "warmup: 5s", "cooldown: 4s"],
            "e.yaml:6: load.warmup: and `cooldown` leave nothing of the ramp's 9 s to measure",
        ),
        # Lengths.
        (
            ["concurrency: 1", "workload: {prompt_tokens: 0}"],
            "e.yaml:6: load.workload.prompt_tokens: must be a number of tokens from 1 to 10000000, "
            "or {uniform: [100, 1000]}, {normal: ...}, {lognormal: ...} or {values: [...]}, not "
            "`0`",
        ),
        (
            ["concurrency: 1", "workload: {prompt_tokens: {uniform: [1]}}"],
            "e.yaml:6: load.workload.prompt_tokens.uniform: must hold at least 2 values",
        ),
        (
            ["concurrency: 1", "workload: {prompt_tokens: {uniform: [1, 2, 3]}}"],
            "e.yaml:6: load.workload.prompt_tokens.uniform: must hold at most 2 values, not 3",
        ),
        (
            ["concurrency: 1", "workload: {prompt_tokens: {uniform: [9, 2]}}"],
            "e.yaml:6: load.workload.prompt_tokens.uniform: must ascend: [lowest, highest], not "
            "[9, 2]",
        ),
        (
            ["concurrency: 1", "workload: {output_tokens: {}}"],
            "e.yaml:6: load.workload.output_tokens: must hold one of fixed, uniform, normal, "
            "lognormal, values, not none",
        ),
        (
            ["concurrency: 1", "workload: {output_tokens: {fixed: 1, values: [2]}}"],
            "e.yaml:6: load.workload.output_tokens: must hold one of fixed, uniform, normal, "
            "lognormal, values, not fixed and values",
        ),
        (
            ["concurrency: 1", "workload: {output_tokens: {values: [2], weights: [1, 1]}}"],
            "e.yaml:6: load.workload.output_tokens.weights: must hold a weight for each value: "
            "there are 1 values and 2 weights",
        ),
        (
            ["concurrency: 1", "workload: {output_tokens: {fixed: 2, weights: [1]}}"],
            "e.yaml:6: load.workload.output_tokens.weights: is read with `values` only",
        ),
        (
            ["concurrency: 1", "workload: {output_tokens: {normal: {mean: 5, deviation: .inf}}}"],
            "e.yaml:6: load.workload.output_tokens.normal.deviation: must be a finite number, not "
            "inf",
        ),
        (
            [
                "concurrency: 1",
                "workload: {output_tokens: {normal: {mean: 5, deviation: 1, lowest: 6}}}",
            ],
            "e.yaml:6: load.workload.output_tokens.normal.lowest: must be at most 5, the middle, "
            "not 6",
        ),
        (
            [
                "concurrency: 1",
                "workload: {output_tokens: {lognormal: {median: 5, sigma: 1, highest: 4}}}",
            ],
            "e.yaml:6: load.workload.output_tokens.lognormal.highest: must be at least 5, the "
            "middle, not 4",
        ),
        # Files, prefixes, turns.
        (
            ["concurrency: 1", "workload: {file: prompts.json}"],
            "e.yaml:6: load.workload.file.kind: is missing, and the name does not tell: one of "
            "jsonl, sharegpt, azure, mooncake, csv",
        ),
        (
            ["concurrency: 1", "workload: {file: {path: p, kind: jsnol}}"],
            "e.yaml:6: load.workload.file.kind: must be one of jsonl, sharegpt, azure, mooncake, "
            "csv, not the string `jsnol`; did you mean `jsonl`?",
        ),
        (
            ["concurrency: 1", "workload: {file: p.jsonl, prompt_tokens: 5}"],
            "e.yaml:6: load.workload.prompt_tokens: is what the file says: leave it out, or the "
            "file",
        ),
        (
            ["concurrency: 1", "workload: {file: p.jsonl, shared_prefix: {tokens: 5}}"],
            "e.yaml:6: load.workload.shared_prefix: is what a file of kind jsonl says: leave it "
            "out",
        ),
        (
            ["concurrency: 1", "workload: {shared_prefix: {tokens: 512}}"],
            "e.yaml:6: load.workload.shared_prefix.tokens: must be less than every prompt, which "
            "is 512 tokens at least with the prefix in it, not 512",
        ),
        (
            [
                "concurrency: 1",
                "workload: {prompt_tokens: {values: [9, 4]}, shared_prefix: {tokens: 4}}",
            ],
            "e.yaml:6: load.workload.shared_prefix.tokens: must be less than every prompt, which "
            "is 4 tokens at least with the prefix in it, not 4",
        ),
        (
            ["rate: 1", "workload: {turns: {count: 4}}"],
            "e.yaml:6: load.workload.turns: needs a closed loop: a turn waits for the answer "
            "before it, so give `concurrency`",
        ),
        (
            ["concurrency: 1", "workload: {turns: {count: 4}, file: p.jsonl}"],
            "e.yaml:6: load.workload.turns: takes no file but one of conversations (kind: "
            "sharegpt)",
        ),
        (
            ["concurrency: 1", "workload: {turns: {count: 4, think: soon}}"],
            "e.yaml:6: load.workload.turns.think: must be a duration such as 500ms, 2s, 1.5m or "
            "1h, or a number of seconds, not `soon`",
        ),
        # Traces.
        (
            ["trace: {}"],
            "e.yaml:5: load.trace: needs a file with times: give workload.file, of kind azure, "
            "mooncake, csv",
        ),
        (
            ["trace: {}", "workload: {file: p.jsonl}"],
            "e.yaml:5: load.trace: needs a file with times: one of kind azure, mooncake, csv, not "
            "jsonl",
        ),
        (
            ["trace: {speed: 0}", "workload: {file: {path: a, kind: azure, shuffle: true}}"],
            "e.yaml:5: load.trace.speed: must be more than 0, not 0",
        ),
        (
            ["trace: {}", "workload: {file: {path: a, kind: azure, shuffle: true}}"],
            "e.yaml:6: load.workload.file.shuffle: cannot be: a trace's requests have the file's "
            "own order",
        ),
        # How long.
        (
            ["concurrency: 1", "duration: -3s"],
            "e.yaml:6: load.duration: must be more than 0, not `-3s`",
        ),
        (
            ["concurrency: 1", "requests: 0"],
            "e.yaml:6: load.requests: must be at least 1, not 0",
        ),
        (
            ["concurrency: 1", "warmup: 10"],
            "e.yaml:6: load.warmup: is a number of requests, but a time ends the load: write "
            "`10s`, or give `requests`",
        ),
        (
            ["concurrency: 1", "requests: 9", "cooldown: 1s"],
            "e.yaml:7: load.cooldown: is a time, but `requests` ends the load: give a number of "
            "requests",
        ),
        (
            ["concurrency: 1", "warmup: 2.5"],
            "e.yaml:6: load.warmup: must be a whole number of requests, or a duration with its "
            "unit, as in 10s, not `2.5`",
        ),
        (
            ["concurrency: 1", "until: {ci: 2, metric: ttft_p99}"],
            "e.yaml:6: load.until.ci: must be at most 100%, which is 1, not `2`; write 2% for so "
            "many hundredths",
        ),
        (
            ["concurrency: 1", "until: {ci: 2%, metric: ttft_max}"],
            "e.yaml:6: load.until.metric: `ttft_max` is no metric: write one of ttft, "
            "service_ttft, itl, event_gap, tpot, e2e, send_lag with one of mean, p50, p90, p95, "
            "p99, p999, as in ttft_p99; did you mean `ttft_mean`?",
        ),
        (
            ["ramp: [{rate: 1, for: 9s}]", "until: {ci: 2%, metric: ttft_p99}"],
            "e.yaml:6: load.until: needs a load that stays the same: leave it out of a ramp or a "
            "trace",
        ),
        # What it must meet.
        (
            ["concurrency: 1", "slo: {tftt_p99: 500ms}"],
            "e.yaml:6: load.slo.tftt_p99: `tftt_p99` is no metric: write one of ttft, "
            "service_ttft, itl, event_gap, tpot, e2e, send_lag with one of mean, p50, p90, p95, "
            "p99, p999, max, as in ttft_p99 or success; did you mean `ttft_p99`?",
        ),
        (
            ["concurrency: 1", "slo: {ttft_p99: 99%, success: 1s}"],
            "e.yaml:6: load.slo.ttft_p99: must be a duration such as 500ms, 2s, 1.5m or 1h, or a "
            "number of seconds, not `99%`\n"
            "e.yaml:6: load.slo.success: must be a share such as 2% or 0.02, not `1s`",
        ),
        (
            ["concurrency: 1", "slo: {ttft_p99: [1]}"],
            "e.yaml:6: load.slo.ttft_p99: must be a duration such as 500ms, or a share such as "
            "99.9%, not `[1]`",
        ),
        # Searches.
        (
            ["find: max_rate"],
            "e.yaml:5: load.find: needs `slo`: a search finds the highest value that meets every "
            "SLO",
        ),
        (
            ["find: max_ratio", "slo: {success: 1}"],
            "e.yaml:5: load.find.max_ratio: is no key here; allowed: max_rate, max_concurrency; "
            "did you mean `max_rate`?",
        ),
        (
            ["find: {max_rate: {}, max_concurrency: {}}", "slo: {success: 1}"],
            "e.yaml:5: load.find: must hold one of max_rate and max_concurrency",
        ),
        (
            ["find: {max_concurrency: {start: 1.5}}", "slo: {success: 1}"],
            "e.yaml:5: load.find.max_concurrency.start: must be a whole number of requests in "
            "flight, not 1.5",
        ),
        (
            ["find: {max_rate: {start: 9, highest: 8}}", "slo: {success: 1}"],
            "e.yaml:5: load.find.max_rate.start: must be at most highest, 8, not 9",
        ),
        (
            ["find: {max_rate: {start: 1, lowest: 2}}", "slo: {success: 1}"],
            "e.yaml:5: load.find.max_rate.start: must be at least lowest, 2, not 1",
        ),
        (
            ["find: {max_rate: {lowest: 9, highest: 9}}", "slo: {success: 1}"],
            "e.yaml:5: load.find.max_rate.highest: must be more than lowest, 9, not 9",
        ),
        # The rest.
        (
            ["concurrency: 1", "name: a/b"],
            "e.yaml:6: load.name: must be a name of at most 40 letters, digits, `.`, `_` and `-` "
            "that begins with a letter, a digit or `_`, not `a/b`",
        ),
        (
            ["concurrency: 1", "api: openai"],
            "e.yaml:6: load.api: must be one of auto, tgi, completions, chat, not the string "
            "`openai`",
        ),
        (
            ["concurrency: 1", "request_timeout: 8d"],
            "e.yaml:6: load.request_timeout: must be a duration such as 500ms, 2s, 1.5m or 1h, or "
            "a number of seconds, not `8d`",
        ),
        (
            ["concurrency: 1", "sampling: {top_k: 0}"],
            "e.yaml:6: load.sampling.top_k: must be at least 1, not 0",
        ),
    ],
)
def test_what_is_refused(lines: list[str], message: str) -> None:
    assert said(*lines) == message


def test_loads_of_a_list_are_said_by_their_number() -> None:
    assert said(
        "- concurrency: 1", "- rate: 0", "- {concurrency: 1, slo: {x: 1}}"
    ).splitlines() == ["e.yaml:6: load.1.rate.0: must be more than 0, not 0"]
    assert said("- concurrency: 1", "- {concurrency: 2, find: max_rate}").splitlines() == [
        "e.yaml:6: load.1.find: stands beside `concurrency`: give one of concurrency, rate, ramp, "
        "trace, find in a load",
        "e.yaml:6: load.1.find: needs `slo`: a search finds the highest value that meets every SLO",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("load: 5", "e.yaml:1: load: must be a mapping, not `5`"),
        ("load: []", "e.yaml:1: load: must hold at least one value"),
        ("load: [a]", "e.yaml:1: load.0: must be a mapping, not the string `a`"),
    ],
)
def test_what_is_no_load(text: str, message: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        load(text + HEAD.replace("load:\n", "").replace("experiment", "\nexperiment"), "e.yaml")
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "load:\n", "batches: null\n"])
def test_an_experiment_of_nothing(text: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        load(HEAD.replace("load:\n", text), "e.yaml")
    assert str(caught.value) == ("e.yaml:1: holds neither `batches` nor `load`: give at least one")


def test_an_override_is_said_of_the_command_line() -> None:
    assert said("concurrency: 1", sets=("load.slo.ttft_p9=1s",)).startswith(
        "--set load.slo.ttft_p9=1s: `ttft_p9` is no metric"
    )
    assert said("concurrency: 1", sets=("load.rate=[1]",)).startswith(
        "--set load.rate=[1]: stands beside `concurrency`"
    )


WHOLE = """\
  name: all
  api: chat
  stream: false
  workload:
    output_tokens: {normal: {mean: 500, deviation: 100, lowest: 1, highest: 2000}}
    prompt_tokens: {values: [1000, 2000], weights: [1, 0.5]}
    shared_prefix: {tokens: 256, groups: 4}
    seed: 7
  find: {max_rate: {start: 1, highest: 64, tolerance: 5%, repeats: 3}}
  arrivals: gamma
  burstiness: 0.5
  arrival_seed: 3
  duration: 1.5m
  requests: 1000
  warmup: 10s
  cooldown: 5
  until: {ci: 2%, metric: ttft_p99}
  slo: {ttft_p99: 500ms, itl_p99: 0.05, success: 99.9%}
  request_timeout: 60
  max_in_flight: 100
  workers: 2
  tokenizer: tokenizer.json
  sampling: {do_sample: true, temperature: 0.7}
"""


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        "  ramp: [{from: 1, to: 20, for: 60s}, {rate: 20, for: 500ms}]\n",
        "  trace: {speed: 2}\n  workload: {file: {path: t.csv, kind: csv}}\n",
        "  - concurrency: [1, 8]\n    workload: {turns: {count: 3, think: 2s}}\n"
        "  - {name: b, find: max_concurrency, slo: {success: 1}}\n",
    ],
)
def test_what_a_run_file_stores_is_read_back(text: str) -> None:
    _, plan = load_plan(HEAD + text, "e.yaml")
    again = tuple(from_json(LoadTrial, to_json(trial)) for trial in plan.load_trials)
    assert again == plan.load_trials != ()
