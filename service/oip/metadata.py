"""Health, server and model metadata, and the repository index."""

from importlib.metadata import version as get_version
from typing import Any

from fastapi import APIRouter, Request

from service.engine.repository import Catalogue
from service.http.auth import Reader
from service.http.bodies import read_model
from service.http.openapi import describe_body, describe_problems
from service.http.state import Chains, Models
from service.oip.schemas import (
    IndexEntry,
    IndexRequest,
    Live,
    ModelMetadata,
    ModelReady,
    ServerMetadata,
    ServerReady,
    TensorMetadata,
)
from service.oip.targets import ModelName, Target, Version, find_target, list_names
from service.oip.tensors import TensorSpec

router = APIRouter(tags=["inference protocol"])

EXTENSIONS = ["binary_tensor_data", "model_repository"]
PLATFORM = "onnxruntime_onnx"
PROBLEMS = describe_problems(404, 500, 503)


@router.get("/v2/health/live", summary="Liveness")
async def check_live() -> Live:
    """Answer as long as the process serves requests."""
    return Live()


@router.get("/v2/health/ready", summary="Readiness", responses=describe_problems(503))
async def check_ready(catalogue: Models, chains: Chains) -> ServerReady:
    """Report whether a model is loaded and the chain store answers. The same as `/readyz`."""
    catalogue.require_any()
    await chains.check_ready()
    return ServerReady()


@router.get("/v2", summary="Server metadata")
async def get_server_metadata(caller: Reader) -> ServerMetadata:
    """Return name, version and supported protocol extensions."""
    version = get_version("localmoments")
    return ServerMetadata(name="localmoments", version=version, extensions=EXTENSIONS)


@router.get("/v2/models/{model}", summary="Model metadata", responses=PROBLEMS)
async def get_metadata(model: ModelName, catalogue: Models, caller: Reader) -> ModelMetadata:
    """Return the inputs and outputs of a model, and its versions."""
    return _describe(find_target(catalogue, model), catalogue)


@router.get(
    "/v2/models/{model}/versions/{version}", summary="Metadata of one version", responses=PROBLEMS
)
async def get_version_metadata(
    model: ModelName, version: Version, catalogue: Models, caller: Reader
) -> ModelMetadata:
    """Return the inputs and outputs of one version of a model."""
    return _describe(find_target(catalogue, model, version), catalogue)


@router.get("/v2/models/{model}/ready", summary="Model readiness", responses=PROBLEMS)
async def check_model_ready(model: ModelName, catalogue: Models, caller: Reader) -> ModelReady:
    """Report whether a model can be run; 404 if it is not loaded."""
    return ModelReady(name=find_target(catalogue, model).name)


@router.get(
    "/v2/models/{model}/versions/{version}/ready",
    summary="Readiness of one version",
    responses=PROBLEMS,
)
async def check_version_ready(
    model: ModelName, version: Version, catalogue: Models, caller: Reader
) -> ModelReady:
    """Report whether one version of a model can be run; 404 if it is not loaded."""
    return ModelReady(name=find_target(catalogue, model, version).name)


@router.post(
    "/v2/repository/index",
    summary="Repository index",
    openapi_extra=describe_body(IndexRequest, required=False, binary=False),
    responses=describe_problems(408, 413, 415, 422, 500, 503),
)
async def list_models(request: Request, catalogue: Models, caller: Reader) -> list[IndexEntry]:
    """List every version of every model and its graphs, and the models that failed to load."""
    body = await read_model(request, IndexRequest)
    entries = [
        IndexEntry(name=name, version=model.manifest.version, state="READY", reason="")
        for versions in catalogue.models.values()
        for model in versions.values()
        for name in list_names(model.manifest)
    ]
    if body.ready:
        return entries
    for refusal in catalogue.refused:
        name, _, version = refusal.model.partition("@")
        entries.append(
            IndexEntry(name=name, version=version, state="UNAVAILABLE", reason=refusal.reason)
        )
    return entries


def _describe(target: Target, catalogue: Catalogue) -> ModelMetadata:
    return ModelMetadata(
        name=target.name,
        versions=list(catalogue.models[target.model.manifest.name]),
        platform=PLATFORM,
        inputs=[TensorMetadata(**_describe_tensor(spec)) for spec in target.inputs],
        outputs=[TensorMetadata(**_describe_tensor(spec)) for spec in target.outputs],
    )


def _describe_tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.wire_shape}
