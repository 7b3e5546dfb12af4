"""GET /healthz, /readyz and /metrics: for orchestrators, load balancers and Prometheus."""

from typing import Annotated, Literal

from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.http.auth import Operator
from service.http.openapi import describe_problems, describe_response
from service.http.state import Chains, MetricsUse, Models

router = APIRouter(tags=["operations"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    ready: Literal[True] = True
    models: Annotated[
        list[str], Field(description="`name@version` of the newest version of each model.")
    ]


@router.get("/healthz", summary="Liveness")
async def healthz() -> Health:
    """Return 200 while the process runs."""
    return Health()


@router.get("/readyz", summary="Readiness", responses=describe_problems(503))
async def readyz(models: Models, chains: Chains) -> Ready:
    """Return 503 without a usable model, without the chain store, and during shutdown.

    Do not use this as a liveness probe: restarting the service does not bring Redis back.
    """
    models.require_any()
    await chains.check_ready()
    return Ready(models=[model.manifest.reference for model in models.newest()])


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: describe_response(
            "Prometheus' text format.", content={"text/plain": {"schema": {"type": "string"}}}
        )
    },
)
async def metrics(metrics: MetricsUse, caller: Operator) -> Response:
    """Return counters and histograms of this process; each replica has its own."""
    return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)
