"""The queue and the running batch of a server's /metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tgi_bench.ask import contact
from tgi_bench.dialects.metrics import gauge_asker
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import RouterLimits
from tgi_bench.server.router.metrics import Metrics

IDLE = (
    ("tgi_batch_current_max_tokens", 0.0),
    ("tgi_batch_current_size", 0.0),
    ("tgi_queue_size", 0.0),
)


@contextmanager
def serving(body: Callable[[], bytes], status: int = 200) -> Iterator[str]:
    """/metrics that answers so; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = body()
            self.send_response(status if self.path.startswith("/metrics?") else 404)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object) -> None:
            """Nothing is printed."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_our_own_router_says_them() -> None:
    limits = RouterLimits(8, 2, 4, 5, 100, 200, 100, None, None, 4, 1.2, 20, 10**6, 2, False)
    metrics = Metrics(Behaviour((3, 3, 7)), limits)
    assert metrics.render(["tgi_queue_size"]).decode().splitlines()[1:] == [
        "# TYPE tgi_queue_size gauge",
        "tgi_queue_size 0",
    ]
    assert metrics.render(["another"]) == b"\n"
    with serving(metrics.render) as url:
        ask = gauge_asker(contact(url))
        assert ask()() == IDLE
        metrics.queue_size.set(3)
        metrics.batch_size.set(17)
        found = dict(ask()())
        assert (found["tgi_queue_size"], found["tgi_batch_current_size"]) == (3, 17)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", ()),
        (b"# TYPE tgi_queue_size gauge\ntgi_queue_size 2\n", (("tgi_queue_size", 2.0),)),
        (b'tgi_queue_size{model="a b"} 1.5e1\n', (("tgi_queue_size", 15.0),)),
        (b"tgi_queue_size 1.2.3\n", ()),
        (b"tgi_queue_size_sum 4\nnot_tgi_queue_size 5\n", ()),
        (b"\xff\xfe\n", ()),
    ],
)
def test_texts(body: bytes, found: tuple[tuple[str, float], ...]) -> None:
    with serving(lambda: body) as url:
        assert gauge_asker(contact(url))()() == found


def test_a_server_without() -> None:
    with serving(lambda: b"tgi_queue_size 1\n", status=404) as url:
        assert gauge_asker(contact(url))()() == ()
    assert gauge_asker(contact(url))()() == ()  # nobody listens any more
    assert gauge_asker(contact("https://127.0.0.1:1", verify=False))()() == ()
    assert gauge_asker(contact("nowhere"))()() == ()
