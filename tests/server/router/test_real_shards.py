"""Requests to the router over the embedded server's own shards."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

import httpx
import pytest
from text_generation import Client  # type: ignore[import-untyped]

from tests.server.router.real_ranks import FLASH, PADDED, real
from tests.server.router.serving import in_thread
from tgi_bench.server.config import Version

# The package calls pydantic's `dict`, which pydantic 2 deprecates in favour of `model_dump`.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The `dict` method is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)


@pytest.mark.parametrize(
    ("version", "model"),
    [((0, 9, 4), PADDED), ((2, 0, 4), FLASH), ((3, 3, 7), PADDED), ((3, 3, 7), FLASH)],
)
def test_generate_and_stream(version: Version, model: str) -> None:
    with real(version, model) as running:
        client = Client(running.url)
        whole = client.generate("one two", max_new_tokens=5)
        assert whole.details.generated_tokens == 5
        assert whole.generated_text == "".join(token.text for token in whole.details.tokens)
        events = list(client.generate_stream("one two", max_new_tokens=5))
        # Greedy: the same prompt gives the same tokens.
        assert events[-1].generated_text == whole.generated_text
        both = client.generate("one", max_new_tokens=3, best_of=2, do_sample=True)
        assert len(both.details.best_of_sequences) == 1


def test_streams_share_their_decode_steps() -> None:
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 30}}

    def ask() -> None:
        assert httpx.post(running.url + "/generate", json=body).status_code == 200

    with real((3, 3, 7), FLASH) as running:
        with ExitStack() as asking:
            for _ in range(8):
                asking.enter_context(in_thread(ask))
        text = httpx.get(running.url + "/metrics").text
    steps = next(
        float(line.split()[1])
        for line in text.splitlines()
        if line.startswith('tgi_batch_inference_count{method="decode"}')
    )
    assert 29 <= steps < 8 * 29


def test_a_killed_rank_ends_the_stream_and_health() -> None:
    body = {"inputs": "a", "parameters": {"max_new_tokens": 39}}
    with real((3, 3, 7), FLASH) as running:
        # Stopped first, so that the step is under way however slow this machine is.
        os.kill(running.pids[1], signal.SIGSTOP)
        with httpx.stream("POST", running.url + "/generate_stream", json=body) as response:
            assert response.status_code == 200
            os.kill(running.pids[1], signal.SIGKILL)
            last = [line for line in response.iter_lines() if line][-1]
        assert '"error_type":"generation"' in last
        assert httpx.get(running.url + "/health").status_code == 503
