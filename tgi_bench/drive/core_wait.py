"""How long the client itself waited for a core, from the kernel's own account of its threads."""

from __future__ import annotations

from pathlib import Path

_THREADS = Path("/proc/self/task")


class CoreWait:
    """The account as it is at this moment: by thread, the time in which it could have run and had
    no core. Empty where the kernel does not say (schedstat of Linux)."""

    def __init__(self) -> None:
        self._by_thread: dict[str, int] = {}
        try:
            for thread in _THREADS.iterdir():
                self._read(thread)
        except (OSError, ValueError, IndexError):
            self._by_thread = {}

    def _read(self, thread: Path) -> None:
        try:
            text = (thread / "schedstat").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            return  # it has ended since it was listed, or the kernel keeps no such account
        self._by_thread[thread.name] = int(text.split()[1])

    def until_ns(self, later: CoreWait) -> int | None:
        """The longest that one thread waited from then until `later`; None where nobody says.

        Waits of several threads lie beside each other or are of none that an answer waited for:
        their sum would be more than was lost.
        """
        if not self._by_thread or not later._by_thread:
            return None
        return max(
            waited - self._by_thread.get(thread, 0) for thread, waited in later._by_thread.items()
        )
