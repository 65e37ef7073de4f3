"""What is found out of real servers, by their recorded answers."""

from __future__ import annotations

import pytest

from tests.dialects.recorded_http import Exchange, connection
from tests.drive.http_peer import Asked
from tests.drive.replayer import Pick, Replayer, server_of
from tgi_bench.ask import Asking
from tgi_bench.dialects import speaking
from tgi_bench.dialects.abilities import FoundServer, find_out
from tgi_bench.errors import InputError

VLLM = "vllm-0.32.0"
LLAMACPP = "llamacpp-xllamacpp-2026.10.11549"
TRANSFORMERS = "transformers-serve-5.23.0"
LITELLM = "litellm-1.106.2"
TGI = "tgi-3.3.7"
KEYED = Asking((("authorization", "Bearer k"),))


def found(
    pick: Pick, spoken: str = "chat", model: str | None = None, asking: Asking = KEYED
) -> tuple[FoundServer, list[Asked]]:
    with Replayer(pick) as replayed:
        return find_out(replayed.url, "", speaking(spoken), model, asking), replayed.asked


def refused(pick: Pick, model: str | None = None, asking: Asking = KEYED) -> str:
    with Replayer(pick) as replayed, pytest.raises(InputError) as caught:
        find_out(replayed.url, "", speaking("chat"), model, asking)
    said = str(caught.value)
    assert "\n" not in said
    return said


def as_said(server: str, name: str, **paths: str) -> Pick:
    """Of that server, with this answer to every request for a text, and others by their path."""
    usual = server_of(server)
    answers = {path: connection(server, other)[0] for path, other in paths.items()}

    def pick(asked: Asked) -> Exchange | None:
        key = asked.path.strip("/").replace("/", "_")
        if key in answers:
            return answers[key]
        return connection(server, name)[0] if asked.method == "POST" else usual(asked)

    return pick


def posts(asked: list[Asked]) -> list[set[str]]:
    """The keys of each request for a text."""
    return [one.body.keys() - {"messages", "model"} for one in asked if "messages" in one.body]


def test_vllm() -> None:
    seen, asked = found(server_of(VLLM))
    able, identity = seen.abilities, seen.identity
    assert (able.engine, able.model, able.max_input_tokens) == ("vllm", "/data/tiny-h32", 2047)
    assert (able.usage, able.counts_each) == (True, "continuous_usage_stats")
    assert able.tokenize_path == "/tokenize"
    assert identity.versions == (
        ("/version", "0.32.0"),
        ("system_fingerprint", "vllm-0.32.0-a8cc0c75"),
    )
    assert identity.own_names == ("/data/tiny-h32",)
    assert identity.sentence == ("vllm, /version 0.32.0, system_fingerprint vllm-0.32.0-a8cc0c75")
    assert asked[2].path == "/version"


def test_vllm_by_another_name_says_its_path_too() -> None:
    seen, _ = found(
        as_said(VLLM, "prompt-tokens-details-repeat-1-001", v1_models="served-name-models-001")
    )
    assert seen.abilities.model == "tiny"
    assert seen.identity.own_names == ("tiny", "/data/tiny-h32")


def test_llamacpp() -> None:
    seen, asked = found(as_said(LLAMACPP, "chat-stream-timings_per_token-001"))
    able, identity = seen.abilities, seen.identity
    assert (able.engine, able.max_input_tokens) == ("llamacpp", 2047)
    assert (able.counts_each, able.ignores_eos) == ("timings_per_token", "ignore_eos")
    assert identity.versions == (("build_info", "b0-unknown"), ("system_fingerprint", "b0-unknown"))
    assert identity.own_names == ("/data/tiny/tiny.gguf",)
    assert "timings_per_token" in posts(asked)[0]


def test_llamacpp_answers_with_its_own_name() -> None:
    pick = as_said(LLAMACPP, "alias-chat-other-name-001", v1_models="alias-models-001")
    seen, _ = found(pick, model="something-else")
    assert seen.abilities.model == "tiny-alias"
    assert "tiny-alias" in seen.identity.own_names


def test_counts_of_each_event_that_are_not_there_are_not_counted_on() -> None:
    """llama.cpp and litellm take continuous_usage_stats without a word."""
    seen, _ = found(as_said(LLAMACPP, "chat-stream-usage-001"))
    assert (seen.abilities.usage, seen.abilities.counts_each) == (True, None)
    seen, _ = found(server_of(LITELLM), model="tiny")
    assert (seen.abilities.usage, seen.abilities.counts_each) == (True, None)


