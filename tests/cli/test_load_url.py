"""`tgi-bench load URL`: against servers of several kinds, and what is said where it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, tgi_bench
from tests.dialects.fake_engines import Engine, serve
from tests.drive import http_peer
from tests.drive.faulty_server import UNKNOWN_HOST_URL, FaultyServer, refused_url
from tgi_bench.cli import sweep_command
from tgi_bench.drive import load_files as tokenizer_file
from tgi_bench.errors import NotRecordedError
from tgi_bench.load_observation import LoadStage, RequestObservation, RequestOutcome
from tgi_bench.observation import Outcome
from tgi_bench.record.store import RunStore

__all__ = ["tgi_bench"]
FEW = (
    "--requests",
    "8",
    "--warmup",
    "1",
    "-c",
    "2",
    "--output-tokens",
    "3",
    "--prompt-tokens",
    "8",
)
ENDED = (0, 3)
SECRET = "sk-3e1c9a7715-do-not-tell"


@pytest.fixture(autouse=True)
def no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own error has its own tests, and takes seconds."""
    monkeypatch.setattr(sweep_command, "_measure_floor", lambda *_: True)


def only_run(results: Path) -> Path:
    (run_dir,) = (results / "load").iterdir()
    return run_dir


def outcomes(run_dir: Path) -> set[RequestOutcome]:
    with RunStore.open(run_dir, writable=False) as store:
        (trial,) = store.header().plan.load_trials
        return {one.outcome for one in tuple(store.seen(trial.trial_id, RequestObservation))}


def the_end(run_dir: Path) -> tuple[Outcome, str]:
    with RunStore.open(run_dir, writable=False) as store:
        (end,) = store.ends().values()
        return end.outcome, end.reason


Load = Callable[..., tuple[object, str, Path]]
"""URL and options; the exit code, what was printed, and the run's folder."""


@pytest.fixture
def load(tgi_bench: CommandLine, tmp_path: Path) -> Load:
    def run(url: str, *options: str) -> tuple[object, str, Path]:
        results = tmp_path / "results"
        ended = tgi_bench("load", url, *FEW, "--results", results, *options)
        assert "Traceback" not in ended.stderr
        return ended.code, ended.stdout + ended.stderr, only_run(results)

    return run


def test_a_tgi_server(load: Load, tmp_path: Path) -> None:
    with FaultyServer() as server:
        code, said, run_dir = load(server.url)
    assert code in ENDED, said
    assert the_end(run_dir) == (Outcome.OK, "")
    assert outcomes(run_dir) == {RequestOutcome.OK}
    assert sum(bool(one.request_id) for one in server.asked) == 9
    assert sum(not one.request_id for one in server.asked) == 4  # control requests
    report = (run_dir / "report.md").read_text(encoding="utf-8")
    assert server.url in report
    assert "tgi-bench load" in report


@pytest.mark.parametrize("owner", ["vllm", "sglang", "llamacpp", "somebody"])
def test_a_server_that_is_not_tgi(load: Load, owner: str) -> None:
    with serve(Engine(owner=owner)) as url:
        code, said, run_dir = load(url)
    assert code in ENDED, said
    assert the_end(run_dir) == (Outcome.OK, "")
    assert outcomes(run_dir) == {RequestOutcome.OK}


def test_a_base_path(load: Load) -> None:
    with FaultyServer() as server:
        code, said, run_dir = load(f"{server.url}/behind/a/proxy/")
    assert code in ENDED, said
    assert outcomes(run_dir) == {RequestOutcome.OK}
    assert {one.path for one in server.asked} == {"/behind/a/proxy/generate_stream"}


def test_the_address_that_an_openai_client_wants(load: Load) -> None:
    with FaultyServer() as server:
        code, said, run_dir = load(f"{server.url}/v1")
    assert code in ENDED, said
    assert f"{server.url}/v1: asked at {server.url}" in said
    assert outcomes(run_dir) == {RequestOutcome.OK}
    assert {one.path for one in server.asked} == {"/generate_stream"}


def test_what_nobody_said_of_a_server_is_not_known(load: Load) -> None:
    with serve(Engine(owner="vllm")) as url:
        code, said, run_dir = load(url)
    assert code in ENDED, said
    page = (run_dir / "num_shard-1.md").read_text(encoding="utf-8")
    title = page.partition("\n")[0]
    assert title.endswith(" on a running server")
    assert "auto" not in title
    assert "num_shard: not known" in page
    assert "Quantization not known" in page
    assert "1 GPU" not in page
    assert "No Quantization" not in page
    assert f"The server at {url} ran already" in page
    assert "text-generation-launcher" not in page.partition("# Definitions")[0]


