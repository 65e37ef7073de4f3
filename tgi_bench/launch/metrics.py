"""A server's /metrics: the room of its cache, its queue and its running batch."""

from __future__ import annotations

import re
from collections.abc import Callable

from tgi_bench.ask import Contact, Reply
from tgi_bench.devices.observation import Gauges

_CAPACITY = re.compile(r"^tgi_batch_max_total_tokens(?:\{[^}]*\})? ([0-9.eE+]+)\s*$", re.MULTILINE)

_GAUGES = ("tgi_batch_current_max_tokens", "tgi_batch_current_size", "tgi_queue_size")
_GAUGE = re.compile(rf"^({'|'.join(_GAUGES)})(?:\{{[^}}]*\}})? ([0-9.eE+-]+)\s*$", re.MULTILINE)
_GAUGES_PATH = "/metrics?" + "&".join(f"name%5B%5D={name}" for name in _GAUGES)
"""A server that knows no `name[]` answers with all of its metrics."""

CAPACITY_METRIC = "metric tgi_batch_max_total_tokens"


def capacity_of(contact: Contact) -> int | None:
    """The gauge tgi_batch_max_total_tokens (3.0.0 and newer), in tokens; None: it does not say."""
    match = _CAPACITY.search(_text(contact.ask("/metrics")))
    if match is None:
        return None
    try:
        return int(float(match[1])) or None
    except (ValueError, OverflowError):
        return None


def gauge_asker(contact: Contact) -> Callable[[], Callable[[], Gauges]]:
    """Asks for /metrics each time, and gives what reads the answer.

    A server writes its metrics down when it is asked: something else can be done meanwhile.
    """
    return lambda: _asked_gauges(contact)


def _asked_gauges(contact: Contact) -> Callable[[], Gauges]:
    read = contact.begin(_GAUGES_PATH)
    return lambda: _gauges(_text(read()))


def _gauges(text: str) -> Gauges:
    """Queue and running batch; () where it does not tell."""
    try:
        return tuple(sorted((name, float(value)) for name, value in _GAUGE.findall(text)))
    except ValueError:
        return ()


def _text(answer: Reply | None) -> str:
    return "" if answer is None else answer.text
