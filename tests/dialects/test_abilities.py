"""What servers are found to be able to do."""

from __future__ import annotations

import socket

import pytest

from tests.dialects.fake_engines import Engine, serve
from tests.launch.recorded_server import recorded
from tests.server.router import serving
from tgi_bench.ask import Asking
from tgi_bench.dialects import speaking
from tgi_bench.dialects.abilities import find_out
from tgi_bench.dialects.dialect import Abilities
from tgi_bench.errors import InputError
from tgi_bench.server.config import Version

VLLM, LLAMACPP = "vllm-0.32.0", "llamacpp-xllamacpp-2026.10.11549"


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        # TGI's /info, /metrics and /v1/models are open: /tokenize is the first that is not.
        ("tgi-3.3.7", ("info-no-api-key", "models-no-api-key", "tokenize-no-api-key")),
        (VLLM, ("get-info-001", "key-none-models-001")),
        (LLAMACPP, ("get-info-001", "key-none-models-001")),
    ],
)
@pytest.mark.parametrize("key", [(), (("X-Api-Key", "wrong"),)])
def test_a_real_server_that_wants_a_key(
    folder: str, names: tuple[str, ...], key: tuple[tuple[str, str], ...]
) -> None:
    with recorded(folder, *names) as server, pytest.raises(InputError) as caught:
        find_out(server.url, "", speaking("auto"), None, Asking(headers=key))
    another = "another" if key else "an"
    assert str(caught.value).startswith(f"{server.url} wants {another} API key: HTTP 401")
    assert "server.env (`tgi-bench load`: --api-key-env)" in str(caught.value)
    assert "server.headers (--header)" in str(caught.value)
    assert "wrong" not in str(caught.value)


def found(
    engine: Engine, spoken: str = "auto", model: str | None = None, name: str = ""
) -> Abilities:
    with serve(engine) as url:
        return find_out(url, name, speaking(spoken), model, Asking()).abilities


@pytest.mark.parametrize(
    ("version", "tokenizes"), [((0, 9, 4), False), ((2, 0, 4), True), ((3, 3, 7), True)]
)
@pytest.mark.parametrize("spoken", ["auto", "tgi"])
def test_tgi(version: Version, tokenizes: bool, spoken: str) -> None:
    with serving.serve(version) as served:
        able = find_out(served.url, "", speaking(spoken), None, Asking()).abilities
    path = "/tokenize" if tokenizes else None
    assert able == Abilities(speaking("tgi")[0], "", "tgi", True, path, max_input_tokens=20)


@pytest.mark.parametrize("spoken", ["completions", "chat"])
def test_openai_api_of_tgi(spoken: str) -> None:
    with serving.serve((3, 3, 7)) as served:
        able = find_out(served.url, "tgi", speaking(spoken), "any", Asking()).abilities
    assert able == Abilities(speaking(spoken)[0], "tgi", "tgi", False, "/tokenize", None, True, 20)


def test_tgi_without_the_openai_api() -> None:
    with (
        serving.serve((0, 9, 4)) as served,
        pytest.raises(InputError, match=r"/v1/completions is not there: HTTP 404"),
    ):
        find_out(served.url, "", speaking("completions"), None, Asking())


def test_vllm() -> None:
    able = found(Engine(cuts=True))
    assert able == Abilities(
        speaking("completions")[0], "served", "vllm", True, "/tokenize", "ignore_eos", True, 99
    )


@pytest.mark.parametrize(
    ("engine", "spoken", "said"),
    [
        # It ignores what it does not know.
        (Engine(owner="somebody"), "auto", ("completions", "", False, True, "ignore_eos")),
        (Engine(cuts=True), "chat", ("chat", "vllm", True, True, "ignore_eos")),
        (Engine(cuts=False), "chat", ("chat", "vllm", False, True, "ignore_eos")),
        (
            Engine(statuses={"/v1/completions": 404}),
            "auto",
            ("chat", "vllm", False, True, "ignore_eos"),
        ),
        (
            Engine(cuts=True, usage=False),
            "auto",
            ("completions", "vllm", False, False, "ignore_eos"),
        ),
    ],
)
def test_what_is_seen_to_work(engine: Engine, spoken: str, said: tuple[object, ...]) -> None:
    able = found(engine, spoken)
    what = (able.dialect.name, able.engine, able.truncates, able.usage, able.ignores_eos)
    assert what == said


