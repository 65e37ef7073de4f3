"""A server's output on its way into its log file, without the values of secrets."""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path

from tgi_bench.launch.secrets import RedactedStream, Redactor

_CHUNK = 1 << 16


class Pump:
    """Copies what is written to `inlet` to the end of a file, in a thread of its own.

    Close `inlet` once the server has it. Raises OSError where the file cannot be opened. Where it
    cannot be written later, what comes is dropped: a server must not stand still for it.

    failure: why it could not be written, in one sentence; empty where it could.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self._stream = RedactedStream(redactor)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self.failure = ""
        self._outlet, self.inlet = os.pipe()
        self._stop_outlet, self._stop_inlet = os.pipe()
        self._inlet_open = True
        self._thread = threading.Thread(target=self._copy, name="log", daemon=True)
        self._thread.start()

    def close_inlet(self) -> None:
        """Our end of the pipe: only the server's own keep it open after that."""
        if self._inlet_open:
            self._inlet_open = False
            os.close(self.inlet)

    def drained(self, timeout_s: float) -> bool:
        """Whether everything is in the file, because every writer has ended; waits for it."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self, timeout_s: float) -> None:
        """Ends the copy, waiting that long for writers to end. Once is enough."""
        self.close_inlet()
        if not self.drained(timeout_s):
            os.write(self._stop_inlet, b"x")
            self._thread.join()

    def _copy(self) -> None:
        try:
            while True:
                readable, _, _ = select.select([self._outlet, self._stop_outlet], [], [])
                data = os.read(self._outlet, _CHUNK) if self._outlet in readable else b""
                if not data:
                    return
                self._write(self._stream.feed(data))
        finally:
            self._write(self._stream.end())
            self._file.close()
            for descriptor in (self._outlet, self._stop_outlet):
                os.close(descriptor)

    def _write(self, data: bytes) -> None:
        if self.failure:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            self.failure = f"{self._path} cannot be written: {error.strerror}"
