"""Asker before a load: one connection, and what is no answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tgi_bench import ask as under_test
from tgi_bench.ask import Asker, Asking
from tgi_bench.errors import InputError

_ANSWER = b"HTTP/1.1 200 OK\r\nX-Said: One\r\ncontent-length: 4\r\n%b\r\n\r\nnull"


LATER = b"LATER"
"""After an answer: its connection ends when the next question has come."""


@contextmanager
def served(answers: list[bytes], connections: list[int]) -> Iterator[str]:
    """A server that gives one answer after the other; CLOSE after one ends its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5.0)

        def serve() -> None:
            left = list(answers)
            while left:
                peer, _ = listener.accept()
                connections.append(1)
                with peer:
                    while left:
                        asked = b""
                        while b"\r\n\r\n" not in asked:
                            asked += peer.recv(65536)
                        answer = left.pop(0)
                        if answer == LATER:
                            break
                        peer.sendall(answer.removesuffix(b"CLOSE"))
                        if answer.endswith(b"CLOSE"):
                            break

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/base/"
        thread.join(5.0)


def test_one_connection_for_all_questions() -> None:
    connections: list[int] = []
    kept = _ANSWER % b"connection: keep-alive"
    with served([kept, kept, kept], connections) as url, Asker(url, Asking()) as control:
        replies = [control.get("/a"), control.post("/b", b"{}"), control.get("/c")]
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert replies[0].headers[0] == (b"x-said", b"One")
    assert replies[0].body == b"null"
    assert len(connections) == 1


def test_a_connection_that_the_server_ended_is_opened_again() -> None:
    connections: list[int] = []
    silent_end = (_ANSWER % b"connection: keep-alive") + b"CLOSE"
    with (
        served([silent_end, silent_end], connections) as url,
        Asker(url, Asking(timeout_s=5.0)) as control,
    ):
        assert control.get("/a").status == 200
        first = control._connection.sock
        assert first is not None
        first.settimeout(5.0)
        assert first.recv(1, socket.MSG_PEEK) == b""  # its end has come
        assert control.get("/b").status == 200
    assert len(connections) == 2


def test_a_connection_that_ends_when_it_is_asked_again() -> None:
    """transformers serve ends it after a 500, and does not say so."""
    connections: list[int] = []
    failed = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\nnull"
    kept = _ANSWER % b"connection: keep-alive"
    with (
        served([failed, LATER, kept, LATER, kept], connections) as url,
        Asker(url, Asking(timeout_s=5.0)) as control,
    ):
        assert [control.get("/a").status for _ in range(3)] == [500, 200, 200]
    assert len(connections) == 3


def test_it_is_asked_again_once() -> None:
    connections: list[int] = []
    with (
        served([_ANSWER % b"x: y", LATER, LATER, _ANSWER % b"x: y"], connections) as url,
        Asker(url, Asking(timeout_s=5.0)) as control,
    ):
        assert control.get("/a").status == 200
        with pytest.raises(InputError, match="does not answer: "):
            control.get("/b")
        assert control.get("/c").status == 200
    assert len(connections) == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"CLOSE", "does not answer: "),
        (b"nothing of HTTP\r\n\r\nCLOSE", "does not answer: "),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nnullCLOSE", "does not answer: "),
        (_ANSWER % b"x: y", "answers with more than 3 bytes"),
        (_ANSWER % b"Content-Encoding: gzip", "/base/a: gzip came where identity was asked for"),
    ],
)
def test_what_is_no_answer(monkeypatch: pytest.MonkeyPatch, answer: bytes, reason: str) -> None:
    monkeypatch.setattr(under_test, "_MOST_BYTES", 3 if b"x: y" in answer else 1000)
    with (
        served([answer], []) as url,
        Asker(url, Asking(timeout_s=5.0)) as control,
        pytest.raises(InputError, match=reason) as caught,
    ):
        control.get("/a")
    assert "/base/a" in str(caught.value)
