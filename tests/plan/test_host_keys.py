"""The keys that say where a server runs: what is read, and what is refused in which words."""

from __future__ import annotations

import shlex

import pytest

from tests.launch.deployments import attach, docker, embedded, program
from tgi_bench.engines.engine import secret_in
from tgi_bench.errors import ExperimentError
from tgi_bench.launch.secrets import variables_in, with_variables
from tgi_bench.plan.expand import expand
from tgi_bench.plan.experiment_text import load, load_plan, parse_overrides
from tgi_bench.plan.plan import Deployment, Engine, Timeouts

TEXT = """experiment: e
model: org/model
server:
  launcher: {launcher}
  {keys}
batches: {{sequence_length: 8, decode_length: 2, batch_size: 1, runs: 1}}
"""


def _one(launcher: str, *keys: str) -> Deployment:
    """The only deployment."""
    experiment = load(TEXT.format(launcher=launcher, keys="\n  ".join(keys)), "e.yaml")
    (deployment,) = expand(experiment).deployments
    return deployment


def _refusal(launcher: str, *keys: str) -> str:
    with pytest.raises(ExperimentError) as caught:
        _one(launcher, *keys)
    return str(caught.value)


def test_defaults() -> None:
    asked = _one("docker", "image: tgi:3.3.7")
    assert asked.launcher == docker()
    assert (asked.engine, asked.env) == (Engine.TGI, ())
    assert asked.timeouts == Timeouts(3600.0, 3600.0, 1200.0, 120.0)
    assert _one("process").launcher == program()
    assert _one("embedded").launcher == embedded()
    assert _one("attach", "url: http://h:80").launcher == attach("http://h:80")


def test_docker() -> None:
    asked = _one(
        "docker",
        "image: tgi:0.9.4",
        "docker:",
        "  gpus: [0, 3]",
        "  shm_size: 1g",
        "  volumes: [/data:/data, 'hub:/cache:ro']",
        "  network: bench",
        "  options: {cap_add: [SYS_NICE], mem_limit: 2g, init: true}",
    )
    assert asked.launcher == docker(
        gpus="0,3",
        shm_size="1g",
        volumes=["/data:/data", "hub:/cache:ro"],
        network="bench",
        options={"cap_add": ["SYS_NICE"], "mem_limit": "2g", "init": True},
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("all", "all"),
        ("2", "2"),
        ("0", "0"),
        ("'2'", "2"),
        ("[1]", "1,"),
        ("[GPU-0a, GPU-1b]", "GPU-0a,GPU-1b"),
        ("null", None),
    ],
)
def test_gpus(written: str, read: str | None) -> None:
    asked = _one("docker", "image: t:1.0.0", f"docker: {{gpus: {written}}}")
    assert asked.launcher == docker(gpus=read)


def test_process_and_timeouts() -> None:
    words = ("python", "-m", "my server")
    assert _one("process", "command: python -m 'my server'").launcher == program(*words)
    assert _one("process", "command: [python, -m, my server]").launcher == program(*words)
    keys = "timeouts: {pull_s: 1, download_s: 2.5, load_s: 3, probe_s: 4}"
    assert _one("process", keys).timeouts == Timeouts(1.0, 2.5, 3.0, 4.0)
    assert _one("process", "env: [HF_TOKEN, A1]").env == ("HF_TOKEN", "A1")
    assert _one("process", "env: HF_TOKEN").env == ("HF_TOKEN",)


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://host.example/prefix/", "https://host.example/prefix"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_attach(url: str, read: str) -> None:
    asked = _one("attach", f"url: '{url}'", "sockets: unix:///tmp/s-0")
    assert asked.launcher == attach(read, "/tmp/s-0")


def test_sockets_alone_are_attached_for_batches() -> None:
    assert _one("attach", "sockets: /tmp/s-0").launcher == attach(sockets="/tmp/s-0")


def test_headers_keep_the_names_of_variables() -> None:
    headers = "headers: {X-Team: search, Authorization: Bearer $MY_KEY, Cookie: 's=${A1}'}"
    launcher = _one("attach", "url: http://h:80", headers).launcher
    assert launcher.headers == (
        ("X-Team", "search"),
        ("Authorization", "Bearer $MY_KEY"),
        ("Cookie", "s=${A1}"),
    )
    assert [variables_in(text) for _, text in launcher.headers] == [(), ("MY_KEY",), ("A1",)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("$A and ${B}c", "one and twoc"),
        ("$$A costs $$5", "$A costs $5"),
        ("$A$A", "oneone"),
        ("5 $ or $5", "5 $ or $5"),
    ],
)
def test_variables_take_their_values(text: str, value: str) -> None:
    assert with_variables(text, {"A": "one", "B": "two"}) == value


