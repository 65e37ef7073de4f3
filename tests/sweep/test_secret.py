"""A planted secret: handed on by its variable's name, and found nowhere else."""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.sweep.real_servers import SERVE, ends, experiment, tgi_bench, the_run
from tgi_bench.record.store import RunStore

TELL = """
import json, os, sys, urllib.parse
secret = os.environ["HF_TOKEN"]
assert os.environ["HUGGING_FACE_HUB_TOKEN"] == secret
with open({seen!r}, "a") as seen:
    for pid in (os.getpid(), os.getppid()):
        seen.write(open(f"/proc/{{pid}}/cmdline").read() + "\\n")
    seen.write("secret was handed on: " + str(len(secret)) + "\\n")
print("token", secret, flush=True)
print(json.dumps({{"fields": {{"message": "token " + secret}}}}), flush=True)
print("https://host/?token=" + urllib.parse.quote(secret, safe=""), flush=True)
os.write(2, secret[:9].encode()); os.write(2, secret[9:].encode() + b"\\n")
"""
SERVES = TELL + "os.execv({python!r}, {serve!r} + sys.argv[1:])\n"
FAILS = TELL + "sys.exit('Error: DownloadError(no access with ' + secret + ')')\n"
FAILS_A_STEP = (
    TELL
    + """
from tgi_bench.server.simulated_engine import SimulatedEngine
def decode(*_):
    raise ValueError("no access with " + secret)
SimulatedEngine.decode = decode
sys.argv = ["tgi-bench", *{serve!r}[3:], *sys.argv[1:]]
from tgi_bench.cli.main import main
main()
"""
)


@pytest.fixture
def secret() -> str:
    return f'hf_{secrets.token_urlsafe(24)}"/é{secrets.token_hex(4)}'


@pytest.mark.parametrize(
    ("script", "outcome", "code"),
    [(SERVES, "ok", (0, 3)), (FAILS, "launch_failed", (1,)), (FAILS_A_STEP, "failed", (1,))],
)
def test_it_is_nowhere(
    tmp_path: Path, secret: str, script: str, outcome: str, code: tuple[int, ...]
) -> None:
    seen = tmp_path / "seen"
    text = script.format(seen=str(seen), python=sys.executable, serve=SERVE)
    file = experiment(tmp_path, command=[sys.executable, "-c", text], env=["HF_TOKEN"])
    environ = {"HF_TOKEN": secret}
    done = tgi_bench(tmp_path, "sweep", str(file), environ=environ)
    assert done.returncode in code, done.stdout + done.stderr
    run_dir = the_run(tmp_path)
    assert set(ends(run_dir).values()) == {outcome}
    for form in ("md", "json", "csv"):
        again = tgi_bench(tmp_path, "report", str(run_dir), "--format", form, environ=environ)
        _nowhere(secret, again.stdout + again.stderr)
    _nowhere(secret, done.stdout + done.stderr, seen.read_text())
    assert f"secret was handed on: {len(secret)}" in seen.read_text()
    for path in (p for p in tmp_path.rglob("*") if p.is_file()):
        _nowhere(secret, path.read_bytes().decode("utf-8", "replace"))
    # It was printed, so what stands in its place shows that it was looked at.
    assert "token [redacted]" in (run_dir / "launch" / "default.log").read_text()
    if outcome != "ok":
        with RunStore.open(run_dir, writable=False) as store:
            reasons = {end.reason for end in store.ends().values()}
        assert all("no access with [redacted]" in reason for reason in reasons)


def _nowhere(secret: str, *texts: str) -> None:
    core = secret.partition('"')[0]
    forms = (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), core)
    for text in texts:
        found = [text[max(0, text.find(f) - 80) :][:160] for f in forms if f in text]
        assert not found


@pytest.mark.parametrize(
    "server",
    [
        {"env": ["HF_TOKEN=hf_written_here"]},
        {"env": {"HF_TOKEN": "hf_written_here"}},
        {"constant": {"api_key": "hf_written_here"}, "version": "3.3.7"},
    ],
)
def test_one_that_is_written_into_the_experiment_is_refused_unread(
    tmp_path: Path, server: dict[str, object]
) -> None:
    file = experiment(tmp_path, command=SERVE, **server)
    if "version" in server:
        file.write_text(file.read_text().replace("  version: 0.9.4\n", ""))
    done = tgi_bench(tmp_path, "plan", str(file))
    assert done.returncode == 2
    assert "hf_written_here" not in done.stdout + done.stderr
    assert "[HF_TOKEN]" in done.stderr or "[API_KEY]" in done.stderr
    assert os.path.exists(file)
