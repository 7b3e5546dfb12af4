"""`create_app`: build the parts of the service from the settings and connect them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from service.chains.planning import ChainLimits
from service.chains.service import ChainService
from service.engine.batcher import Batcher
from service.engine.executor import Executor
from service.engine.repository import ModelRepository
from service.http.auth import Keyring
from service.http.keys import read_keys
from service.http.metrics import Metrics
from service.http.middleware import REQUEST_ID, HttpLimits, RequestMiddleware
from service.http.openapi import make_openapi
from service.inference import Inference, Limits
from service.oip import infer, metadata
from service.routes import chains, health, models, moments, pages, reconstruct, sample
from service.settings import Settings
from service.store.chains import ChainStore

log = logging.getLogger(__name__)

ROUTERS = (  # Starlette tries routes in this order, so the most frequent ones come first
    reconstruct.router,
    infer.router,
    sample.router,
    chains.router,
    moments.router,
    metadata.router,
    models.router,
    health.router,
    pages.router,
)
DESCRIPTION = """Samples, reconstructions and local moments (mean, covariance, tangents, score) of
your data, from regularised auto-encoders. Numbers are in the units of the data. Chains of samples
are stored, so that a later call can continue where the last one stopped. The examples run as
written."""


class Application(FastAPI):
    """FastAPI without its own error handling, which RequestMiddleware replaces."""

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = AsyncExitStackMiddleware(self.router)  # FastAPI's routes need it
        for wrap, args, options in reversed(self.user_middleware):
            app = wrap(app, *args, **options)
        return app


def create_app(settings: Settings, store_url: str) -> FastAPI:
    """Return the application. Its caller starts and stops the store at `store_url`."""
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
    chain_service = ChainService(repository, executor, store, _chain_limits(settings))
    metrics = Metrics(repository, chain_service)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(repository.refresh)
        await asyncio.to_thread(repository.prepare)
        reloading = asyncio.create_task(_reload_models(repository, settings.reload_seconds))
        yield
        reloading.cancel()
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
        # Looking for an OpenTelemetry provider costs 6 % of a small request; see /metrics instead.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        middleware=[  # the first is the outermost, so that refusals have CORS headers, too
            *([_cors(settings)] if settings.cors_origins else []),
            Middleware(RequestMiddleware, limits=_http_limits(settings), metrics=metrics),
        ],
    )
    app.state.models = repository
    app.state.inference = Inference(repository, executor, _limits(settings))
    app.state.chains = chain_service
    app.state.max_body_bytes = settings.max_body_bytes
    app.state.metrics = metrics
    keys = read_keys(settings.keys_file)
    app.state.keyring = Keyring(keys) if keys else None
    for router in ROUTERS:
        app.router.routes += router.routes  # `include_router` would add a layer to every request
    app.openapi = make_openapi(app, repository)  # type: ignore[method-assign]  # as FastAPI advises
    return app


def _cors(settings: Settings) -> Middleware:
    """Let pages of these origins call the API. No cookies are read, so `*` exposes no session."""
    return Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("authorization", "content-type", "idempotency-key", "x-api-key",
                       REQUEST_ID),
        expose_headers=("retry-after", "x-chain-id", "x-chain-step", "x-model", REQUEST_ID),
    )  # fmt: skip


def _http_limits(settings: Settings) -> HttpLimits:
    return HttpLimits(
        requests=settings.max_requests,
        body_bytes=settings.max_body_bytes,
        body_seconds=settings.body_seconds,
        write_seconds=settings.write_seconds,
    )


def _limits(settings: Settings) -> Limits:
    return Limits(
        rows=settings.max_rows,
        points=settings.max_points,
        answer_values=settings.max_answer_values,
    )


def _chain_limits(settings: Settings) -> ChainLimits:
    return ChainLimits(
        walkers=settings.max_rows,
        row_steps=settings.max_row_steps,
        values=settings.max_sample_values,
    )


async def _reload_models(repository: ModelRepository, seconds: float) -> None:
    """Look for new models every `seconds`; 0 never looks."""
    while seconds > 0:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(repository.refresh)
        except Exception:  # try again at the next turn
            log.exception("could not read the models folder")
