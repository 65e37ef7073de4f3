"""Routes, framing and fields, by version."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from tests.server.router.scripted_shard import Script
from tests.server.router.serving import Served, in_thread, serve, until
from tgi_bench.errors import LaunchError
from tgi_bench.server.config import Version

NEW = {"max_new_tokens": 2, "details": True}


def frames(served: Served, path: str, body: object) -> bytes:
    """A stream's whole body."""
    response = served.post(path, body)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["x-compute-type"] == "simulated"
    assert response.headers["x-accel-buffering"] == "no"
    assert "x-total-time" not in response.headers
    return response.content


@pytest.mark.parametrize(
    ("version", "prefix", "index", "input_length"),
    [
        ((0, 9, 4), b"data:{", False, False),
        ((1, 4, 5), b"data:{", True, False),
        ((2, 0, 4), b"data:{", True, False),
        ((2, 1, 0), b"data: {", True, False),
        ((3, 3, 7), b"data: {", True, True),
    ],
)
def test_frames_of_generate_stream(
    version: Version, prefix: bytes, index: bool, input_length: bool
) -> None:
    with serve(version) as served:
        content = frames(served, "/generate_stream", {"inputs": "a b", "parameters": NEW})
    parts = content.split(b"\n\n")
    assert parts.pop() == b""
    assert len(parts) == 2  # two tokens, no [DONE]
    assert all(part.startswith(prefix) for part in parts)
    first, last = (json.loads(part.removeprefix(prefix[:-1])) for part in parts)
    token = {"id": 0, "text": " t0", "logprob": -0.5, "special": False}
    told = {"index": 1} if index else {}
    assert first == {**told, "token": token, "generated_text": None, "details": None}
    details = {"finish_reason": "length", "generated_tokens": 2, "seed": None}
    assert last["generated_text"] == " t0 t1"
    assert last["details"] == details | ({"input_length": 2} if input_length else {})


def test_details_only_where_asked_for() -> None:
    body = {"inputs": "a", "parameters": {"max_new_tokens": 1}}
    with serve() as served:
        assert b'"details":null' in frames(served, "/generate_stream", body)
        assert served.post("/generate", body).json() == {"generated_text": " t0"}
        body["parameters"] = {"max_new_tokens": 1, "decoder_input_details": True}
        assert "prefill" in served.post("/generate", body).json()["details"]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"best_of": 2, "do_sample": True}, "`best_of` != 1 is not supported when streaming"),
        ({"decoder_input_details": True}, "`decoder_input_details` == true is not supported"),
        ({"top_p": 1.0}, "`top_p` must be > 0.0 and < 1.0"),
    ],
)
def test_a_refusal_in_a_stream_is_an_event(parameters: dict[str, object], reason: str) -> None:
    with serve() as served:
        content = frames(served, "/generate_stream", {"inputs": "a", "parameters": parameters})
    event = json.loads(content.removeprefix(b"data: "))
    assert event["error"].startswith(f"Input validation error: {reason}")
    assert event["error_type"] == "validation"


@pytest.mark.parametrize(("version", "comment"), [((2, 0, 4), ":"), ((3, 3, 7), ": ")])
def test_silence_is_kept_alive_by_comments(version: Version, comment: str) -> None:
    script = Script(held=True)
    with serve(version, script, keep_alive_s=0.01) as served:
        body = {"inputs": "a", "parameters": {"max_new_tokens": 1}}
        with httpx.stream("POST", served.url + "/generate_stream", json=body) as response:
            lines = response.iter_lines()
            assert [next(lines), next(lines), next(lines)] == [comment, "", comment]
            script.held = False
            assert any('"generated_text":" t0"' in line for line in lines)


@pytest.mark.parametrize(
    ("version", "present"),
    [
        ((0, 9, 4), set()),
        ((1, 4, 0), {"/tokenize", "/v1/chat/completions"}),
        ((1, 4, 5), {"/tokenize", "/v1/chat/completions", "/v1/completions"}),
        (
            (3, 3, 7),
            {
                "/chat_tokenize",
                "/tokenize",
                "/v1/chat/completions",
                "/v1/completions",
                "/v1/models",
            },
        ),
    ],
)
def test_a_version_has_its_routes(version: Version, present: set[str]) -> None:
    with serve(version) as served:
        for path in ("/chat_tokenize", "/tokenize", "/v1/chat/completions", "/v1/completions"):
            assert (served.post(path, {}).status_code != 404) is (path in present)
        assert (served.get("/v1/models").status_code == 200) is ("/v1/models" in present)
        for path in ("/", "/health", "/ping"):
            response = served.get(path)
            assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize(("version", "counted"), [((0, 9, 4), False), ((1, 4, 5), True)])
def test_headers_of_generate(version: Version, counted: bool) -> None:
    with serve(version) as served:
        told = served.post("/generate", {"inputs": "a b", "parameters": NEW}).headers
    assert told["x-compute-type"] == "simulated"
    assert told["x-compute-characters"] == "3"
    assert float(told["x-compute-time"]) > 0
    for name in ("total", "validation", "queue", "inference"):
        assert told[f"x-{name}-time"].isdigit()
    assert told["x-time-per-token"].isdigit()
    assert told.get("x-prompt-tokens") == ("2" if counted else None)
    assert told.get("x-generated-tokens") == ("2" if counted else None)


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ((0, 9, 4), {"max_input_length", "max_batch_total_tokens"}, {"max_input_tokens"}),
        ((2, 0, 0), {"max_input_length", "model_dtype"}, {"max_client_batch_size", "router"}),
        ((2, 0, 4), {"max_input_length", "model_dtype", "router"}, {"max_input_tokens"}),
        ((2, 1, 0), {"max_input_tokens", "model_dtype"}, {"max_input_length"}),
        ((2, 3, 0), {"max_input_tokens"}, {"model_dtype", "max_batch_total_tokens"}),
        ((3, 3, 7), {"max_input_tokens", "router"}, {"model_dtype", "max_batch_total_tokens"}),
    ],
)
def test_info(version: Version, has: set[str], lacks: set[str]) -> None:
    with serve(version) as served:
        told = served.get("/info").json()
    assert told["simulated"] is True
    assert told["docker_label"] == "simulated"
    assert told["version"] == ".".join(map(str, version))
    assert told["max_total_tokens"] == 40
    assert has <= told.keys()
    assert not lacks & told.keys()


