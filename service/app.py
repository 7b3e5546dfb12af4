"""create_app(settings): everything is built and wired here, and nothing else happens here."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from importlib.metadata import version

from fastapi import FastAPI

from service.api import (
    chains,
    health,
    metrics,
    models,
    moments,
    problems,
    reconstruct,
    sample,
)
from service.api.auth import Keyring
from service.api.keys import read_keys
from service.api.metrics import Metrics
from service.api.middleware import (
    BodyLimit,
    BodyTime,
    CrossOrigin,
    Departures,
    Observe,
    RequestIds,
)
from service.api.openapi import documented
from service.chains.limits import ChainLimits
from service.chains.use_cases import Chains
from service.engine.batcher import Batcher
from service.engine.repository import Repository
from service.engine.worker import Worker
from service.sampling import Limits, Sampling
from service.settings import Settings
from service.store.chains import ChainStore

log = logging.getLogger(__name__)

ROUTERS = (  # those in a hurry first: they are looked through in this order
    reconstruct.router,
    sample.router,
    chains.router,
    moments.router,
    models.router,
    health.router,
    metrics.router,
)
DESCRIPTION = """Samples, reconstructions and local moments (mean, covariance, tangents, score) of
your data from regularised auto-encoders. Numbers are in the units of the data. Chains of samples
are kept, so that a later call goes on where the last one ended. Examples run as written on the
default model."""


def create_app(settings: Settings, store_url: str) -> FastAPI:
    """The application, over a store that is somebody else's to start and to end."""
    repository = Repository(
        settings.models, default=settings.default_model, threads=settings.compute_threads
    )
    worker = Worker(Batcher(settings.max_batch_rows, settings.max_load_rows))
    store = ChainStore(
        store_url,
        chain_seconds=settings.chain_seconds,
        tombstone_seconds=settings.tombstone_seconds,
        lease_seconds=settings.lease_seconds,
        timeout=settings.store_seconds,
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(repository.refresh)
        looking = asyncio.create_task(_keep_looking(repository, settings.reload_seconds))
        yield
        looking.cancel()
        await store.close()
        worker.close()

    app = FastAPI(
        title="localmoments",
        version=version("localmoments"),
        description=DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.models = repository
    app.state.sampling = Sampling(repository, worker, _limits(settings))
    app.state.chains = Chains(repository, worker, store, _chain_limits(settings))
    app.state.metrics = Metrics(repository, app.state.chains)
    keys = read_keys(settings.keys_file)
    app.state.keyring = Keyring(keys) if keys else None
    for router in ROUTERS:
        app.router.routes += router.routes  # flat, so that a request is matched at once
    problems.install(app)
    app.openapi = documented(app, repository)  # type: ignore[method-assign]  # FastAPI's own way
    # The last one added is the first to see a request.
    app.add_middleware(BodyTime, seconds=settings.body_seconds)
    app.add_middleware(BodyLimit, most=settings.max_body_bytes)
    app.add_middleware(Departures)
    app.add_middleware(Observe, metrics=app.state.metrics)
    if settings.cors_origins:
        app.add_middleware(CrossOrigin, origins=settings.cors_origins)
    app.add_middleware(RequestIds)
    return app


def _limits(settings: Settings) -> Limits:
    return Limits(
        rows=settings.max_rows,
        points=settings.max_points,
        answer_values=settings.max_answer_values,
        full_jacobian_dims=settings.full_jacobian_dims,
    )


def _chain_limits(settings: Settings) -> ChainLimits:
    return ChainLimits(
        walkers=settings.max_rows,
        row_steps=settings.max_row_steps,
        values=settings.max_sample_values,
    )


async def _keep_looking(repository: Repository, seconds: float) -> None:
    """New versions without a restart; one look that fails does not end the looking."""
    while seconds > 0:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(repository.refresh)
        except Exception:
            log.exception("the models folder could not be looked at")
