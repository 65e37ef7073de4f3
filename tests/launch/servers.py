"""Small programs that behave as servers do, well or badly."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tgi_bench.launch.child import Command
from tgi_bench.launch.secrets import Redactor

READY = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        bodies = {"/health": b"", "/info": INFO, "/metrics": METRICS}
        self.send_response(200 if self.path in bodies else 404)
        self.end_headers()
        self.wfile.write(bodies.get(self.path, b""))
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(STATUS)
        self.end_headers()
        self.wfile.write(TOKEN)
    def log_message(self, *_):
        pass
STATUS = 200
TOKEN = b'[{"generated_text": "a", "details": {"finish_reason": "length", ' \\
    b'"generated_tokens": 1, "seed": null, "prefill": [], "tokens": []}}]'
INFO = b'{"version": "3.3.7"}'
METRICS = b'# HELP x\\ntgi_batch_max_total_tokens 12345\\n'
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(f"Listening on 127.0.0.1:{server.server_port}", flush=True)
"""
SERVE = "server.serve_forever()\n"
SLEEP = "import time\ntime.sleep(60)\n"
IGNORE_TERM = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
ROOT = Path(__file__).parents[2]


def command(tmp_path: Path, script: str, *secrets: str) -> Command:
    """secrets: names of variables of this process's environment."""
    return Command(
        argv=(sys.executable, "-c", script),
        environ={**os.environ, "PYTHONPATH": str(ROOT)},
        log_path=tmp_path / "launch" / "default.log",
        run_id="20261121T102233Z-0a1b2c",
        redactor=Redactor(secrets, os.environ),
    )
