"""A workload's file as it lies on the disk."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from tgi_bench.drive import corpus_file
from tgi_bench.drive.corpus_file import read_corpus
from tgi_bench.errors import InputError
from tgi_bench.plan.corpus import Entry
from tgi_bench.plan.load_trial import FileKind, WorkloadFile


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
