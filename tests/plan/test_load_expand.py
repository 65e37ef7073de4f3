"""Loads to trials: ids, defaults, nanoseconds, digest."""

from __future__ import annotations

import json

import pytest

from tests.plan.test_expand import BLOOMZ
from tgi_bench.plan.experiment import json_schema
from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.plan.plan import Plan
from tgi_bench.trials.load import (
    ClosedLoop,
    Empirical,
    Extent,
    FileKind,
    Find,
    Fixed,
    LoadTrial,
    LogNormal,
    Normal,
    OpenLoop,
    Process,
    RatePart,
    SharedPrefix,
    Slo,
    Sought,
    TraceTimes,
    Turns,
    Uniform,
    Until,
    Workload,
    WorkloadFile,
)

HEAD = """\
experiment: e
model: org/model
server: {launcher: attach, url: "http://h:80"}
load:
"""
S = 10**9


def plan_of(*lines: str, head: str = HEAD) -> Plan:
    return load_plan(head + "".join(f"  {line}\n" for line in lines), "e.yaml")[1]


def one(*lines: str) -> LoadTrial:
    (trial,) = plan_of(*lines).load_trials
    return trial


def test_the_shortest_load() -> None:
    trial = one("concurrency: 8")
    assert trial == LoadTrial(
        trial_id="default/load-c8",
        deployment_id="default",
        spoken="auto",
        stream=True,
        workload=Workload(Fixed(512), Fixed(128), None, None, None, None),
        arrivals=ClosedLoop(8),
        extent=Extent(30 * S, None, 5 * S, 0, 0, 0, None),
        slos=(),
        find=None,
        sampling=trial.sampling,
        request_timeout_ns=60 * S,
        max_in_flight=None,
        workers=None,
        tokenizer=None,
    )
    assert not trial.sampling.do_sample


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["concurrency: [1, 64]"], ["load-c1", "load-c64"]),
        (["rate: [4, 0.5]"], ["load-poisson-r4", "load-poisson-r0.5"]),
        (["rate: 4", "arrivals: constant"], ["load-r4"]),
        (["rate: 4", "arrivals: gamma"], ["load-gamma-r4"]),
        (["rate: [1, 1.0000000001]"], ["load-poisson-r1", "load-poisson-r1.0000000001"]),
        (["rate: 4", "name: chat"], ["load-chat-poisson-r4"]),
        (["ramp: [{rate: 1, for: 1s}]"], ["load-ramp"]),
        (["trace: {}", "workload: {file: {path: a, kind: azure}}"], ["load-trace"]),
        (["find: max_rate", "slo: {success: 1}"], ["load-find-max_rate"]),
        (["find: max_concurrency", "slo: {success: 1}"], ["load-find-max_concurrency"]),
        (["- concurrency: 1", "- {concurrency: 2, name: b}"], ["load-c1", "load-b-c2"]),
    ],
)
def test_ids(lines: list[str], names: list[str]) -> None:
    assert [t.trial_id for t in plan_of(*lines).load_trials] == [f"default/{n}" for n in names]


def test_loads_go_by_deployment_beside_its_batches() -> None:
    _, plan = load_plan(BLOOMZ + "load: {concurrency: [1, 2]}\n", "e.yaml")
    assert len(plan.trials) == 20
    assert [t.trial_id for t in plan.load_trials][:3] == [
        "num_shard-1+quantize-none/load-c1",
        "num_shard-1+quantize-none/load-c2",
        "num_shard-2+quantize-none/load-c1",
    ]
    assert len({t.trial_id for t in plan.load_trials}) == 10


def test_loads_are_in_the_digest_where_there_are_any() -> None:
    def digest(load: str) -> str:
        return load_plan(BLOOMZ + load, "e.yaml")[1].digest

    assert digest("") == digest("load: null\n")
    assert digest("") == "a987cb52556e114df07cc4d6d2d0d1216b833efa5aca0c1adc23b84b643e75a0"
    digests = [
        digest("load: {concurrency: 1}\n"),
        digest("load: {concurrency: 2}\n"),
        digest("load: {concurrency: 1, slo: {success: 1}}\n"),
        digest("load: {rate: 1}\n"),
    ]
    assert len({digest(""), *digests}) == 5
    assert digest("load: [{concurrency: 1, duration: 30s}]\n") == digests[0]