def test_litellm() -> None:
    seen, asked = found(server_of(LITELLM), model="tiny")
    able, identity = seen.abilities, seen.identity
    assert (able.engine, able.model) == ("litellm", "tiny")
    assert ("x-litellm-version", "1.106.2") in identity.versions
    assert ("system_fingerprint", "b0-unknown") in identity.versions
    assert identity.own_names == ("tiny", "tiny-vllm")
    assert all(one.path != "/health" for one in asked)  # it asks every backend: 5.5 s


def test_litellm_lists_several_models() -> None:
    said = refused(server_of(LITELLM))
    assert "serves tiny, tiny-vllm: name one of them as the model" in said
    assert "--model" in said
    said = refused(server_of(LITELLM), model="tinny")
    assert "does not serve tinny; it serves tiny, tiny-vllm: name one of them" in said


@pytest.mark.parametrize(
    ("asking", "answer", "models", "hint"),
    [
        (Asking(), "key-none-chat-001", "key-none-models-001", "--api-key-env"),
        (KEYED, "key-wrong-chat-001", "get-models-001", "it may want another API key"),
        (Asking(), "key-wrong-chat-001", "get-models-001", "--api-key-env"),
    ],
)
def test_litellm_without_a_right_key(asking: Asking, answer: str, models: str, hint: str) -> None:
    """Without its database it says 500 or 400, and nothing of a key."""
    pick = as_said(LITELLM, answer, v1_models=models)
    said = refused(pick, model="tiny", asking=asking)
    what = "Internal Server Error" if answer == "key-none-chat-001" else "No connected db."
    assert what in said
    assert hint in said


@pytest.mark.parametrize(
    ("server", "models"), [(VLLM, "key-none-models-001"), (LLAMACPP, "key-none-models-001")]
)
def test_a_key_that_is_missing(server: str, models: str) -> None:
    said = refused(as_said(server, "key-none-chat-001", v1_models=models), asking=Asking())
    assert "wants an API key: HTTP 401" in said
    assert "--api-key-env" in said


@pytest.mark.parametrize("models", ["get-models-001", "get-models-empty-cache-001"])
def test_transformers_serve_refuses_what_it_does_not_know(models: str) -> None:
    """Every such key is in one refusal: asked again once without them."""
    refusal = connection(TRANSFORMERS, "chat-stream-ignore_eos-001")[0]
    strange = ("ignore_eos", "min_tokens", "truncate_prompt_tokens")
    usual = as_said(TRANSFORMERS, "chat-stream-usage-001", v1_models=models)

    def pick(asked: Asked) -> Exchange | None:
        if any(key in asked.body for key in strange):
            named = ", ".join(repr(key) for key in strange if key in asked.body).encode()
            reply = refusal.reply.replace(b"'ignore_eos'", named)
            size = reply.partition(b"\r\n\r\n")[2]
            reply = reply.replace(b"content-length: 61", b"content-length: %d" % len(size))
            return Exchange(refusal.request, (reply,), "")
        return usual(asked)

    seen, asked = found(pick)
    able = seen.abilities
    assert (able.usage, able.truncates, able.ignores_eos, able.counts_each) == (
        True,
        False,
        None,
        None,
    )
    assert (able.engine, able.model) == ("", "")
    assert seen.identity.own_names == ("/data/tiny@main",)
    assert not any("model" in keys for keys in posts(asked))  # "" is another name than its own
    assert len(posts(asked)) == 3  # ignore_eos and the cut at once, then min_tokens, then neither
    assert seen.identity.unlisted.startswith("/v1/models says no model: ")


def test_transformers_serve_wants_another_name() -> None:
    pick = as_said(TRANSFORMERS, "error-unknown-model-001", v1_models="get-models-001")
    said = refused(pick)
    assert "Server is pinned to '/data/tiny'" in said
    assert "/v1/models says no model: HTTP 500: Internal Server Error" in said
    assert "--model" in said


def test_tgi() -> None:
    pick = server_of(TGI, "generate-plain")
    seen, _ = found(pick, "auto")
    assert (seen.abilities.dialect.name, seen.abilities.engine) == ("tgi", "tgi")
    assert seen.identity.own_names == ("/data/tiny-gpt2",)
    assert ("/info version", "3.3.6-dev0") in seen.identity.versions
    assert seen.identity.versions[1][0] == "/info sha"
    seen, _ = found(pick, "chat")
    assert ("system_fingerprint", "3.3.6-dev0-native") in seen.identity.versions
    assert seen.abilities.model == "tgi"
