"""Durations and counts for people: "8.2 ms", "1.4 s", "2 min 05 s"; "1 trial", "2 trials"."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """The duration in the largest unit that keeps it above 1, minutes and hours with the next."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.1f} ms" if seconds < 0.09995 else f"{seconds * 1e3:.0f} ms"
    if seconds < 59.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def counted(number: int, noun: str) -> str:
    """The number with its noun, which takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
