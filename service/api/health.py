"""GET /healthz: the process lives. GET /readyz: it has something to serve."""

from fastapi import APIRouter

from service.api.dependencies import Served, problem_responses
from service.api.schemas import Health, Ready

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Health:
    return Health()


@router.get("/readyz", summary="Can it serve?", responses=problem_responses(503))
async def readyz(served: Served) -> Ready:
    """503 while no model is usable, with the reason."""
    served.require_any()
    return Ready(models=[model.manifest.reference for model in served.newest()])
