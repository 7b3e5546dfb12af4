"""GET /healthz: the process lives. GET /readyz: it has something to serve."""

from fastapi import APIRouter

from service.http.dependencies import Served, Walkable, problem_responses
from service.http.schemas import Health, Ready

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Health:
    return Health()


@router.get("/readyz", summary="Can it serve?", responses=problem_responses(503))
async def readyz(served: Served, chains: Walkable) -> Ready:
    """503 while no model is usable, the chain store is down or the end is near; it says which."""
    served.require_any()
    await chains.check_ready()
    return Ready(models=[model.manifest.reference for model in served.newest()])