def test_headers_are_in_the_digest() -> None:
    text = """
experiment: e
model: org/m
server: {launcher: attach, url: "http://h:80"}
batches: {sequence_length: 16, decode_length: 3, batch_size: [1, 2], runs: 3, prompt_seed: 0}
"""
    changed = text.replace('80"}', '80", headers: {X-Team: a}}')
    assert load_plan(changed, "e.yaml")[1].digest != load_plan(text, "e.yaml")[1].digest


@pytest.mark.parametrize(
    ("launcher", "keys"),
    [
        ("attach", "url: http://me:hunter22@host"),
        ("process", "env: ['HF_TOKEN=hunter22']"),
        ("process", "env: {HF_TOKEN: hunter22}"),
        ("process", "env: 'HF_TOKEN: hunter22'"),
        ("process", "constant: {ngrok_authtoken: hunter22}"),
        ("process", "engine: vllm\n  constant: {api-key: hunter22}"),
        ("process", "variable: {api_key: [hunter22]}"),
        ("attach", "headers: {Authorization: Bearer hunter22}"),
        ("attach", "headers: {X-Api-Key: hunter22}"),
        ("attach", "headers: {X-Api-Key: hunter22$A}"),
        ("attach", "headers: {Cookie: 'session=hunter22; b=$A'}"),
        ("attach", "headers: {Cookie: [hunter22]}"),
        ("process", "engine: vllm\n  constant: {ssl-keyfile-password: hunter22}"),
        ("process", "command: text-generation-launcher --api-key hunter22"),
        ("process", "command: text-generation-launcher --api-key=hunter22"),
        ("process", "command: [env, HF_TOKEN=hunter22, text-generation-launcher]"),
        ("process", "command: env AWS_SECRET_ACCESS_KEY=hunter22 serve"),
        ("process", "command: sh -c 'HF_TOKEN=hunter22 exec text-generation-launcher'"),
        ("process", "command: sh -c 'serve --hf-token hunter22'"),
        ("process", "command: [curl, -H, 'Authorization: Bearer hunter22']"),
        ("process", "command: serve --proxy http://me:hunter22@proxy"),
        ("process", "command: serve --login hf_hunter22hunter22hunter22"),
        ("process", 'command: serve --login "hunter22'),
    ],
)
def test_a_secret_is_refused_and_not_shown(launcher: str, keys: str) -> None:
    assert "hunter22" not in _refusal(launcher, keys)


@pytest.mark.parametrize(
    "command",
    [
        "text-generation-launcher",
        "serve --max-batch-prefill-tokens 4096 --tokenizer x --eos-token </s> --pad-token 0",
        "serve --api-key-file keys.txt --ssl-keyfile a.pem --ssl-key /etc/a.pem --token --next",
        "sh -c 'serve --api-key $API_KEY --hf-token=$HF_TOKEN'",
        "env KEY_COUNT=2 MONKEY=x python -m 'my server'",
        "curl -H 'Authorization: Bearer $KEY' http://host:80/a@b",
    ],
)
def test_what_only_looks_like_a_secret_is_taken(command: str) -> None:
    assert secret_in(shlex.split(command)) is None


@pytest.mark.parametrize(
    "setting",
    [
        "server.command=serve --api-key hunter22",
        "server.env=HF_TOKEN=hunter22",
        "server.constant.api_key=hunter22",
        "server.constant.ngrok_authtoken=hunter22",
        "server.headers={X-Api-Key: hunter22}",
        "server.headers.Authorization=hunter22",
    ],
)
def test_a_secret_of_the_command_line_is_refused_and_not_shown(setting: str) -> None:
    text = TEXT.format(launcher="process", keys="env: [A]\n  version: 3.3.7")
    with pytest.raises(ExperimentError) as caught:
        load_plan(text, "e.yaml", parse_overrides([setting]))
    assert "hunter22" not in str(caught.value)
    assert "=..." in str(caught.value)
