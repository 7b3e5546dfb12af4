"""What Prometheus reads at GET /metrics: requests by route, chains, batches, models, process."""

from collections.abc import Callable, Iterator
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.chains.service import ChainService
from service.engine.repository import ModelRepository

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds


class _ChainCollector(Collector):
    """Counters of the chain service and the batcher, read when Prometheus asks."""

    def __init__(self, chains: ChainService) -> None:
        self._chains = chains

    def collect(self) -> Iterator[Metric]:
        chains, batcher, store = self._chains, self._chains.batcher, self._chains.store
        for name, text, value in (
            ("commits", "Chain states written to the store.", store.commits),
            (
                "conflicts",
                "Calls and commits refused because another call holds the lease.",
                store.conflicts,
            ),
            ("chains_opened", "Chains created or forked.", chains.created),
            ("row_steps", "Steps taken by chains, times their walkers.", batcher.chain_row_steps),
            ("batch_rows", "Rows computed by graph calls.", batcher.rows),
            ("batches", "Graph calls.", batcher.passes),
            # The name is kept for dashboards that read it.
            ("worker_failures", "Restarts of the compute thread.", batcher.restarts),
        ):
            yield CounterMetricFamily(f"localmoments_{name}", text, value=value)
        for name, text, value in (
            ("load_rows", "Rows queued or being computed.", batcher.load),
            ("chains_running", "Calls that are walking a chain.", chains.running),
        ):
            yield GaugeMetricFamily(f"localmoments_{name}", text, value=value)


class Metrics:
    """All metrics of one application.

    Requests are counted by route template, so that the number of labels stays small.
    """

    def __init__(self, models: ModelRepository, chains: ChainService) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_ChainCollector(chains))
        ProcessCollector(registry=self.registry)
        requests = Counter(
            "localmoments_requests_total",
            "Requests, by status of the response.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        seconds = Histogram(
            "localmoments_request_duration_seconds",
            "Time from the arrival of a request to the end of its response.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        # Finding the child of a label set takes longer than counting, so children are cached.
        self._requests = cache(lambda *labels: requests.labels(*map(str, labels)))
        self._seconds = cache(seconds.labels)
        self._add_gauge(
            "localmoments_models", "Models served.", lambda: len(models.catalogue.models)
        )
        self._add_gauge(
            "localmoments_models_refused",
            "Model versions that failed verification.",
            lambda: len(models.catalogue.refused),
        )

    def _add_gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(read)

    def count_request(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """Count a request; without `seconds` it has no part in the durations of its route."""
        method = method if method in METHODS else "other"
        self._requests(method, route, status).inc()
        if seconds is not None:
            self._seconds(method, route).observe(seconds)

    def render(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
