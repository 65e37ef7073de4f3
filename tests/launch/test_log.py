"""Launcher logs of several versions, and anything else that may stand in one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.engines.argument_values import parse_command_line
from tgi_bench.engines.printed import args_message, debug_form
from tgi_bench.launch import log
from tgi_bench.launch.cause import fatal_cause
from tgi_bench.launch.log import LogFile

STAMP = "2024-03-06T18:04:02.019265Z"
ARGV = ["--model-id", 'a "b", {c: d}', "--num-shard", "2", "--quantize", "gptq"]


def _colour(line: str) -> str:
    return f"\x1b[2m{STAMP}\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mx\x1b[0m\x1b[2m:\x1b[0m {line}"


def _json(line: str) -> str:
    return json.dumps({"timestamp": STAMP, "level": "INFO", "fields": {"message": line}})


@pytest.mark.parametrize("version", ["0.8.2", "0.9.4", "1.4.5", "2.0.4", "3.3.7"])
@pytest.mark.parametrize("form", [lambda m: f"{STAMP}  INFO x: {m}", _colour, _json])
def test_arguments_in_effect(version: str, form: Callable[[str], str]) -> None:
    settings = parse_command_line(version, ARGV, {})
    text = form(args_message(version, settings))
    lines = ["before", *text.split("\n"), f"{STAMP}  INFO x: Sharding model on 2 processes"]
    assert log.arguments_in_effect(lines) == debug_form(version, settings)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], None),
        (["Args { a: 1"], None),
        (["Args { 1 }"], None),
        (['Args { a: "x'], None),
        (["Args { }"], ()),
        (['Args { a: "}, b: 1", c: Some([1, 2]), d: None }'], (
            ("a", '"}, b: 1"'), ("c", "Some([1, 2])"), ("d", "None"))),
        (["Args {", "    a: Some(", "        2,", "    ),", "    b: [", "        1,", "        2,",
          "    ],", "    c: [],", "}"], (("a", "Some(2)"), ("b", "[1, 2]"), ("c", "[]"))),
    ],
)  # fmt: skip
def test_args_by_hand(lines: list[str], expected: tuple[tuple[str, str], ...] | None) -> None:
    assert log.arguments_in_effect(lines) == expected


def test_capacity_and_address() -> None:
    lines = [_json("Setting max batch total tokens to 16000"), _colour("Listening on [::1]:80")]
    assert log.capacity_tokens(lines) == 16000
    assert log.listening_on(lines) == "[::1]:80"
    assert log.capacity_tokens([_colour("Setting max batch total tokens to 7"), "x"]) == 7
    assert log.capacity_tokens(["nothing"]) is None
    assert log.listening_on(["Listening on nothing"]) is None


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("Method Prefill: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has",
         "CUDA out of memory. Tried to allocate 1.50 GiB"),
        ("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has 9 GiB. (simulated)",
         "CUDA out of memory. Tried to allocate 1.50 GiB (simulated)"),
        ("Not enough memory to handle 4096 prefill tokens. You need to",
         "the device has not enough memory to handle 4096 prefill tokens: "
         "lower max_batch_prefill_tokens"),
        ("Shard process was signaled to shutdown with signal 9 rank=0",
         "shard 0 was killed (signal 9)"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes.",
         "DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes"),
        ("terminate called after throwing an instance of 'std::bad_alloc'",
         "the host's memory ran out: std::bad_alloc"),
        ("RuntimeError: HIP error: hipErrorOutOfMemory", "HIP out of memory"),
        ("Shard process was signaled to shutdown with signal 6 rank=1",
         "shard 1 was killed (signal 6)"),
        ("OSError: [Errno 98] Address already in use",
         "its port or socket is in use already: Address already in use"),
        ('Error: NotEnoughCUDADevices("`num_shard` is 4 but 2 found")',
         "too few GPUs: `num_shard` is 4 but 2 found"),
        ('Error: ArgumentValidation("`max_total_tokens` too small")',
         "the launcher refused its arguments: `max_total_tokens` too small"),
        ("error: unexpected argument '--foo' found",
         "the launcher refused its arguments: unexpected argument '--foo' found"),
        ("Shard 1 failed to start", "shard 1 failed to start"),
        (
            "ERROR text_generation_launcher: Error when initializing model: no CUDA device rank=1",
            "no CUDA device",
        ),
        ("Error: the warm-up failed: 5000 is too long", "its warm-up failed: 5000 is too long"),
        ("ERROR x: Shard 0 crashed", "shard 0 crashed"),
        ("Error: WebserverFailed", "its webserver crashed"),
        ("tgi-bench: --port is given twice", "it ended with: --port is given twice"),
        ("Connected", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [str, _json])
def test_causes(line: str, cause: str | None, form: Callable[[str], str]) -> None:
    found = fatal_cause(["first", form(line), "Shutting down shards"])
    assert (None if found is None else found.text) == cause


@given(st.lists(st.text() | st.sampled_from(["Args {", "}", '{"fields": {"message": 1}}', '"'])))
def test_garbage_never_raises(lines: list[str]) -> None:
    log.arguments_in_effect(lines)
    fatal_cause(lines)
    log.said(lines)
    assert log.capacity_tokens(lines) is None
    log.listening_on(lines)


@pytest.mark.parametrize("cut", range(10))
def test_a_log_read_in_two_parts_is_the_log(tmp_path: Path, cut: int) -> None:
    data = "a\né\n\nbc".encode()
    file = tmp_path / "log"
    file.write_bytes(data[:cut])
    parts = LogFile(file, 0)
    parts.read_on()
    file.write_bytes(data)
    assert parts.lines() == ("a", "é", "", "bc")


def test_deep_json_is_no_json() -> None:
    assert log.messages(['{"a":' * 100_000]) == ('{"a":' * 100_000,)


def test_tail(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"old\na\r\nb\xff\nc")
    lines = LogFile(tmp_path / "log", 4)
    assert lines.tail(2) == ("b\ufffd", "c")
    assert lines.tail(0) == ()
    assert LogFile(tmp_path / "none", 0).lines() == ()


def test_the_model_that_an_engine_loaded() -> None:
    said = "LlamaForCausalLM: 82101120 parameters, float32 weights, sdpa attention, on cpu; torch 2"
    lines = ["INFO text_generation_launcher: Listening", f"INFO x: Model {said} rank=0"]
    assert log.model_loaded(lines) == said
    assert log.model_loaded(lines[:1]) is None