@pytest.mark.parametrize(
    ("lines", "extent"),
    [
        (["concurrency: 8"], Extent(30 * S, None, 5 * S, 0, 0, 0, None)),
        (["concurrency: 8", "duration: 2s"], Extent(2 * S, None, 2 * S, 0, 0, 0, None)),
        (["concurrency: 8", "requests: 50"], Extent(None, 50, 0, 8, 0, 0, None)),
        (["concurrency: 8", "requests: 500"], Extent(None, 500, 0, 50, 0, 0, None)),
        (["rate: 8", "requests: 50"], Extent(None, 50, 0, 5, 0, 0, None)),
        (
            ["rate: 8", "requests: 50", "duration: 1m", "warmup: 0", "cooldown: 4"],
            Extent(60 * S, 50, 0, 0, 0, 4, None),
        ),
        (
            ["rate: 8", "warmup: 0s", "cooldown: 1.5s", "until: {ci: 2%, metric: itl_mean}"],
            Extent(30 * S, None, 0, 0, 1_500_000_000, 0, Until("itl_mean", 0.02)),
        ),
        (
            ["ramp: [{rate: 1, for: 10s}, {rate: 2, for: 20s}]", "warmup: 4s", "cooldown: 1s"],
            Extent(25 * S, None, 4 * S, 0, 1 * S, 0, None),
        ),
        (
            ["trace: {}", "workload: {file: {path: a, kind: azure}}"],
            Extent(None, None, 0, 0, 0, 0, None),
        ),
        (
            ["trace: {}", "workload: {file: {path: a, kind: azure}}", "requests: 9", "warmup: 2"],
            Extent(None, 9, 0, 2, 0, 0, None),
        ),
    ],
)
def test_how_long(lines: list[str], extent: Extent) -> None:
    assert one(*lines).extent == extent


def test_arrivals() -> None:
    assert one("rate: 4", "arrivals: gamma", "burstiness: 0.5", "arrival_seed: 9").arrivals == (
        OpenLoop(4.0, (), Process.GAMMA, 0.5, 9)
    )
    assert one("ramp: [{from: 1, to: 20, for: 60s}, {rate: 20, for: 30s}]").arrivals == OpenLoop(
        None,
        (RatePart(60 * S, 1.0, 20.0), RatePart(30 * S, 20.0, 20.0)),
        Process.POISSON,
        1.0,
        0,
    )
    file = "workload: {file: {path: a, kind: mooncake}}"
    assert one("trace: {speed: 2}", file).arrivals == TraceTimes(2.0)


@pytest.mark.parametrize(
    ("find", "expected", "arrivals"),
    [
        (
            "max_rate",
            Find(Sought.MAX_RATE, 1.0, 0.1, 1000.0, 0.05, 2),
            OpenLoop(1.0, (), Process.POISSON, 1.0, 0),
        ),
        (
            "{max_rate: }",
            Find(Sought.MAX_RATE, 1.0, 0.1, 1000.0, 0.05, 2),
            OpenLoop(1.0, (), Process.POISSON, 1.0, 0),
        ),
        (
            "max_concurrency",
            Find(Sought.MAX_CONCURRENCY, 1.0, 1.0, 1000.0, 0.05, 2),
            ClosedLoop(1),
        ),
        (
            "{max_concurrency: {start: 16, highest: 64, tolerance: 2%, repeats: 3}}",
            Find(Sought.MAX_CONCURRENCY, 16.0, 1.0, 64.0, 0.02, 3),
            ClosedLoop(16),
        ),
        (
            "{max_rate: {lowest: 5}}",
            Find(Sought.MAX_RATE, 5.0, 5.0, 1000.0, 0.05, 2),
            OpenLoop(5.0, (), Process.POISSON, 1.0, 0),
        ),
        (
            "{max_rate: {start: 0.01}}",
            Find(Sought.MAX_RATE, 0.01, 0.01, 1000.0, 0.05, 2),
            OpenLoop(0.01, (), Process.POISSON, 1.0, 0),
        ),
        (
            "{max_rate: {start: 2000}}",
            Find(Sought.MAX_RATE, 2000.0, 0.1, 2000.0, 0.05, 2),
            OpenLoop(2000.0, (), Process.POISSON, 1.0, 0),
        ),
    ],
)
def test_searches(find: str, expected: Find, arrivals: ClosedLoop | OpenLoop) -> None:
    trial = one(f"find: {find}", "slo: {success: 99.9%, ttft_p99: 500ms, itl_max: 0.05}")
    assert (trial.find, trial.arrivals) == (expected, arrivals)
    assert trial.slos == (
        Slo("success", 0.999),
        Slo("ttft_p99", 500_000_000),
        Slo("itl_max", 50_000_000),
    )


