"""A workload's file as it lies on the disk."""

from __future__ import annotations

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from tests.drive.loads import counted, trial
from tgi_bench.drive import load_files as corpus_file
from tgi_bench.drive.load_files import read_corpus, require_files
from tgi_bench.errors import InputError
from tgi_bench.plan.corpus import Entry
from tgi_bench.plan.load_trial import (
    ClosedLoop,
    FileKind,
    TraceTimes,
    Workload,
    WorkloadFile,
)


def refusal(path: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        read_corpus(WorkloadFile(str(path), FileKind.JSONL, shuffle=False))
    return str(caught.value)


def test_a_file_and_its_digest(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(b'{"prompt": "a"}\r\n')
    corpus, digest = read_corpus(WorkloadFile(str(file), FileKind.JSONL, shuffle=False))
    assert corpus.entries == (Entry(text="a"),)
    assert digest == sha256(file.read_bytes()).hexdigest()


def test_files_are_read_before_anything_is_started(tmp_path: Path) -> None:
    """A trace without times is refused there, and its column is named."""
    file = tmp_path / "t.csv"
    file.write_text("prompt_tokens,output_tokens\n4,3\n", encoding="utf-8")
    workload = Workload(None, None, WorkloadFile(str(file), FileKind.CSV, False), None, None, 0)
    require_files([trial(ClosedLoop(1), counted(1)), trial(ClosedLoop(1), counted(1), workload)])
    with pytest.raises(InputError, match=r"t\.csv: has no times, .* a column `time_s`"):
        require_files([trial(TraceTimes(1.0), counted(1), workload)])
    missing = replace(workload, file=WorkloadFile("nobody.csv", FileKind.CSV, False))
    with pytest.raises(InputError, match=r"^nobody\.csv: no such workload file"):
        require_files([trial(ClosedLoop(1), counted(1), missing)])


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary, bad, pipe = (tmp_path / name for name in ("binary", "bad", "pipe"))
    binary.write_bytes(b'{"prompt": "a"}\n\xff')
    bad.write_text("{}", encoding="utf-8")
    os.mkfifo(pipe)
    nobody = tmp_path / "nobody"
    assert refusal(nobody) == f"{nobody}: no such workload file (workload.file.path)"
    assert refusal(tmp_path) == f"{tmp_path}: is a directory, not a workload file"
    assert refusal(binary) == f"{binary}:2: is not text in UTF-8"
    assert refusal(bad) == f'{bad}:1: must hold either "prompt" or "messages"'
    assert refusal(pipe) == f"{pipe}: is no regular file, which a workload's must be"
    assert refusal(bad / "below") == f"{bad / 'below'}: cannot be read: Not a directory"
    assert "cannot be read" in refusal("a\0b")
    monkeypatch.setattr(corpus_file, "MOST_BYTES", 10)
    assert refusal(binary) == f"{binary}: is 17 bytes long; at most 10 are read"
