"""What real servers said of themselves, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.deployments import attach, deployment, launch
from tests.launch.recorded_server import answering, answers_of, recorded
from tgi_bench.ask import contact
from tgi_bench.errors import LaunchError
from tgi_bench.launch.facts import ServerSaid
from tgi_bench.launch.launcher import LaunchOptions
from tgi_bench.observation import Identity
from tgi_bench.plan.plan import Deployment, Timeouts

VLLM, LLAMACPP = "vllm-0.32.0", "llamacpp-xllamacpp-2026.10.11549"
LITELLM, TRANSFORMERS = "litellm-1.106.2", "transformers-serve-5.23.0"
OF_ANY = ("get-info-001", "get-models-001", "get-version-001", "get-props-001")
NOT_READY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("folder", "names", "identity"),
    [
        ("tgi-3.3.7", ("info", "models"), Identity(
            "tgi", "3.3.6-dev0", ("/data/tiny-gpt2",),
            sha="ac02c62cd767a887430f56b51262ac1fbce73f2a")),
        ("tgi-2.0.4", ("info", "models"), Identity(
            "tgi", "2.0.4", ("/data/tiny-gpt2",), device_type="cpu", dtype="torch.float32")),
        (VLLM, OF_ANY, Identity("vllm", "0.32.0", ("/data/tiny-h32",))),
        # /v1/models wants the key; /version does not.
        (VLLM, ("get-info-001", "key-none-models-001", "key-none-version-001"),
         Identity("vllm", "0.32.0")),
        (LLAMACPP, OF_ANY, Identity("llamacpp", "b0-unknown", ("/data/tiny/tiny.gguf",))),
        # Its header names it where everything else wants the key.
        (LLAMACPP, ("key-none-models-001", "key-none-props-001"), Identity("llamacpp")),
        (LITELLM, (*OF_ANY, "get-health-liveliness-001"),
         Identity("litellm", None, ("tiny", "tiny-vllm"))),
        (TRANSFORMERS, OF_ANY, Identity()),
        (TRANSFORMERS, ("get-models-empty-cache-001",), Identity()),
    ],
)  # fmt: skip
def test_a_server_is_what_it_says(folder: str, names: tuple[str, ...], identity: Identity) -> None:
    with recorded(folder, *names) as server:
        assert ServerSaid.by(contact(server.url)).identity == identity


def _attached(url: str, env: tuple[str, ...] = (), probe_s: float = 30.0) -> Deployment:
    timeouts = Timeouts(30.0, 30.0, 30.0, probe_s)
    return deployment(attach(url), env=env, timeouts=timeouts)


def test_litellm_is_asked_for_its_own_health_and_not_for_that_of_its_backends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its /health asks every backend, which took 5.5 s, and wants the key."""
    monkeypatch.setenv("A_KEY", "sk-a")
    names = (*OF_ANY, "get-health-liveliness-001", "get-metrics-001")
    with (
        recorded(LITELLM, *names) as server,
        launch(_attached(server.url, ("A_KEY",)), LaunchOptions(tmp_path, "run")) as attached,
    ):
        assert attached.endpoint.facts.identity.engine == "litellm"
        before = len(server.asked)
        for _ in range(100):
            assert attached.alive()
        assert len(server.asked) <= before + 1
        assert "/health" not in server.paths()
        assert {key for _, key in server.asked} == {"Bearer sk-a"}


def test_a_server_that_loads_is_waited_for(tmp_path: Path) -> None:
    """llama.cpp answers /v1/models while its /health is 503."""
    answers = answers_of(LLAMACPP, (*OF_ANY, "get-health-001"))
    answers["/health"] = [NOT_READY, NOT_READY, *answers["/health"]]
    told: list[str] = []
    with answering(answers) as server:
        options = LaunchOptions(tmp_path, "run", progress=told.append)
        with launch(_attached(server.url), options) as attached:
            assert attached.alive()
        assert told == [f"asking {server.url}", f"waiting: {server.url}/health is HTTP 503"]
        assert server.paths().count("/health") == 3
    with answering({"/health": [NOT_READY]}) as server:
        said = r"is not ready: /health there is still HTTP 503 after 0\.3 s"
        with (
            pytest.raises(LaunchError, match=said),
            launch(_attached(server.url, probe_s=0.3), LaunchOptions(tmp_path, "run")),
        ):
            raise AssertionError("it was taken")


@pytest.mark.parametrize("key", [None, "Bearer sk-a"])
def test_a_key_that_is_wanted_ends_it_at_once_and_names_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """848 questions without the key went to one, and then it did "not answer"."""
    monkeypatch.setenv("A_KEY", "sk-a")
    refused = answers_of(VLLM, ("key-none-models-001",))["/v1/models"]
    with answering({"/health": refused}) as server:
        asked = _attached(server.url, () if key is None else ("A_KEY",))
        another = "an" if key is None else "another"
        said = rf"/health wants {another} API key \(HTTP 401\): .*--api-key-env\).*\(--header\)$"
        with (
            pytest.raises(LaunchError, match=said) as caught,
            launch(asked, LaunchOptions(tmp_path, "run")),
        ):
            raise AssertionError("it was taken")
        assert "sk-a" not in str(caught.value)
        assert len(server.asked) <= 4
        assert {found for _, found in server.asked} == {key}
