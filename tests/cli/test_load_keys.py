"""A key goes with everything that is asked, by a variable's name, and is written nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, tgi_bench
from tests.cli.locked_server import locked
from tests.cli.test_load_url import FEW, SECRET, no_floor, only_run, outcomes, the_end
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.observation import Outcome, ServerFacts
from tgi_bench.record.store import RunStore

__all__ = ["no_floor", "tgi_bench"]
EVERYWHERE = {"/health", "/info", "/metrics", "/v1/models", "/tokenize", "/v1/completions"}
BY_HEADER = ("--header", "X-Api-Key: $SOME_NAME")


@pytest.mark.parametrize(
    ("header", "value", "options"),
    [
        ("Authorization", f"Bearer {SECRET}", ("--api-key-env", "SOME_NAME")),
        ("X-Api-Key", SECRET, BY_HEADER),
        ("Authorization", f"Token {SECRET}", ("--header", "authorization: Token ${SOME_NAME}")),
        # server.env names it for another reason: the header that was written goes before.
        ("Authorization", f"Token {SECRET}",
         ("--api-key-env", "SOME_NAME", "--header", "Authorization: Token $SOME_NAME")),
    ],
)  # fmt: skip
def test_a_key_goes_with_everything(
    tgi_bench: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    header: str,
    value: str,
    options: Sequence[str],
) -> None:
    monkeypatch.setenv("SOME_NAME", SECRET)
    results = tmp_path / "results"
    with locked(header, value) as server:
        ended = tgi_bench("load", server.url, *FEW, "--results", results, *options)
    assert ended.code in (0, 3), ended.stdout + ended.stderr
    run_dir = only_run(results)
    assert outcomes(run_dir) == {RequestOutcome.OK}
    assert {path for path, _ in server.asked} >= EVERYWHERE
    assert all(came for _, came in server.asked), server.asked
    with RunStore.open(run_dir, writable=False) as store:
        facts = store.facts("default", ServerFacts)
        assert facts is not None
        assert (facts.identity.engine, facts.identity.version) == ("vllm", "0.32.0")
    assert SECRET not in ended.stdout + ended.stderr
    for path in (path for path in run_dir.rglob("*") if path.is_file()):
        assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("options", [(), ("--header", "X-Api-Key: $ANOTHER")])
def test_a_key_that_is_missing_is_one_failure_that_names_the_options(
    tgi_bench: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]
) -> None:
    monkeypatch.setenv("ANOTHER", "another")
    results = tmp_path / "results"
    with locked("X-Api-Key", SECRET) as server:
        ended = tgi_bench("load", server.url, *FEW, "--results", results, *options)
    assert ended.code == 1
    outcome, reason = the_end(only_run(results))
    assert outcome is Outcome.LAUNCH_FAILED
    another = "another" if options else "an"
    assert f"/health wants {another} API key (HTTP 401): name the environment variable" in reason
    assert "--api-key-env" in reason
    assert "--header" in reason
    assert len(server.asked) <= 4
    report = (only_run(results) / "report.md").read_text()
    remedy = "name the environment variable that holds the API key in --api-key-env, or write its"
    assert report.count(remedy) == 1
    assert "see that a server answers" not in report


def test_headers_that_are_refused(tgi_bench: CommandLine, tmp_path: Path) -> None:
    for header, said in (
        ("X-Api-Key: hunter22hunter22", "--header: the value of `X-Api-Key` is a secret"),
        ("Authorization: Bearer hunter22$A", "--header: the value of `Authorization` is a secret"),
        ("hunter22", "--header: write it as 'Name: value'"),
        ("Host: hunter22", "--header: `Host` is set by tgi-bench itself"),
        ("User-Agent: hunter22", "--header: `User-Agent` is set by tgi-bench itself"),
        ("X-A: $NOT_SET", "server.headers: NOT_SET not set in the environment of tgi-bench"),
    ):
        results = tmp_path / "results"
        message = tgi_bench.refused(
            "load", "http://127.0.0.1:1", "--header", header, "--results", results
        )
        assert said in message
        assert "hunter22" not in message
        assert not results.exists()
