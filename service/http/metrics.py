"""GET /metrics: what Prometheus reads; of all workers together where there are several."""

from collections.abc import Iterable, Iterator
from functools import cache

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.responses import Response

from service.chains.service import ChainService
from service.engine.repository import ModelRepository
from service.http.auth import Operator
from service.http.siblings import Siblings

router = APIRouter(tags=["operations"])

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class _Tallies(Collector):
    """What chains did, read when asked for."""

    def __init__(self, chains: ChainService) -> None:
        self._chains = chains

    def collect(self) -> Iterator[Metric]:
        batcher, store, created = self._chains.batcher, self._chains.store, self._chains.created
        row_steps = batcher.chain_row_steps
        for name, text, value in (
            ("localmoments_commits", "States of chains written to the store.", store.commits),
            (
                "localmoments_conflicts",
                "Calls and commits refused because another call holds the chain's lease.",
                store.conflicts,
            ),
            ("localmoments_chains_opened", "Chains created, forks included.", created),
            ("localmoments_row_steps", "Steps of chains × their walkers.", row_steps),
            ("localmoments_batch_rows", "Rows that went through graphs.", batcher.rows),
            ("localmoments_batches", "Graph calls.", batcher.passes),
            ("localmoments_worker_failures", "Times the computation began anew.", batcher.restarts),
        ):
            yield CounterMetricFamily(name, text, value=value)
        yield GaugeMetricFamily("localmoments_load_rows", "Rows in work.", value=batcher.load)
        running = self._chains.running
        yield GaugeMetricFamily("localmoments_chains_running", "Chains walked now.", value=running)


# What is no sum over workers.
JOINED = {
    "localmoments_models": max,
    "localmoments_models_refused": max,
    "process_max_fds": max,
    "process_start_time_seconds": min,
}


class _Together(Collector):
    """Figures of several registries as those of one."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        values: dict[str, dict[tuple[str, frozenset[tuple[str, str]]], list[float]]] = {}
        for text in self._texts:
            for family in text_string_to_metric_families(text.decode()):
                families.setdefault(family.name, family)
                found = values.setdefault(family.name, {})
                for sample in family.samples:
                    labels = frozenset(sample.labels.items())
                    found.setdefault((sample.name, labels), []).append(sample.value)
        for name, family in families.items():
            join = min if name.endswith("_created") else JOINED.get(name, sum)
            family.samples = []
            for (sample_name, labels), each in values[name].items():
                family.add_sample(sample_name, dict(labels), join(each))
            yield family


class Metrics:
    """One registry an application; a route counts by its template, so that labels stay few."""

    def __init__(
        self, models: ModelRepository, chains: ChainService, siblings: Siblings | None = None
    ) -> None:
        self._siblings = siblings
        self.registry = CollectorRegistry()
        self.registry.register(_Tallies(chains))
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "localmoments_requests_total",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "localmoments_request_duration_seconds",
            "Time from a request's arrival to the end of its answer.",
            ("method", "route"),
            buckets=SECONDS,
            registry=self.registry,
        )
        # Looking a label up takes longer than counting; there are as many as routes and statuses.
        self._counted = cache(lambda *labels: self._requests.labels(*map(str, labels)))
        self._timed = cache(self._seconds.labels)
        self._watch(models)

    def _watch(self, models: ModelRepository) -> None:
        served = Gauge("localmoments_models", "Models that are served.", registry=self.registry)
        served.set_function(lambda: len(models.catalogue.models))
        refused = Gauge(
            "localmoments_models_refused", "Models that were refused.", registry=self.registry
        )
        refused.set_function(lambda: len(models.catalogue.refused))

    def own(self) -> bytes:
        """Of this process."""
        return generate_latest(self.registry)

    async def all(self) -> bytes:
        """Of the whole service."""
        if self._siblings is None:
            return self.own()
        together = CollectorRegistry()
        together.register(_Together([self.own(), *await self._siblings.told()]))
        return generate_latest(together)

    def request(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """`seconds` is None for what was refused from its head, which tells nothing of a route."""
        method = method if method in METHODS else "other"
        self._counted(method, route, status).inc()
        if seconds is not None:
            self._timed(method, route).observe(seconds)


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request, caller: Operator) -> Response:
    figures: Metrics = request.app.state.metrics
    return Response(await figures.all(), media_type=CONTENT_TYPE_LATEST)
