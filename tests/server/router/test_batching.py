"""Continuous batching, seen from the shards."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import httpx
import pytest

from tests.server.router.scripted_shard import Script
from tests.server.router.serving import Served, in_thread, serve, until


def waits(served: Served, requests: int) -> bool:
    """Whether so many requests are in the queue."""
    return served.metric("tgi_queue_size") == requests


def ask(served: Served, inputs: str, new: int) -> None:
    body = {"inputs": inputs, "parameters": {"max_new_tokens": new}}
    assert served.post("/generate", body).status_code == 200


def test_a_second_stream_joins_the_running_batch() -> None:
    script = Script(held=True)
    with serve(script=script) as served:
        with in_thread(lambda: ask(served, "a", 6)):
            until(lambda: len(script.batches) == 1)
            with in_thread(lambda: ask(served, "b", 6)):
                until(lambda: served.metric("tgi_queue_size") == 1)
                script.held = False
        assert served.metric('tgi_batch_concat{reason="backpressure"}') == 1
        assert served.metric('tgi_batch_inference_count{method="prefill"}') == 2
    # One decode step each of 2 x 5 alone; together the first step joins both batches.
    assert script.decodes[0] == (1, 1)
    assert len(script.decodes) == 5
    assert set(script.decodes[1:]) == {(2,)}


def test_requests_that_wait_together_are_prefilled_together() -> None:
    script = Script(held=True)
    with ExitStack() as running:
        served = running.enter_context(serve(script=script, max_batch_size=2))
        running.enter_context(in_thread(lambda: ask(served, "a", 1)))
        until(lambda: len(script.batches) == 1)
        for waiting, inputs in enumerate("bcd", start=1):
            running.enter_context(in_thread(partial(ask, served, inputs, 1)))
            until(partial(waits, served, waiting))
        script.held = False
    assert [batch.size for batch in script.batches] == [1, 2, 1]


def test_a_request_waits_for_room() -> None:
    """Each request sets 2 + 28 of 40 tokens aside: one at a time."""
    script = Script(held=True)
    with serve(script=script, max_batch_total_tokens=40) as served:
        with in_thread(lambda: ask(served, "a b", 28)):
            until(lambda: len(script.batches) == 1)
            with in_thread(lambda: ask(served, "c d", 28)):
                until(lambda: served.metric("tgi_queue_size") == 1)
                script.held = False
        assert served.metric("tgi_batch_max_total_tokens") == 40
    assert [batch.max_tokens for batch in script.batches] == [30, 30]
    assert script.decodes == [(1,)] * 54


def test_what_a_flash_class_says_replaces_what_the_user_said() -> None:
    with serve(script=Script(room=4096), max_batch_total_tokens=400) as served:
        assert served.metric("tgi_batch_max_total_tokens") == 4096
        assert "`--max-batch-total-tokens` is deprecated" in served.log
        assert "Setting max batch total tokens to 4096" in served.log


def test_few_waiting_requests_interrupt_after_max_waiting_tokens() -> None:
    script = Script(held=True)
    with serve(script=script, waiting_served_ratio=100.0, max_waiting_tokens=3) as served:
        with in_thread(lambda: ask(served, "a", 8)):
            until(lambda: len(script.batches) == 1)
            with in_thread(lambda: ask(served, "b", 2)):
                until(lambda: served.metric("tgi_queue_size") == 1)
                script.held = False
        assert served.metric('tgi_batch_concat{reason="wait_exceeded"}') == 1
    # The count starts at 1 after a prefill: the third look finds it at 3.
    assert script.decodes[:3] == [(1,), (1,), (1, 1)]


def test_who_ends_is_filtered_out_by_the_shard_or_the_router() -> None:
    script = Script(held=True)
    with serve(script=script) as served:
        with in_thread(lambda: ask(served, "a", 2)):
            until(lambda: len(script.batches) == 1)
            with in_thread(lambda: ask(served, "b", 4)):
                until(lambda: served.metric("tgi_queue_size") == 1)
                script.held = False
        until(lambda: served.metric("tgi_batch_current_size") == 0)
    assert script.decodes == [(1, 1), (1,), (1,)]


def test_a_client_that_leaves_frees_its_place() -> None:
    script = Script(held=True)
    with serve(script=script, max_concurrent_requests=2) as served:
        with in_thread(lambda: ask(served, "stays", 4)):
            until(lambda: len(script.batches) == 1)
            body = {"inputs": "leaves", "parameters": {"max_new_tokens": 30}}
            with httpx.stream("POST", served.url + "/generate_stream", json=body) as response:
                until(lambda: served.metric("tgi_queue_size") == 1)
                script.held = False
                assert next(response.iter_lines()).startswith("data: ")
                script.held = True
            script.held = False
        until(lambda: served.metric("tgi_batch_current_size") == 0)
        assert len(script.decodes) < 29
        # Both permits are free again.
        with in_thread(lambda: ask(served, "a", 2)):
            ask(served, "b", 2)


def test_a_client_that_leaves_the_queue_is_never_batched() -> None:
    script = Script(held=True)
    with serve(script=script) as served, in_thread(lambda: ask(served, "a", 2)):
        until(lambda: len(script.batches) == 1)
        body = {"inputs": "b", "parameters": {"max_new_tokens": 30}}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(served.url + "/generate", json=body, timeout=0.2)
        script.held = False
    assert [request.text for batch in script.batches for request in batch.requests] == ["a"]


def test_the_batch_goes_on_without_the_one_that_left() -> None:
    script = Script(held=True)
    with serve(script=script) as served:
        body = {"inputs": "leaves", "parameters": {"max_new_tokens": 30}}
        with httpx.stream("POST", served.url + "/generate_stream", json=body) as leaver:
            until(lambda: len(script.batches) == 1)
            with in_thread(lambda: ask(served, "stays", 20)):
                until(lambda: served.metric("tgi_queue_size") == 1)
                script.step_s = 0.01
                script.held = False
                until(lambda: (2,) in script.decodes)
                leaver.close()
    stays = script.batches[1].requests[0].id
    assert script.filters == [(stays,)]
    # 19 steps for the one that stays; the other would have needed 29.
    assert len(script.decodes) == 19
    assert script.decodes[-1] == (1,)


def test_a_dead_rank_ends_its_streams_and_health() -> None:
    script = Script(held=True)
    with serve(script=script) as served:
        assert served.get("/health").status_code == 200
        body = {"inputs": "a", "parameters": {"max_new_tokens": 3}}
        with httpx.stream("POST", served.url + "/generate_stream", json=body) as response:
            until(lambda: len(script.batches) == 1)
            served.kill_rank(1)
            script.held = False
            assert response.status_code == 200
            lines = [line for line in response.iter_lines() if line]
        assert '"error_type":"generation"' in lines[-1]
        assert "Request failed during generation: Server error: " in lines[-1]
        health = served.get("/health")
        assert health.status_code == 503
        assert health.json() == {"error": "unhealthy", "error_type": "healthcheck"}
        assert served.post("/generate", {"inputs": "a"}).status_code == 424
        assert "ERROR text_generation_router: Server error: " in served.log


def test_a_failed_decode_loses_its_requests_only() -> None:
    script = Script(held=True)
    with serve(script=script) as served:
        body = {"inputs": "a", "parameters": {"max_new_tokens": 9}}
        with httpx.stream("POST", served.url + "/generate_stream", json=body) as response:
            until(lambda: len(script.batches) == 1)
            script.step_s = 0.02
            script.held = False
            until(lambda: len(script.decodes) >= 1)
            script.fail = "boom"
            lines = [line for line in response.iter_lines() if line]
        assert '"token"' in lines[0]
        assert "boom" in lines[-1]
        script.fail = None
        ask(served, "b", 2)
        assert served.metric('tgi_batch_inference_failure{method="decode"}') == 1