def test_tokenize() -> None:
    with serve() as served:
        spans = served.post("/tokenize", {"inputs": "one two"}).json()
        assert [(s["text"], s["start"], s["stop"]) for s in spans] == [
            ("one", 0, 3),
            (" two", 3, 7),
        ]
        assert served.post("/tokenize", {"inputs": ""}).status_code == 422


def test_the_key_is_asked_for_on_post_only() -> None:
    with serve(api_key="secret") as served:
        body = {"inputs": "a", "parameters": {"max_new_tokens": 1}}
        refused = served.post("/generate", body)
        assert (refused.status_code, refused.content) == (401, b"")
        assert served.post("/generate", body, Authorization="Bearer other").status_code == 401
        assert served.post("/generate", body, Authorization="Bearer secret").status_code == 200
        for path in ("/info", "/health", "/metrics"):
            assert served.get(path).status_code == 200


def test_bodies_that_are_none() -> None:
    with serve() as served:
        url = served.url + "/generate"
        large = served.post("/generate", {"inputs": "a" * 30_000})
        assert large.status_code == 413
        json_type = {"content-type": "application/json"}
        assert httpx.post(url, content=b"{", headers=json_type).status_code == 400
        assert httpx.post(url, content=b"{}").status_code == 415
        missing = served.post("/generate", {})
        assert missing.status_code == 422
        assert "missing field `inputs`" in missing.text
        assert served.metric("tgi_request_count") == 0


def test_compatible_route_answers_a_list() -> None:
    body: dict[str, object] = {"inputs": "a", "parameters": {"max_new_tokens": 1}}
    with serve() as served:
        assert served.post("/", body).json() == [{"generated_text": " t0"}]
        assert b"data: " in frames(served, "/", body | {"stream": True})


def test_log_lines() -> None:
    with serve() as served:
        lines = [line.split(" ", 1)[1].strip() for line in served.log.splitlines()]
    port = served.url.rpartition(":")[2]
    assert lines == [
        "INFO text_generation_router: Warming up model",
        "WARN text_generation_router: Model does not support automatic max batch total tokens",
        "INFO text_generation_router: Setting max batch total tokens to 400",
        "INFO text_generation_router: Connected",
        f"INFO text_generation_router: Listening on 127.0.0.1:{port}",
    ]


@pytest.mark.parametrize(
    ("script", "limits", "reason"),
    [
        (Script(fail="Not enough memory to handle 80"), {}, "Not enough memory to handle 80"),
        (Script(room=39), {}, "`max_total_tokens` must be <= `max_batch_total_tokens`"),
        (Script(), {"max_batch_prefill_tokens": 19}, "`max_batch_prefill_tokens` must be >="),
        (Script(), {"max_batch_size": 0}, "`max_batch_size` must be >= 1"),
    ],
)
def test_a_start_that_fails_says_why(
    script: Script, limits: dict[str, object], reason: str
) -> None:
    with pytest.raises(LaunchError, match=reason), serve(script=script, **limits):  # type: ignore[arg-type]
        pass


def test_metrics() -> None:
    script = Script(decodes_held=True)
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 3}}
    with serve(script=script) as served:
        with in_thread(lambda: served.post("/generate", body)):
            until(lambda: len(script.decodes) == 1)
            assert served.metric("tgi_batch_current_size") == 1
            assert served.metric("tgi_batch_current_max_tokens") == 5
            script.decodes_held = False
        text = served.get("/metrics").text
        for line, value in {
            "tgi_simulated": 1,
            "tgi_request_count": 1,
            "tgi_request_success": 1,
            'tgi_batch_inference_count{method="decode"}': 2,
            'tgi_batch_inference_success{method="prefill"}': 1,
            "tgi_request_input_length_sum": 2,
            "tgi_request_generated_tokens_sum": 3,
            "tgi_request_max_new_tokens_sum": 3,
            'tgi_request_input_length_bucket{le="2.0"}': 1,
            "tgi_batch_next_size_sum": 1,
            'tgi_batch_forward_duration_count{method="decode"}': 2,
            'tgi_batch_forward_duration_sum{method="prefill"}': 0.002,
        }.items():
            assert served.metric(line) == value, line
    assert "# TYPE tgi_request_count counter" in text
    assert "_total " not in text
    assert "_created" not in text


@pytest.mark.parametrize("version", [(0, 9, 4), (2, 0, 4)])
def test_metrics_by_version(version: Version) -> None:
    with serve(version) as served:
        text = served.get("/metrics").text
    assert "tgi_batch_max_total_tokens" not in text
    assert ("tgi_batch_forward_duration" in text) is (version == (2, 0, 4))


def test_a_port_in_use_is_an_os_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(OSError, match="address already in use"),
            serve(port=taken.getsockname()[1]),
        ):
            pass


def test_nothing_answers_after_stop() -> None:
    with serve() as served:
        assert served.get("/health").status_code == 200
    with pytest.raises(httpx.ConnectError):
        served.get("/health")
