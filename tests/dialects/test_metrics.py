"""What recorded servers count of their caches in /metrics, and loads that are told so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.dialects.recorded_http import Exchange, connection
from tests.drive.http_peer import Asked
from tests.drive.loads import counted as so_many
from tests.drive.loads import prepared, send_prepared, trial
from tests.drive.replayer import Pick, Replayer, server_of
from tgi_bench.dialects.metrics import between, counted
from tgi_bench.drive.preparation import LoadTarget, prepare
from tgi_bench.load_observation import CacheCounters
from tgi_bench.trials.load import ClosedLoop

VLLM = "vllm-0.32.0"
LLAMACPP = "llamacpp-xllamacpp-2026.10.11549"
SGLANG = """sglang:prompt_tokens_total{model_name="m",is_streaming="true"} 400.0
sglang:prompt_tokens_total{model_name="m",is_streaming="false"} 12.0
sglang:cached_tokens_total{model_name="m",cache_source="device"} 300.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 7.0
"""


def metrics(server: str, name: str) -> str:
    (exchange,) = connection(server, name)
    return exchange.reply.partition(b"\r\n\r\n")[2].decode()


@pytest.mark.parametrize(
    ("server", "said", "source"),
    [
        (VLLM, (2692, 1536), "/metrics: vllm:prompt_tokens_cached_total"),
        # llama.cpp counts prompts without what was cached: 931 more of them
        (LLAMACPP, (931 + 1761, 1761), "/metrics: llamacpp:prompt_tokens_cached_total"),
    ],
)
def test_what_seven_requests_took_from_a_cache(
    server: str, said: tuple[int, int], source: str
) -> None:
    before = counted(metrics(server, "cache-metrics-before-001"))
    after = counted(metrics(server, "cache-metrics-after-001"))
    assert before is not None
    assert between(before, after) == CacheCounters(*said, source)


def test_labels_are_summed() -> None:
    assert counted(SGLANG) == CacheCounters(412, 307, "/metrics: sglang:cached_tokens_total")


@pytest.mark.parametrize("folder", ["tgi-3.3.7", "tgi-2.0.4"])
def test_tgi_counts_nothing_of_a_cache(folder: str) -> None:
    assert counted(metrics(folder, "metrics")) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vllm:prompt_tokens_total 1",
        SGLANG.replace("400.0", "nan"),
        SGLANG.replace("400.0", "-1"),
        SGLANG.replace("400.0", "1e99"),
        SGLANG.replace("400.0", "1.2.3"),
    ],
)
def test_what_does_not_tell(text: str) -> None:
    assert counted(text) is None


def test_a_server_that_began_anew_tells_nothing() -> None:
    before = CacheCounters(100, 10, "a")
    assert between(before, CacheCounters(90, 12, "a")) is None
    assert between(before, CacheCounters(110, 9, "a")) is None
    assert between(before, CacheCounters(110, 30, "a")) is None
    assert between(before, CacheCounters(110, 12, "b")) is None
    assert between(before, None) is None
    assert between(before, CacheCounters(100, 10, "a")) == CacheCounters(0, 0, "a")


def with_metrics(server: str) -> Pick:
    """That server; /metrics as before and after the requests that its cache answered."""
    usual = server_of(server)
    names = ("cache-metrics-before-001", "cache-metrics-after-001")
    answers = iter([connection(server, name)[0] for name in names])

    def pick(asked: Asked) -> Exchange | None:
        found = next(answers, None) if asked.path == "/metrics" else usual(asked)
        return None if found is None else replace(found, ends="")

    return pick


@pytest.mark.parametrize("server", [VLLM, LLAMACPP])
def test_metrics_are_asked_around_a_stage(server: str) -> None:
    asked = trial(ClosedLoop(2), so_many(6), spoken="completions")
    with Replayer(with_metrics(server)) as replayed:
        stage, seen = send_prepared(prepare(LoadTarget(replayed.url, "", "", ()), asked))
        paths = [one.path for one in replayed.asked]
    first, last = (place for place, path in enumerate(paths) if path == "/metrics")
    loads = [place for place, one in enumerate(replayed.asked) if "x-request-id" in one.headers]
    assert (first, last) == (loads[0] - 1, loads[-1] + 1)
    assert len(seen) == len(loads) == 6
    assert stage.conditions.cache is not None
    assert stage.conditions.cache.prompt_tokens == 2692


def test_a_server_without_metrics_is_asked_once_a_stage() -> None:
    asked = trial(ClosedLoop(2), so_many(4), spoken="completions")
    with Replayer(server_of("transformers-serve-5.23.0")) as replayed:
        ready = prepare(LoadTarget(replayed.url, "", "", ()), asked)
        stage, _ = send_prepared(ready)
        assert [one.path for one in replayed.asked].count("/metrics") == 1
    assert stage.conditions.cache is None
    assert prepared("http://x", asked).cache_counted is None
