"""create_app(settings): everything is built and wired here, and nothing else happens here."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from importlib.metadata import version

from fastapi import FastAPI
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from service.chains.planning import ChainLimits
from service.chains.service import ChainService
from service.engine.batcher import Batcher
from service.engine.executor import Executor
from service.engine.repository import ModelRepository
from service.http import metrics, problems
from service.http.auth import Keyring
from service.http.cors import CrossOrigin
from service.http.exchange import BodyLimits
from service.http.express import Express
from service.http.gate import Gate
from service.http.http_protocol import Refusal
from service.http.hurry import hurried
from service.http.keys import read_keys
from service.http.metrics import Metrics
from service.http.middleware import Edge
from service.http.openapi import documented
from service.http.siblings import Siblings
from service.inference import Inference, Limits
from service.oip import infer
from service.oip import metadata as about
from service.routes import chains, docs, health, models, moments, reconstruct, sample
from service.routes import playground as web
from service.settings import Settings
from service.store.chains import ChainStore

log = logging.getLogger(__name__)

ROUTERS = (  # those in a hurry first: they are looked through in this order
    reconstruct.router,
    sample.router,
    chains.router,
    moments.router,
    infer.router,
    about.router,
    models.router,
    health.router,
    metrics.router,
    web.router,
    docs.router,
)
DESCRIPTION = """Samples, reconstructions and local moments (mean, covariance, tangents, score) of
your data from regularised auto-encoders. Numbers are in the units of the data. Chains of samples
are kept, so that a later call goes on where the last one ended. Examples run as written on the
default model."""


class Application(FastAPI):
    """FastAPI behind the edge."""

    edge: ASGIApp
    refusal: Refusal | None = None  # for the server, before it makes a request of a head
    express: Express | None = None  # for the server, before it makes a task of a request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.edge(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Without Starlette's own answer to errors that nobody foresaw: the edge has a better."""
        stack = super().build_middleware_stack()
        return stack.app if isinstance(stack, ServerErrorMiddleware) else stack


def create_app(settings: Settings, store_url: str, siblings: Siblings | None = None) -> Application:
    """The application, over a store that is somebody else's to start and to end; one of several
    with the same address where it has siblings."""
    repository = ModelRepository(
        settings.models,
        default=settings.default_model,
        threads=settings.compute_threads,
        provider=settings.provider,
    )
    executor = Executor(Batcher(settings.max_batch_rows, settings.max_load_rows))
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
        await asyncio.to_thread(repository.prepare)
        looking = asyncio.create_task(_keep_looking(repository, settings.reload_seconds))
        async with siblings.telling(figures.own) if siblings else contextlib.nullcontext():
            yield
        looking.cancel()
        await store.close()
        executor.close()

    app = Application(
        title="localmoments",
        version=version("localmoments"),
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.models = repository
    app.state.sampling = Inference(repository, executor, _limits(settings))
    app.state.chains = ChainService(repository, executor, store, _chain_limits(settings))
    app.state.max_body_bytes = settings.max_body_bytes
    app.state.metrics = figures = Metrics(repository, app.state.chains, siblings)
    keys = read_keys(settings.keys_file)
    app.state.keyring = Keyring(keys) if keys else None
    for router in ROUTERS:
        app.router.routes += router.routes  # flat, so that a request is matched at once
    problems.install(app)
    app.openapi = documented(app, repository)  # type: ignore[method-assign]  # FastAPI's own way
    app.edge = edge = Edge(
        super(Application, app).__call__,
        hurried,
        BodyLimits(settings.max_body_bytes, settings.body_seconds),
        Gate(settings.max_requests, settings.max_wait_ms / 1000),
        app.state.metrics,
        outermost=not settings.cors_origins,
    )
    if settings.cors_origins:  # whose pages are to read refusals as well
        app.edge = CrossOrigin(edge, settings.cors_origins)
    else:
        app.refusal = edge.refusal
        if not keys:
            app.express = Express(app.state.sampling, edge, settings.max_body_bytes)
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


async def _keep_looking(repository: ModelRepository, seconds: float) -> None:
    """New versions without a restart; one look that fails does not end the looking."""
    while seconds > 0:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(repository.refresh)
        except Exception:
            log.exception("the models folder could not be looked at")