@pytest.mark.parametrize(
    ("keys", "workload"),
    [
        (
            "{prompt_tokens: {uniform: [100, 1000]}, "
            "output_tokens: {values: [1, 2], weights: [1, 0.5]}}",
            Workload(Uniform(100, 1000), Empirical((1, 2), (1.0, 0.5)), None, None, None, None),
        ),
        (
            "{prompt_tokens: {normal: {mean: 500, deviation: 100.5}}, "
            "output_tokens: {lognormal: {median: 300, sigma: 0.5, highest: 9000}}}",
            Workload(
                Normal(500.0, 100.5, 1, 902), LogNormal(300.0, 0.5, 1, 9000), None, None, None, None
            ),
        ),
        (
            "{output_tokens: {lognormal: {median: 100, sigma: 10}}, seed: 5}",
            Workload(Fixed(512), LogNormal(100.0, 10.0, 1, 10_000_000), None, None, None, 5),
        ),
        (
            "{file: {path: s.json, kind: sharegpt, shuffle: true}, output_tokens: 9, "
            "turns: {count: 4, think: 2s}}",
            Workload(
                None,
                Fixed(9),
                WorkloadFile("s.json", FileKind.SHAREGPT, True),
                None,
                Turns(Fixed(4), 2 * S),
                None,
            ),
        ),
        (
            "{file: p.jsonl}",
            Workload(None, None, WorkloadFile("p.jsonl", FileKind.JSONL, False), None, None, None),
        ),
        (
            "{shared_prefix: {tokens: 256, groups: 4}}",
            Workload(Fixed(512), Fixed(128), None, SharedPrefix(256, 4), None, None),
        ),
    ],
)
def test_workloads(keys: str, workload: Workload) -> None:
    assert one("concurrency: 1", f"workload: {keys}").workload == workload


def test_the_rest() -> None:
    trial = one(
        "rate: 1",
        "api: chat",
        "stream: false",
        "request_timeout: 500ms",
        "max_in_flight: 7",
        "workers: 2",
        "tokenizer: t.json",
        "quickack: true",
        "sampling: {do_sample: true, top_p: 0.9}",
    )
    assert (trial.spoken, trial.stream) == ("chat", False)
    assert trial.request_timeout_ns == 500_000_000
    assert (trial.max_in_flight, trial.workers, trial.tokenizer) == (7, 2, "t.json")
    assert trial.quickack
    assert not one("rate: 1").quickack
    assert (trial.sampling.do_sample, trial.sampling.top_p) == (True, 0.9)


def test_the_schema_takes_the_short_forms() -> None:
    schema = json.loads(json_schema())
    load = schema["$defs"]["LoadKeys"]["properties"]
    assert {"type": "string"} in schema["$defs"]["Workload"]["properties"]["file"]["anyOf"]
    assert any(form.get("type") == "string" for form in load["find"]["anyOf"])
    assert [form["type"] for form in load["rate"]["anyOf"][0]["anyOf"]] == ["number", "array"]
    assert set(schema["$defs"]["RampPartKeys"]["properties"]) == {"rate", "from", "to", "for"}
    assert "batches" not in schema["$defs"]["Experiment"]["required"]
