"""GET /models and /models/{name}: what is served, how good it is, and what was refused."""

import asyncio
from typing import Any

from fastapi import APIRouter

from localmoments.artefact import Manifest
from localmoments.errors import RequestError
from localmoments.model import Model
from service.engine.repository import Catalogue
from service.http.auth import Reader
from service.http.dependencies import Served, problem_responses
from service.http.schemas import ModelDetail, Models, ModelSummary, Refused

router = APIRouter(tags=["models"])


@router.get("/models", summary="All models")
async def models(served: Served, caller: Reader) -> Models:
    return Models(
        default=_default(served),
        models=[ModelSummary(**_summary(model, served)) for model in served.newest()],
        refused=_refused(served),
    )


@router.get("/models/{name}", summary="One model", responses=problem_responses(404, 500, 503))
async def model(name: str, served: Served, caller: Reader) -> ModelDetail:
    """Its card, its figures, its kernels; `name@version` for a version that is not the newest."""
    found = served.find(name)
    card, (low, high) = await asyncio.to_thread(lambda: (found.card(), _extent(found)))
    refused = [r for r in _refused(served) if r.model.partition("@")[0] == found.manifest.name]
    return ModelDetail(
        **_summary(found, served), **_facts(found.manifest), card=card, refused=refused,
        low=low, high=high,
    )  # fmt: skip


def _default(served: Catalogue) -> str | None:
    try:
        return served.find().manifest.reference if served.models else None
    except RequestError:  # a setting names a model that is not there
        return None


def _summary(model: Model, served: Catalogue) -> dict[str, Any]:
    m = model.manifest
    return {
        "reference": m.reference,
        "name": m.name,
        "version": m.version,
        "versions": list(served.models[m.name]),
        "default": m.reference == _default(served),
        "kind": m.kind,
        "input_dims": m.input_dims,
        "image": m.image,
        "noise_levels": m.noise_levels,
        "kernels": {name: {"space": k.space, "scale": k.scale} for name, k in m.kernels.items()},
        "default_kernel": m.default_kernel,
        "provider": model.provider,
    }


def _facts(m: Manifest) -> dict[str, Any]:
    names = ("loss", "alpha", "sigma", "moments_sigma", "covariance_scale", "hidden_dims",
             "features", "default_emit", "data", "libraries", "created")  # fmt: skip
    return {**{name: getattr(m, name) for name in names}, "figures": m.evaluation}


def _extent(model: Model) -> tuple[list[float], list[float]]:
    """The least and the largest of every column, which plots and pictures are scaled by."""
    points = model.manifest.normaliser.to_user(model.start_points())  # (n, d)
    return points.min(axis=0).tolist(), points.max(axis=0).tolist()


def _refused(served: Catalogue) -> list[Refused]:
    return [Refused(model=r.model, reason=r.reason) for r in served.refused]