@pytest.mark.parametrize(
    ("refuses", "usage", "truncates", "ignores_eos"),
    [
        ({"truncate_prompt_tokens"}, True, False, "ignore_eos"),
        ({"ignore_eos"}, True, True, "min_tokens"),
        ({"ignore_eos", "min_tokens"}, True, True, None),
        ({"stream_options"}, False, False, "ignore_eos"),
        (
            {"stream_options", "ignore_eos", "min_tokens", "truncate_prompt_tokens"},
            False,
            False,
            None,
        ),
    ],
)
def test_keys_that_are_refused(
    refuses: set[str], usage: bool, truncates: bool, ignores_eos: str | None
) -> None:
    able = found(Engine(owner="", cuts=True, refuses=frozenset(refuses)))
    assert (able.usage, able.truncates, able.ignores_eos) == (usage, truncates, ignores_eos)


@pytest.mark.parametrize(
    ("engine", "name", "most"),
    [
        (Engine(owner="sglang"), "sglang", 99),
        (
            Engine(
                owner="llamacpp",
                gets={"/props": {"default_generation_settings": {"n_ctx": 4096}}},
            ),
            "llamacpp",
            4095,
        ),
        (Engine(owner="x", gets={"/get_model_info": {"model_path": "m"}}), "sglang", 99),
        (Engine(owner="x", gets={"/version": {"version": "0.9.1"}}), "vllm", 99),
        (Engine(owner="x"), "", 99),
    ],
)
def test_engines_are_told_apart(engine: Engine, name: str, most: int) -> None:
    able = found(engine)
    assert (able.engine, able.max_input_tokens) == (name, most)


def test_a_named_engine_is_not_asked_for() -> None:
    assert found(Engine(owner="somebody"), name="sglang").engine == "sglang"


@pytest.mark.parametrize(
    ("models", "asked", "name"),
    [
        (("a",), None, "a"),
        (("a",), "a", "a"),
        (("a",), "/models/a", "a"),
        (("a", "b"), "b", "b"),
        ((), "c", "c"),
        ((), None, ""),
    ],
)
def test_the_models_name(models: tuple[str, ...], asked: str | None, name: str) -> None:
    assert found(Engine(models=models), model=asked).model == name


def test_a_model_that_is_not_served() -> None:
    with pytest.raises(InputError, match="does not serve c; it serves a, b: name one of them"):
        found(Engine(models=("a", "b")), model="c")


def test_several_models_and_none_asked_for() -> None:
    models = tuple(f"m{number}" for number in range(12))
    with pytest.raises(InputError, match=r"serves m0, .*, m9 and 2 more: name one .*--model"):
        found(Engine(models=models))


def test_a_key_is_sent_and_needed() -> None:
    engine = Engine(key="k")
    with serve(engine) as url:
        able = find_out(
            url, "", speaking("auto"), None, Asking((("Authorization", "Bearer k"),))
        ).abilities
        assert able.dialect.name == "completions"
        with pytest.raises(InputError, match="wants an API key: HTTP 401"):
            find_out(url, "", speaking("auto"), None, Asking())


@pytest.mark.parametrize(
    ("engine", "spoken", "reason"),
    [
        (
            Engine(statuses={"/v1/completions": 404, "/v1/chat/completions": 500}),
            "auto",
            "/v1/completions is not there: HTTP 404.*; .*chat/completions gave no token: HTTP 500",
        ),
        (Engine(statuses={"/v1/completions": 503}), "auto", "takes no request now: HTTP 503"),
        (Engine(), "tgi", "/generate is not there: HTTP 404"),
        (Engine(statuses={"/generate": 200}), "tgi", "/generate gave no token"),
    ],
)
def test_servers_that_do_not_answer_as_asked(engine: Engine, spoken: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        found(engine, spoken)
    assert "\n" not in str(caught.value)


def test_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(InputError, match=r"/info does not answer: .*refused"):
        find_out(f"http://127.0.0.1:{port}", "", speaking("auto"), None, Asking())


def test_a_server_that_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputError, match=r"/info did not answer within 0\.1 s"):
            find_out(url, "", speaking("auto"), None, Asking(timeout_s=0.1))


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "http://[x"])
def test_no_url(url: str) -> None:
    with pytest.raises(InputError):
        find_out(url, "", speaking("auto"), None, Asking())


@pytest.mark.parametrize("key", ["Bearer secret\r\nx: y", "Bearer secret\u20ac"])
def test_a_key_that_cannot_be_sent_is_not_shown(key: str) -> None:
    with pytest.raises(InputError, match="the value of the header Authorization") as caught:
        find_out("http://x", "", speaking("auto"), None, Asking((("Authorization", key),)))
    assert "secret" not in str(caught.value)
