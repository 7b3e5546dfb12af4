"""What the server and its models are, in the protocol's words, and whether they can serve."""

from importlib.metadata import version as version_of
from typing import Any

from fastapi import APIRouter, Request

from localmoments.errors import MediaTypeError
from service.chains.service import ChainService
from service.engine.repository import Catalogue, Refusal
from service.http import problems
from service.http.auth import Reader
from service.http.dependencies import Served, Walkable, body_of, problem_responses
from service.http.encodings import JSON, read_json
from service.http.negotiation import body_format
from service.oip.configuration import configured
from service.oip.paths import ModelName, Version
from service.oip.schemas import (
    IndexEntry,
    IndexRequest,
    Live,
    ModelConfiguration,
    ModelMetadata,
    ModelReady,
    ServerMetadata,
    ServerReady,
    TensorMetadata,
)
from service.oip.targets import CHAIN, Surface, find, names
from service.oip.tensors import Spec

router = APIRouter(tags=["inference protocol"])

EXTENSIONS = ["binary_tensor_data", "model_configuration", "model_repository",
              "sequence", "sequence(string_id)"]  # fmt: skip
PLATFORM = "onnxruntime_onnx"
PROBLEMS = problem_responses(404, 500, 503)


@router.get("/v2/health/live", summary="Is the process alive?")
async def live() -> Live:
    return Live()


@router.get("/v2/health/ready", summary="Can it serve?", responses=problem_responses(503))
async def ready(served: Served, chains: Walkable) -> ServerReady:
    """As /readyz."""
    served.require_any()
    await chains.check_ready()
    return ServerReady()


@router.get("/v2", summary="The server")
async def server(caller: Reader) -> ServerMetadata:
    version = version_of("localmoments")
    return ServerMetadata(name="localmoments", version=version, extensions=EXTENSIONS)


@router.get("/v2/models/{model}", summary="What a model takes and gives", responses=PROBLEMS)
async def metadata(model: ModelName, served: Served, caller: Reader) -> ModelMetadata:
    return _metadata(find(served, model), served)


@router.get(
    "/v2/models/{model}/versions/{version}", summary="The same of a version", responses=PROBLEMS
)
async def metadata_of_version(
    model: ModelName, version: Version, served: Served, caller: Reader
) -> ModelMetadata:
    return _metadata(find(served, model, version), served)


@router.get("/v2/models/{model}/ready", summary="Is a model served?", responses=PROBLEMS)
async def model_ready(
    model: ModelName, served: Served, chains: Walkable, caller: Reader
) -> ModelReady:
    return await _ready(find(served, model), chains)


@router.get(
    "/v2/models/{model}/versions/{version}/ready",
    summary="Is a version served?",
    responses=PROBLEMS,
)
async def version_ready(
    model: ModelName, version: Version, served: Served, chains: Walkable, caller: Reader
) -> ModelReady:
    return await _ready(find(served, model, version), chains)


@router.get(
    "/v2/models/{model}/config",
    summary="A model's configuration",
    response_model_exclude_none=True,
    responses=PROBLEMS,
)
async def configuration(
    request: Request, model: ModelName, served: Served, caller: Reader
) -> ModelConfiguration:
    """As Triton's clients read it."""
    return configured(find(served, model), request.app.state.graphs.rows)


@router.get(
    "/v2/models/{model}/versions/{version}/config",
    summary="A version's configuration",
    response_model_exclude_none=True,
    responses=PROBLEMS,
)
async def configuration_of_version(
    request: Request, model: ModelName, version: Version, served: Served, caller: Reader
) -> ModelConfiguration:
    return configured(find(served, model, version), request.app.state.graphs.rows)


@router.post(
    "/v2/repository/index",
    summary="All that can be asked",
    openapi_extra=body_of(IndexRequest, required=False, binary=False),
    responses=problem_responses(408, 413, 415, 422, 500, 503),
)
async def index(request: Request, served: Served, caller: Reader) -> list[IndexEntry]:
    """Every version of every model, with its graphs and its chains, and what was refused."""
    asked = await _index_request(request)
    entries = [
        IndexEntry(name=name, version=model.manifest.version, state="READY", reason="")
        for versions in served.models.values()
        for model in versions.values()
        for name in names(model.manifest)
    ]
    return entries if asked.ready else [*entries, *map(_refused, served.refused)]


async def _index_request(request: Request) -> IndexRequest:
    body = await request.body()
    if body and body_format(request) != JSON:
        raise MediaTypeError(f"This body is read as {JSON} only.")
    return problems.validated(IndexRequest, read_json(body) if body else {})


def _refused(refusal: Refusal) -> IndexEntry:
    name, _, version = refusal.model.partition("@")
    return IndexEntry(name=name, version=version, state="UNAVAILABLE", reason=refusal.reason)


async def _ready(surface: Surface, chains: ChainService) -> ModelReady:
    if surface.kind == CHAIN:
        await chains.check_ready()
    return ModelReady(name=surface.name)


def _metadata(surface: Surface, served: Catalogue) -> ModelMetadata:
    return ModelMetadata(
        name=surface.name,
        versions=list(served.models[surface.model_name]),
        platform=PLATFORM,
        inputs=[TensorMetadata(**_tensor(spec)) for spec in surface.inputs],
        outputs=[TensorMetadata(**_tensor(spec)) for spec in surface.outputs],
    )


def _tensor(spec: Spec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.sizes}
