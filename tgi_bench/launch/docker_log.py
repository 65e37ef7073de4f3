"""A container's log, written redacted into the run's folder while it grows."""

from __future__ import annotations

import threading
from pathlib import Path

from tgi_bench.errors import LaunchError
from tgi_bench.launch.docker_engine import ENGINE_ERRORS, engine, sentence
from tgi_bench.launch.secrets import RedactedStream, Redactor


class LogFollower:
    """Follows the log of one started container until it ends, in a thread of its own."""

    def __init__(self, container: str, path: Path, redactor: Redactor) -> None:
        self._container, self._path, self._redactor = container, path, redactor
        self._thread = threading.Thread(target=self._run, name="container-log", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Waits until the whole log of an ended container is written."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        clean = RedactedStream(self._redactor)
        with self._path.open("ab", buffering=0) as file:
            try:
                # A client of its own: its connection is used by this thread alone.
                with engine() as client:
                    stream = client.api.logs(self._container, stream=True, follow=True)
                    for data in stream:
                        file.write(clean.feed(data))
            except (*ENGINE_ERRORS, LaunchError, OSError, ValueError) as error:
                text = self._redactor.text(sentence(error))
                file.write(f"# tgi-bench: its log ends here: {text}\n".encode())
            file.write(clean.end())
