"""create_app(settings): everything is built and wired here, and nothing else happens here."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from importlib.metadata import version

from fastapi import FastAPI

from service.api import health, metrics, models, moments, problems, reconstruct
from service.api.metrics import Metrics
from service.api.middleware import BodyLimit, Observe, RequestIds
from service.api.openapi import documented
from service.engine.repository import Repository
from service.engine.worker import Worker
from service.sampling import Limits, Sampling
from service.settings import Settings

log = logging.getLogger(__name__)

ROUTERS = (reconstruct.router, moments.router, models.router, health.router, metrics.router)
DESCRIPTION = """Reconstructions and local moments (mean, covariance, tangents, score) of your data
from regularised auto-encoders. Numbers are in the units of the data. Examples are points of the
default model and run as written."""


def create_app(settings: Settings) -> FastAPI:
    repository = Repository(
        settings.models, default=settings.default_model, threads=settings.compute_threads
    )
    worker = Worker()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(repository.refresh)
        looking = asyncio.create_task(_keep_looking(repository, settings.reload_seconds))
        yield
        looking.cancel()
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
    app.state.metrics = Metrics(repository)
    for router in ROUTERS:
        app.include_router(router)
    problems.install(app)
    app.openapi = documented(app, repository)  # type: ignore[method-assign]  # FastAPI's own way
    # The last one added is the first to see a request.
    app.add_middleware(BodyLimit, most=settings.max_body_bytes)
    app.add_middleware(Observe, metrics=app.state.metrics)
    app.add_middleware(RequestIds)
    return app


def _limits(settings: Settings) -> Limits:
    return Limits(
        rows=settings.max_rows,
        points=settings.max_points,
        answer_values=settings.max_answer_values,
        full_jacobian_dims=settings.full_jacobian_dims,
    )


async def _keep_looking(repository: Repository, seconds: float) -> None:
    """New versions without a restart; one look that fails does not end the looking."""
    while seconds > 0:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(repository.refresh)
        except Exception:
            log.exception("the models folder could not be looked at")
