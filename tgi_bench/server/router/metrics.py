"""The router's Prometheus metrics, under TGI's names.

Durations are seconds. Source: the public repository huggingface/text-generation-inference,
router/src/server.rs and backends/v3/src/backend.rs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import RouterLimits
from tgi_bench.wire.messages import Durations

DURATION_BUCKETS: Final = tuple(0.0001 * 1.5**k for k in range(1, 36))
BATCH_SIZE_BUCKETS: Final = tuple(range(1, 1025))


def length_buckets(largest: int) -> tuple[float, ...]:
    """A hundred equal steps up to `largest` tokens."""
    return tuple(largest / 100 * k for k in range(1, 101))


class Metrics:
    """All of one router's metrics, in a registry of its own."""

    def __init__(self, behaviour: Behaviour, limits: RouterLimits) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._tells_durations = behaviour.sends_durations
        Gauge("tgi_simulated", "1: this server simulates", registry=registry).set(1)

        self._define_requests(registry, limits)
        self._define_batches(registry, behaviour)
        if behaviour.sends_durations:
            self._forward_s = self._steps("tgi_batch_forward_duration", "The shards' forward")
            self._decode_s = self._steps("tgi_batch_decode_duration", "The shards' decode")
            self._concat_s = self._steps("tgi_batch_concat_duration", "Joining batches")
            self._filter_s = self._steps("tgi_batch_filter_duration", "Filtering a batch")
            self._skipped = Summary(
                "tgi_request_skipped_tokens", "Speculated tokens taken", registry=registry
            )

    def _define_requests(self, registry: CollectorRegistry, limits: RouterLimits) -> None:
        self.requests = Counter("tgi_request_count", "Requests", registry=registry)
        self.successes = Counter("tgi_request_success", "Answered requests", registry=registry)
        self.failures = Counter(
            "tgi_request_failure", "Failed requests", ["err"], registry=registry
        )
        self.queue_size = Gauge("tgi_queue_size", "Waiting requests", registry=registry)
        self.request_s = self._duration("tgi_request_duration", "Whole request")
        self.validation_s = self._duration("tgi_request_validation_duration", "Validation")
        self.queue_s = self._duration("tgi_request_queue_duration", "Waiting in the queue")
        self.inference_s = self._duration("tgi_request_inference_duration", "In a batch")
        self.time_per_token_s = self._duration(
            "tgi_request_mean_time_per_token_duration", "In a batch, per generated token"
        )
        self.input_tokens = self._sized(
            "tgi_request_input_length", "Prompt tokens", length_buckets(limits.max_input_tokens)
        )
        of_total = length_buckets(limits.max_total_tokens)
        self.generated_tokens = self._sized(
            "tgi_request_generated_tokens", "Generated tokens", of_total
        )
        self.max_new_tokens = self._sized(
            "tgi_request_max_new_tokens", "Tokens asked for", of_total
        )

    def _define_batches(self, registry: CollectorRegistry, behaviour: Behaviour) -> None:
        self.steps = self._counter("tgi_batch_inference_count", "Steps", "method")
        self.step_successes = self._counter(
            "tgi_batch_inference_success", "Steps that succeeded", "method"
        )
        self.step_failures = self._counter(
            "tgi_batch_inference_failure", "Steps that failed", "method"
        )
        self.concats = self._counter(
            "tgi_batch_concat", "Batches that joined a running one", "reason"
        )
        self.batch_size = Gauge(
            "tgi_batch_current_size", "Requests of the running batch", registry=registry
        )
        self.batch_max_tokens = Gauge(
            "tgi_batch_current_max_tokens", "Tokens set aside for the batch", registry=registry
        )
        if behaviour.total_tokens_metric:
            self.batch_total_limit: Gauge | None = Gauge(
                "tgi_batch_max_total_tokens", "Room of a running batch", registry=registry
            )
        else:
            self.batch_total_limit = None
        self.step_s = self._steps("tgi_batch_inference_duration", "A step as the router saw it")
        self.next_size = self._sized(
            "tgi_batch_next_size", "Requests of a new batch", BATCH_SIZE_BUCKETS
        )

    def shard_durations(self, method: str, durations: Durations | None) -> None:
        """Record what the shards said of a step; None: their version does not say."""
        if durations is None or not self._tells_durations:
            return
        self._forward_s.labels(method).observe(durations.forward_ns / 1e9)
        self._decode_s.labels(method).observe(durations.decode_ns / 1e9)
        if durations.concat_ns is not None:
            self._concat_s.labels(method).observe(durations.concat_ns / 1e9)

    def filtered(self, method: str, seconds: float) -> None:
        """Record the time that handing out the tokens and filtering a batch took."""
        if self._tells_durations:
            self._filter_s.labels(method).observe(seconds)

    def skipped(self, tokens: int) -> None:
        """Record tokens of one request and step beyond the first."""
        if self._tells_durations:
            self._skipped.observe(tokens)

    def render(self, names: Sequence[str] = ()) -> bytes:
        """The text exposition format 0.0.4, with TGI's names. names: of samples; (): all.

        prometheus_client ends a counter's name in _total; TGI does not.
        """
        lines: list[str] = []
        registry = self._registry.restricted_registry(names) if names else self._registry
        for metric in registry.collect():
            lines.append(f"# HELP {metric.name} {metric.documentation}")
            lines.append(f"# TYPE {metric.name} {metric.type}")
            lines.extend(_line(metric, sample) for sample in _kept(metric))
        return ("\n".join(lines) + "\n").encode()

    def _counter(self, name: str, what: str, label: str) -> Counter:
        return Counter(name, what, [label], registry=self._registry)

    def _duration(self, name: str, what: str) -> Histogram:
        return Histogram(name, what, buckets=DURATION_BUCKETS, registry=self._registry)

    def _steps(self, name: str, what: str) -> Histogram:
        return Histogram(name, what, ["method"], buckets=DURATION_BUCKETS, registry=self._registry)

    def _sized(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, what, buckets=buckets, registry=self._registry)


def _kept(metric: Metric) -> list[Sample]:
    return [sample for sample in metric.samples if not sample.name.endswith("_created")]


def _line(metric: Metric, sample: Sample) -> str:
    name = sample.name
    if metric.type == "counter":
        name = name.removesuffix("_total")
    labels = ",".join(f'{key}="{value}"' for key, value in sample.labels.items())
    value = f"{sample.value:g}" if sample.value == int(sample.value) else repr(sample.value)
    return f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"
