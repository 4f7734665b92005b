"""Figures for Prometheus, which `labeling.middleware.metrics` serves."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from engine.selectors import operator_figures

# The figures of this process. Gunicorn's processes share theirs through files (gunicorn.conf.py).
_OWN = CollectorRegistry()

REQUEST_SECONDS = Histogram(
    "llmpo_request_seconds",
    "Time of requests, by the name of their view.",
    ["view", "method", "status"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    registry=_OWN,
)
BUFFER_MISSES = Counter(
    "llmpo_buffer_misses",
    "Annotators of running experiments for whom no pair was ready.",
    ["experiment"],
    registry=_OWN,
)


class Installation(Collector):
    """Reads `operator_figures.figures` from the database for each scrape."""

    def collect(self) -> Iterator[Metric]:
        found = operator_figures.figures()
        yield CounterMetricFamily("llmpo_judgments", "Judgments ever written.", found.judgments)
        yield _gauge("llmpo_experiments", "Experiments.", ["state"], found.experiments)
        yield _gauge(
            "llmpo_comparisons",
            "Comparisons of running experiments that wait: planned, ready, or on somebody's screen.",
            ["experiment", "state"],
            found.comparisons,
        )
        yield _gauge(
            "llmpo_newest_assignments", "The newest 1,000 assignments.", ["state"], found.newest_assignments
        )
        yield GaugeMetricFamily(
            "llmpo_responses_waiting", "Responses that no worker has taken yet.", found.responses_waiting
        )
        yield GaugeMetricFamily(
            "llmpo_response_oldest_waiting_seconds",
            "How long the first of them has waited.",
            found.oldest_waiting_seconds,
        )
        yield _gauge(
            "llmpo_newest_responses",
            "The newest 1,000 responses that were written or failed.",
            ["state", "reason"],
            found.newest_responses,
        )
        yield GaugeMetricFamily(
            "llmpo_generation_tokens_per_second",
            "Tokens that were written within the last minute.",
            found.tokens_per_second,
        )
        yield _gauge(
            "llmpo_spent_24h",
            "Money that models cost in the last 24 hours.",
            ["model", "currency"],
            found.spent,
        )
        workers = {(worker.queue, worker.name): worker for worker in found.workers}
        yield _gauge(
            "llmpo_worker_seen_seconds",
            "Time since a worker's last sign of life.",
            ["queue", "worker"],
            {name: worker.seen_seconds for name, worker in workers.items()},
        )
        yield _gauge(
            "llmpo_worker_alive",
            "1 where a worker counts as alive.",
            ["queue", "worker"],
            {name: worker.alive for name, worker in workers.items()},
        )


def exposition() -> bytes:
    """Everything, in the text format of Prometheus."""
    registry = _OWN
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    site = CollectorRegistry()
    site.register(Installation())
    return generate_latest(registry) + generate_latest(site)


def _gauge(name: str, what: str, labels: list[str], values: Mapping[Any, float]) -> Metric:
    """A gauge for each value, by one label or a tuple of several."""
    family = GaugeMetricFamily(name, what, labels=labels)
    for key, value in values.items():
        family.add_metric([str(part) for part in (key if isinstance(key, tuple) else (key,))], value)
    return family
