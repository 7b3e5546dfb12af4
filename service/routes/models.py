"""GET /models and /models/{name}: the models served, their figures, and those refused."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from localmoments.artefact import Manifest
from localmoments.model import Model
from service.engine.repository import Catalogue
from service.http.auth import Reader
from service.http.fields import Row
from service.http.openapi import describe_problems
from service.http.state import Models

router = APIRouter(tags=["models"])


class Refused(BaseModel):
    """A model that failed verification and is not served."""

    model: str
    reason: Annotated[str, Field(description="What is wrong with it.")]


class Kernel(BaseModel):
    """A way to step from sample to sample."""

    space: Annotated[Literal["input", "hidden"], Field(description="Space of its state.")]
    scale: Annotated[float, Field(description="Default step size.")]


class ModelSummary(BaseModel):
    """What you need to know before the first request."""

    reference: Annotated[str, Field(description="`name@version`.")]
    name: str
    version: str
    versions: Annotated[list[str], Field(description="Versions served, newest first.")]
    default: Annotated[bool, Field(description="True for the default model.")]
    kind: Literal["cae", "dae", "rcae"]
    input_dims: Annotated[int, Field(description="Number of columns.")]
    image: Annotated[
        list[int] | None, Field(description="Shape of a row as an image, if it is one.")
    ]
    noise_levels: Annotated[
        list[float] | None, Field(description="Range of `sigma`, if there is one.")
    ]
    kernels: dict[str, Kernel]
    default_kernel: str
    provider: Annotated[str, Field(description="onnxruntime's execution provider.")]


class ModelDetail(ModelSummary):
    """Everything that is known about a model."""

    loss: str
    alpha: float
    sigma: Annotated[float, Field(description="Noise level of chains.")]
    moments_sigma: Annotated[
        float, Field(description="Noise level for clean rows: reconstruction and moments.")
    ]
    covariance_scale: Literal["absolute", "relative"]
    hidden_dims: int
    features: Annotated[list[str] | None, Field(description="Names of the columns.")]
    low: Annotated[
        Row,
        Field(description="Smallest value of each column among the start points, in data units."),
    ]
    high: Annotated[Row, Field(description="Largest value of each column.")]
    default_emit: Literal["mean", "noisy"]
    figures: Annotated[dict[str, Any], Field(description="Evaluation on held-out rows.")]
    data: dict[str, Any]
    libraries: dict[str, str]
    created: str
    card: Annotated[str, Field(description="The model card, as Markdown.")]
    refused: Annotated[list[Refused], Field(description="Versions that are not served.")]


class ModelList(BaseModel):
    default: Annotated[str | None, Field(description="`name@version` of the default model.")]
    models: list[ModelSummary]
    refused: list[Refused]


@router.get("/models", summary="List models")
async def models(served: Models, caller: Reader) -> ModelList:
    return ModelList(
        default=served.find_default(),
        models=[ModelSummary(**_summarise(model, served)) for model in served.newest()],
        refused=_list_refused(served),
    )


@router.get(
    "/models/{name}", summary="Describe a model", responses=describe_problems(404, 500, 503)
)
async def model(name: str, served: Models, caller: Reader) -> ModelDetail:
    """Return the card, figures and kernels of a model; `name@version` for an older version."""
    found = served.find(name)
    card, (low, high) = await asyncio.to_thread(lambda: (found.card(), _find_extent(found)))
    refused = [r for r in _list_refused(served) if r.model.partition("@")[0] == found.manifest.name]
    return ModelDetail(
        **_summarise(found, served), **_list_facts(found.manifest), card=card, refused=refused,
        low=low, high=high,
    )  # fmt: skip


def _summarise(model: Model, served: Catalogue) -> dict[str, Any]:
    m = model.manifest
    return {
        "reference": m.reference,
        "name": m.name,
        "version": m.version,
        "versions": list(served.models[m.name]),
        "default": m.reference == served.find_default(),
        "kind": m.kind,
        "input_dims": m.input_dims,
        "image": m.image,
        "noise_levels": m.noise_levels,
        "kernels": {name: {"space": k.space, "scale": k.scale} for name, k in m.kernels.items()},
        "default_kernel": m.default_kernel,
        "provider": model.provider,
    }


def _list_facts(m: Manifest) -> dict[str, Any]:
    names = ("loss", "alpha", "sigma", "moments_sigma", "covariance_scale", "hidden_dims",
             "features", "default_emit", "data", "libraries", "created")  # fmt: skip
    return {**{name: getattr(m, name) for name in names}, "figures": m.evaluation}


def _find_extent(model: Model) -> tuple[list[float], list[float]]:
    """Return the smallest and largest value of each column, for the axes of plots."""
    points = model.manifest.normaliser.to_user(model.start_points())  # (n, d)
    return points.min(axis=0).tolist(), points.max(axis=0).tolist()


def _list_refused(served: Catalogue) -> list[Refused]:
    return [Refused(model=r.model, reason=r.reason) for r in served.refused]