def test_a_load_is_gone_on_with(
    tgi_bench: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-C in its second trial."""
    results, few = tmp_path / "results", (*FEW, "-c", "1")
    begun = RunStore.begin

    def interrupted(store: RunStore, trial_id: str) -> int:
        if trial_id.endswith("c1"):
            raise KeyboardInterrupt
        return begun(store, trial_id)

    with FaultyServer() as server:
        with monkeypatch.context() as patched:
            patched.setattr(RunStore, "begin", interrupted)
            ended = tgi_bench("load", server.url, *few, "--results", results)
        assert ended.code == 130
        assert "--resume" in ended.stdout
        resumed = tgi_bench("load", server.url, *few, "--results", results, "--resume")
    assert resumed.code in ENDED
    assert "1 of 2 trials ended before" in resumed.stdout
    with RunStore.open(only_run(results), writable=False) as store:
        assert {end.outcome for end in store.ends().values()} == {Outcome.OK}
        assert len(store.ends()) == 2


def test_a_disk_that_fills_up(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was recorded before stays, and the trial is one that can be gone on with."""

    add = RunStore.add

    def full(store: RunStore, attempt: int, seen: Iterable[object]) -> None:
        (*kept,) = seen
        if any(isinstance(one, LoadStage) for one in kept):
            raise NotRecordedError("the run could not be recorded: database or disk is full")
        add(store, attempt, kept)

    monkeypatch.setattr(RunStore, "add", full)
    with FaultyServer() as server:
        code, said, run_dir = load(server.url)
    assert code == 1
    assert "database or disk is full; what was recorded before stays" in said
    assert "not finished" in said
    with RunStore.open(run_dir, writable=False) as store:
        assert store.ends() == {}
        (trial,) = store.header().plan.load_trials
        assert len(list(store.seen(trial.trial_id, RequestObservation))) == 9
    assert (run_dir / "report.md").exists()


def test_nobody_listens(load: Load) -> None:
    url = refused_url()
    code, said, run_dir = load(url)
    assert code == 1
    cause = f"{url} cannot be reached: Connection refused"
    assert cause in said
    assert the_end(run_dir) == (Outcome.LAUNCH_FAILED, cause)


def test_a_host_that_nobody_knows(load: Load) -> None:
    code, said, run_dir = load(UNKNOWN_HOST_URL)
    assert code == 1
    outcome, cause = the_end(run_dir)
    assert outcome is Outcome.LAUNCH_FAILED
    assert cause.startswith(
        f"{UNKNOWN_HOST_URL} cannot be reached: "
    )  # the resolver's words follow
    assert cause in said


def test_another_api_than_it_has(load: Load) -> None:
    with serve(Engine(statuses={"/v1/chat/completions": 404})) as url:
        code, said, run_dir = load(url, "--api", "chat")
    assert code == 1
    outcome, reason = the_end(run_dir)
    assert outcome is Outcome.FAILED
    assert "/v1/chat/completions is not there: HTTP 404" in reason
    assert reason[:60] in said


def test_a_key_goes_by_its_variables_name_and_is_written_nowhere(
    load: Load, monkeypatch: pytest.MonkeyPatch, tgi_bench: CommandLine
) -> None:
    monkeypatch.setenv("SOME_NAME", SECRET)
    with serve(Engine(key=SECRET)) as url:
        code, said, run_dir = load(url, "--api-key-env", "SOME_NAME")
    assert code in ENDED, said
    assert outcomes(run_dir) == {RequestOutcome.OK}
    for form in ("md", "json", "csv"):
        shown = tgi_bench("report", run_dir, "--format", form)
        assert SECRET not in shown.stdout + shown.stderr
    assert SECRET not in said
    for path in (path for path in run_dir.rglob("*") if path.is_file()):
        assert SECRET.encode() not in path.read_bytes(), path


def test_a_key_that_is_wrong_is_not_told(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_NAME", SECRET)
    with serve(Engine(key="another")) as url:
        code, said, run_dir = load(url, "--api-key-env", "SOME_NAME")
    assert code == 1
    assert "wants another API key: HTTP 401" in said
    assert SECRET not in said
    assert SECRET.encode() not in (run_dir / "run.db").read_bytes()


def test_a_server_that_tells_the_key_is_not_believed_to(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers each request with an error that quotes what came."""
    monkeypatch.setenv("SOME_NAME", SECRET)
    with FaultyServer() as server:
        server.behaviour("tells_the_key")
        code, said, run_dir = load(server.url, "--api-key-env", "SOME_NAME")
    assert code == 1
    assert {one.authorization for one in server.asked} == {f"Bearer {SECRET}"}
    assert "[redacted]" in the_end(run_dir)[1]
    assert SECRET not in said
    for path in (path for path in run_dir.rglob("*") if path.is_file()):
        assert SECRET.encode() not in path.read_bytes(), path


def test_a_certificate(load: Load) -> None:
    with FaultyServer(tls=True) as server:
        code, said, run_dir = load(server.url, "--insecure")
    assert code in ENDED, said
    assert outcomes(run_dir) == {RequestOutcome.OK}


def test_a_certificate_that_does_not_verify(load: Load) -> None:
    with FaultyServer(tls=True) as server:
        code, _, run_dir = load(server.url)
    assert code == 1
    assert "certificate does not verify" in the_end(run_dir)[1]
    assert server.asked == []


def test_a_certificate_that_is_trusted(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(http_peer.CERTIFICATE))
    with FaultyServer(tls=True) as server:
        code, said, run_dir = load(server.url)
    assert code in ENDED, said
    assert outcomes(run_dir) == {RequestOutcome.OK}


def test_a_tokenizer_without_its_package_is_refused_before_a_word_to_the_server(
    tgi_bench: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_file, "find_spec", lambda name: None)
    file, results = tmp_path / "tokenizer.json", tmp_path / "results"
    file.write_text("{}", encoding="utf-8")
    with FaultyServer() as server:
        options = ("--tokenizer", file, "--results", results)
        said = tgi_bench.refused("load", server.url, *FEW, *options)
        assert not server.asked
    assert said.count("\n") == 1
    assert "--tokenizer" in said
    assert "pip install 'tgi-bench[tokenizer]'" in said
    assert not results.exists()
