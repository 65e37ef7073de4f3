"""A server's /metrics: the room of its cache, its queue and its running batch, and how many tokens
of prompts came from a cache."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tgi_bench.ask import Asker, Asking, Contact, Reply
from tgi_bench.errors import InputError
from tgi_bench.load_observation import CacheCounters

_PATH = "/metrics"
_CAPACITY = re.compile(r"^tgi_batch_max_total_tokens(?:\{[^}]*\})? ([0-9.eE+]+)\s*$", re.MULTILINE)

_Gauges = tuple[tuple[str, float], ...]
_GAUGES = ("tgi_batch_current_max_tokens", "tgi_batch_current_size", "tgi_queue_size")
_GAUGE = re.compile(rf"^({'|'.join(_GAUGES)})(?:\{{[^}}]*\}})? ([0-9.eE+-]+)\s*$", re.MULTILINE)
_GAUGES_PATH = f"{_PATH}?" + "&".join(f"name%5B%5D={name}" for name in _GAUGES)
"""A server that knows no `name[]` answers with all of its metrics."""

CAPACITY_METRIC = "metric tgi_batch_max_total_tokens"


def capacity_of(contact: Contact) -> int | None:
    """The gauge tgi_batch_max_total_tokens (3.0.0 and newer), in tokens; None: it does not say."""
    match = _CAPACITY.search(_text(contact.ask(_PATH)))
    if match is None:
        return None
    try:
        return int(float(match[1])) or None
    except (ValueError, OverflowError):
        return None


def gauge_asker(contact: Contact) -> Callable[[], Callable[[], _Gauges]]:
    """Asks for /metrics each time, and gives what reads the answer.

    A server writes its metrics down when it is asked: something else can be done meanwhile.
    """

    def asked() -> Callable[[], _Gauges]:
        read = contact.begin(_GAUGES_PATH)
        return lambda: _gauges(_text(read()))

    return asked


def _gauges(text: str) -> _Gauges:
    """Queue and running batch; () where it does not tell."""
    try:
        return tuple(sorted((name, float(value)) for name, value in _GAUGE.findall(text)))
    except ValueError:
        return ()


def _text(answer: Reply | None) -> str:
    return "" if answer is None else answer.text


_TIMEOUT_S = 5.0
_MOST = 1e15
"""A counter above it is no number of tokens."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two counters. apart: prompts are counted without what was cached of them."""

    prompts: str
    cached: str
    apart: bool = False


_PAIRS = (
    _Pair("vllm:prompt_tokens_total", "vllm:prompt_tokens_cached_total"),
    _Pair("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    _Pair("vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_hits_total"),
    _Pair("sglang:prompt_tokens_total", "sglang:cached_tokens_total"),
    _Pair("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total", apart=True),
)
"""The first that is there is read. TGI counts nothing of its cache up to 3.3.7."""
_NAMES = "|".join(sorted({name for pair in _PAIRS for name in (pair.prompts, pair.cached)}))
_SAMPLE = re.compile(rf"^({_NAMES})(?:\{{[^\n]*\}})? (\S+)(?: \d+)?\s*$", re.MULTILINE)


def counted(text: str) -> CacheCounters | None:
    """Since the server began, over all labels; None where no pair is there."""
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        try:
            number = float(value)
        except ValueError:
            return None
        if not 0 <= number < _MOST:  # NaN neither
            return None
        sums[name] = sums.get(name, 0.0) + number
    for pair in _PAIRS:
        if pair.prompts in sums and pair.cached in sums:
            cached = round(sums[pair.cached])
            prompts = round(sums[pair.prompts]) + (cached if pair.apart else 0)
            return CacheCounters(prompts, cached, f"{_PATH}: {pair.cached}")
    return None


def between(before: CacheCounters, after: CacheCounters | None) -> CacheCounters | None:
    """What was counted meanwhile; None where the server began anew, or says something else."""
    if after is None or after.source != before.source:
        return None
    prompts = after.prompt_tokens - before.prompt_tokens
    cached = after.cached_tokens - before.cached_tokens
    if prompts < 0 or not 0 <= cached <= prompts:
        return None
    return replace(after, prompt_tokens=prompts, cached_tokens=cached)


def cache_asker(url: str, asking: Asking) -> Callable[[], CacheCounters | None]:
    """Asks /metrics each time, on a connection of its own; None where it does not tell."""
    soon = replace(asking, timeout_s=min(_TIMEOUT_S, asking.timeout_s))

    def ask() -> CacheCounters | None:
        try:
            with Asker(url, soon) as control:
                reply = control.get(_PATH)
        except InputError:
            return None  # "not checked" by this: the load itself says what is wrong with the server
        return counted(reply.text)

    return ask
