"""The text-generation package as a client."""

from __future__ import annotations

import pytest
from text_generation import Client  # type: ignore[import-untyped]
from text_generation.errors import (  # type: ignore[import-untyped]
    GenerationError,
    OverloadedError,
    ValidationError,
)

from tests.server.router.scripted_shard import Script
from tests.server.router.serving import in_thread, serve, until
from tgi_bench.server.config import Version

VERSIONS = [(0, 9, 4), (1, 4, 5), (2, 0, 4), (3, 3, 7)]

# The package calls pydantic's `dict`, which pydantic 2 deprecates in favour of `model_dump`.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The `dict` method is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)


@pytest.mark.parametrize("version", VERSIONS)
def test_generate(version: Version) -> None:
    with serve(version) as served:
        response = Client(served.url).generate("a b", max_new_tokens=3)
    assert response.generated_text == " t0 t1 t2"
    assert response.details.generated_tokens == 3
    assert response.details.finish_reason.value == "length"
    assert [token.text for token in response.details.tokens] == [" t0", " t1", " t2"]
    assert response.details.seed is None
    assert response.details.prefill == []


@pytest.mark.parametrize("version", VERSIONS)
def test_generate_stream(version: Version) -> None:
    with serve(version) as served:
        events = list(Client(served.url).generate_stream("a b", max_new_tokens=3))
    assert [event.token.text for event in events] == [" t0", " t1", " t2"]
    assert [event.generated_text for event in events] == [None, None, " t0 t1 t2"]
    assert events[-1].details is not None
    assert events[-1].details.generated_tokens == 3


def test_one_new_token_needs_no_decode_step() -> None:
    with serve() as served:
        response = Client(served.url).generate("a", max_new_tokens=1)
    assert response.details.generated_tokens == 1
    assert served.script.decodes == []


def test_best_of_returns_the_most_likely_and_the_other() -> None:
    with serve() as served:
        response = Client(served.url).generate("a", best_of=2, do_sample=True, max_new_tokens=2)
        assert served.metric("tgi_request_count") == 1
        assert served.metric("tgi_request_success") == 1
    others = response.details.best_of_sequences
    assert others is not None
    assert len(others) == 1
    assert response.details.seed is not None
    assert others[0].seed != response.details.seed
    # The scripted rank gives a request's tokens -0.5 - id.
    assert response.details.tokens[0].logprob == -0.5
    assert others[0].tokens[0].logprob == -1.5


def test_details_of_the_prompt_and_alternatives() -> None:
    with serve() as served:
        response = Client(served.url).generate(
            "a b", max_new_tokens=2, decoder_input_details=True, top_n_tokens=2, seed=5
        )
    assert [(token.text, token.logprob) for token in response.details.prefill] == [
        ("a", None),
        (" b", -0.25),
    ]
    assert response.details.top_tokens is not None
    assert [[t.text for t in tokens] for tokens in response.details.top_tokens] == [
        [" o0", " o1"],
        [" o0", " o1"],
    ]


def test_return_full_text() -> None:
    with serve() as served:
        response = Client(served.url).generate("a b", max_new_tokens=1, return_full_text=True)
    assert response.generated_text == "a b t0"


def test_validation_error() -> None:
    with serve() as served:
        client = Client(served.url)
        with pytest.raises(ValidationError, match="must have less than 20 tokens"):
            client.generate(" a" * 21, max_new_tokens=1)
        with pytest.raises(ValidationError, match="must have less than 20 tokens"):
            list(client.generate_stream(" a" * 21, max_new_tokens=1))
        assert served.metric('tgi_request_failure{err="validation"}') == 2


def test_overloaded_error_at_once() -> None:
    script = Script(held=True)
    with serve(script=script, max_concurrent_requests=1) as served:
        client = Client(served.url)
        with in_thread(lambda: client.generate("a", max_new_tokens=2)):
            until(lambda: len(script.batches) == 1)
            with pytest.raises(OverloadedError, match="Model is overloaded"):
                client.generate("b")
            with pytest.raises(OverloadedError, match="Model is overloaded"):
                list(client.generate_stream("b"))
            assert served.post("/generate", {"inputs": "b"}).status_code == 429
            script.held = False
        assert client.generate("a", max_new_tokens=1).generated_text == " t0"


def test_best_of_takes_as_many_permits() -> None:
    with serve(max_concurrent_requests=1) as served:
        client = Client(served.url)
        with pytest.raises(OverloadedError):
            client.generate("a", best_of=2, do_sample=True, max_new_tokens=2)
        assert client.generate("a", max_new_tokens=1).generated_text == " t0"


def test_generation_error() -> None:
    script = Script()
    with serve(script=script) as served:
        client = Client(served.url)
        script.fail = "CUDA out of memory. Tried to allocate 1.00 GiB"
        told = "Request failed during generation: Server error: CUDA out of memory"
        with pytest.raises(GenerationError, match=told):
            client.generate("a", max_new_tokens=2)
        with pytest.raises(GenerationError, match=told):
            list(client.generate_stream("a", max_new_tokens=2))
        assert served.post("/generate", {"inputs": "b"}).status_code == 424
        script.fail = None
        assert client.generate("a", max_new_tokens=1).generated_text == " t0"
        assert served.metric('tgi_batch_inference_failure{method="prefill"}') == 3
    assert script.clears[1:] == [0, 1, 2]


def test_chat() -> None:
    with serve() as served:
        client = Client(served.url)
        answer = client.chat([{"role": "user", "content": "a"}], max_tokens=2)
    assert answer.choices[0].message.content == " t0 t1"
    assert answer.usage["completion_tokens"] == 2
