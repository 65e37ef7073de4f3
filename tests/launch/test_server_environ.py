"""What a server that is a process of this machine gets of the shell that tgi-bench runs in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.launch import servers
from tests.launch.deployments import deployment, program
from tests.launch.test_process import wait_for
from tgi_bench.launch.child import Command, ServerProcess, environ_for
from tgi_bench.launch.secrets import Redactor, needed

NEEDED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"),
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NCCL_P2P_DISABLE"),
    *("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION"),
    *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "XDG_CACHE_HOME"),
    *("CONDA_PREFIX", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF"),
    *("http_proxy", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE"),
)
KEPT_BACK = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "GITHUB_TOKEN", "OPENAI_API_KEY", "API_KEY"),
    *("HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "CONDA_TOKEN", "PYTHON_API_KEY"),
    *("XDG_SECRET_FILE", "SSH_AUTH_SOCK", "DATABASE_URL", "KUBECONFIG", "ATTENTION"),
    *("USE_PREFIX_CACHING", "VLLM_USE_V1", "MY_VARIABLE"),
)


def test_what_a_program_needs_and_nothing_else() -> None:
    environ = dict.fromkeys((*NEEDED, *KEPT_BACK), "x")
    assert set(needed(environ)) == set(NEEDED)


def test_what_the_experiment_names_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "ATTENTION"):
        monkeypatch.setenv(name, "value-of-it")
    asked = deployment(program(), version="3.3.7", env=("HF_TOKEN", "ATTENTION"))
    environ = environ_for(asked)
    assert (environ["HF_TOKEN"], environ["ATTENTION"]) == ("value-of-it", "value-of-it")
    assert "AWS_SECRET_ACCESS_KEY" not in environ


def test_a_key_of_the_shell_does_not_reach_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    script = "import json, os\nprint(json.dumps(dict(os.environ)), flush=True)\n" + servers.SLEEP
    like = servers.command(tmp_path, script)
    environ = environ_for(deployment(program()))
    command = Command(like.argv, environ, like.log_path, like.run_id, Redactor((), {}))
    with ServerProcess(command) as server:
        wait_for(lambda: server.log.lines() != ())
        seen = json.loads(server.log.lines()[0])
    assert "wJalrXUtnFEMI" not in str(seen)
    assert seen["PATH"]
    assert seen["TGI_BENCH_RUN"] == like.run_id
