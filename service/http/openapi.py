"""/openapi.json: helpers for routes to describe themselves, and the document made of them.

Routes declare their bodies, responses, headers and links with the functions at the top. FastAPI
writes the document; `make_openapi` corrects what FastAPI cannot know and adds examples. The
examples run as written: they are points of the default model.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from localmoments.arrays import Reals
from localmoments.errors import LocalMomentsError
from localmoments.model import Model
from service.chains.spec import CHAIN_ID
from service.engine.repository import ModelRepository
from service.http.encodings import JSON, NPY
from service.http.problems import KINDS, PROBLEM, Problem

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]

REFERENCE = "#/components/schemas/{model}"
BINARY: Schema = {"schema": {"type": "string", "format": "binary"}}
STEP: Schema = {"type": "integer", "minimum": 0}
HEADERS: dict[str, Schema] = {
    name: {"description": text, "required": required, "schema": schema}
    for name, text, required, schema in (
        ("X-Request-ID", "The request's own id, or a new one.", True, {"type": "string"}),
        ("X-Model", "`name@version` of the model used.", True, {"type": "string"}),
        ("X-Chain-Id", "Id of the chain.", True, {"type": "string", "pattern": CHAIN_ID}),
        ("X-Chain-Step", "The chain's step at the end of this response.", True, STEP),
        ("Location", "Path of the new chain.", True, {"type": "string", "format": "uri-reference"}),
        ("WWW-Authenticate", "How to send an API key.", True, {"type": "string"}),
        ("Retry-After", "Seconds until a retry may succeed.", False, STEP | {"minimum": 1}),
        ("Inference-Header-Content-Length",
         "Length of the JSON part in bytes, if binary tensors follow it.", False, STEP),
    )
}  # fmt: skip
CHAIN_HEADERS = ("X-Model", "X-Chain-Id", "X-Chain-Step")
CHAIN_LINKS: Schema = {
    name: {"operationRef": reference, "parameters": {parameter: "$response.header.X-Chain-Id"}}
    for name, reference, parameter in (
        ("resume", "#/paths/~1sample/post", "chain"),
        ("status", "#/paths/~1chains~1{id}/get", "id"),
        ("moments", "#/paths/~1moments/get", "chain"),
        ("fork", "#/paths/~1chains~1{id}~1fork/post", "id"),
        ("delete", "#/paths/~1chains~1{id}/delete", "id"),
    )
}
PROBLEM_HEADERS = {401: ["WWW-Authenticate"], 429: ["Retry-After"], 503: ["Retry-After"]}
SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
EXAMPLE_COLUMNS = 64  # an example in a query has at most as many numbers


def describe_body(
    model: type[BaseModel], *, required: bool = True, binary: bool = True
) -> Schema:  # fmt: skip
    """Describe a body that the handler reads itself: JSON, and with `binary` also `.npy` rows."""
    content: Schema = {JSON: {"schema": model.model_json_schema(ref_template=REFERENCE)}}
    if binary:
        rows = BINARY["schema"] | {"description": "Rows × columns of real numbers."}
        content[NPY] = {"schema": rows}
    return {"requestBody": {"required": required, "content": content}}


def describe_response(
    description: str,
    model: type[BaseModel] | None = None,
    *headers: str,
    content: Mapping[str, Schema] | None = None,
    links: Schema | None = None,
) -> dict[str, Any]:
    """Describe a successful response: JSON by its model, other formats by `content`."""
    response: dict[str, Any] = {"description": description, "headers": _refer_headers(*headers)}
    given = {"model": model, "content": content, "links": links}
    return response | {name: value for name, value in given.items() if value is not None}


def describe_problems(*statuses: int) -> Responses:
    """Describe the problems that a route may return."""
    content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses: Responses = {}
    for status in statuses:
        titles = dict.fromkeys(kind.title for kind in KINDS.values() if kind.status == status)
        headers = _refer_headers(*PROBLEM_HEADERS.get(status, ()))
        responses[status] = {
            "description": "; ".join(titles), "content": content, "headers": headers,
        }  # fmt: skip
    return responses


def _refer_headers(*names: str) -> Schema:
    return {n: {"$ref": f"#/components/headers/{n}"} for n in ("X-Request-ID", *names)}


def make_openapi(app: FastAPI, models: ModelRepository) -> Callable[[], Schema]:
    """Return a function for `app.openapi`; its examples follow the models that are served."""
    document: Schema = {}
    shown: tuple[object, Schema] = (None, {})

    def openapi() -> Schema:
        nonlocal shown
        if not document:
            document.update(_write_document(app))
        if shown[0] is not models.catalogue:
            shown = models.catalogue, _add_examples(document, *_find_example_model(models))
        return shown[1]

    return openapi


def _write_document(app: FastAPI) -> Schema:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = document["components"]
    components["headers"] = HEADERS
    schemas = components["schemas"]
    schemas |= _split_definitions("Problem", Problem.model_json_schema(ref_template=REFERENCE))
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, never sent here
        schemas.pop(name, None)
    for path in document["paths"].values():
        for operation in path.values():
            _correct_parameters(operation)
            _declare_request_id(operation)
            schemas |= _pop_definitions(operation)
    _describe_security(document, has_keys=app.state.keyring is not None)
    return document


def _split_definitions(name: str, schema: Schema) -> Schema:
    return {**schema.pop("$defs", {}), name: schema}


def _pop_definitions(operation: Schema) -> Schema:
    """Take out the schemas that the schema of a body or a response refers to."""
    found: Schema = {}
    for part in (operation.get("requestBody", {}), *operation["responses"].values()):
        for media in part.get("content", {}).values():
            found |= media.get("schema", {}).pop("$defs", {})
            found |= media.get("itemSchema", {}).pop("$defs", {})
    return found


def _correct_parameters(operation: Schema) -> None:
    """Describe query parameters as they are: never null, and lists separated by commas."""
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:
            rest = {name: value for name, value in schema.items() if name != "anyOf"}
            schema = parameter["schema"] = {**kinds[0], **rest}
        if schema.get("type") == "array":
            parameter.update(style="form", explode=False)
    # FastAPI adds its own 422 to every route with parameters. Ours is a problem.
    if JSON in operation["responses"].get("422", {}).get("content", {}):
        del operation["responses"]["422"]


def _declare_request_id(operation: Schema) -> None:
    """The middleware adds X-Request-ID to every response."""
    for response in operation["responses"].values():
        response["headers"] = _refer_headers() | response.get("headers", {})


def _describe_security(document: Schema, has_keys: bool) -> None:
    """With keys, say which scope an operation needs and how it refuses; without keys, nothing."""
    document["components"].pop("securitySchemes", None)
    if has_keys:
        document["components"]["securitySchemes"] = SECURITY_SCHEMES
    for operation in (each for path in document["paths"].values() for each in path.values()):
        needs = operation.pop("security", None)
        if needs and has_keys:
            operation["security"] = [{scheme: [*needs[0]]} for scheme in SECURITY_SCHEMES]
            for status, problem in describe_problems(401, 403, 429).items():
                operation["responses"][str(status)] = problem
        elif needs:
            for status in ("401", "403"):
                operation["responses"].pop(status, None)


def _find_example_model(models: ModelRepository) -> tuple[Model | None, bool]:
    """Return the model of the examples, and whether it is the default.

    That is the default model if its rows are short enough to read, otherwise the narrowest one.
    """
    try:
        default = models.find()
    except LocalMomentsError:
        return None, False
    if default.manifest.input_dims <= EXAMPLE_COLUMNS:
        return default, True
    narrowest = min(models.catalogue.newest(), key=lambda model: model.manifest.input_dims)
    is_narrower = narrowest.manifest.input_dims < default.manifest.input_dims
    return (narrowest, False) if is_narrower else (default, True)


def _add_examples(document: Schema, model: Model | None, is_default: bool) -> Schema:
    """Return a copy of the document with examples for this model."""
    document = copy.deepcopy(document)
    try:
        points = None if model is None else _example_points(model)
    except LocalMomentsError:  # the start points cannot be read; requests will say so
        points = None
    if model is None or points is None:
        return document
    paths, rows, manifest = document["paths"], points.tolist(), model.manifest
    named = {} if is_default else {"model": manifest.name}
    if manifest.input_dims <= EXAMPLE_COLUMNS:
        _set_examples(paths["/moments"]["get"], x=",".join(map(str, rows[0])), **named)
    bodies: dict[str, Schema] = {
        "/moments": {**named, "x": rows, "rank": 2},
        "/reconstruct": {**named, "x": rows},
        "/sample": {"walkers": 2, "steps": 20, "thin": 10, "seed": 7},
    }
    for path, operations in paths.items():
        for operation in operations.values():
            _set_examples(operation, name=manifest.name)
            if path.startswith("/v2/models/{model}"):
                _set_examples(operation, model=manifest.name, version=manifest.version)
        if path.endswith("/infer"):
            bodies[path] = {"inputs": [_example_tensor(points)]}
    for path, body in bodies.items():
        paths[path]["post"]["requestBody"]["content"][JSON]["example"] = body
    return document


def _example_points(model: Model) -> Reals:
    """Return two of the model's start points in the units of the data, with few digits."""
    is_wide = model.manifest.input_dims > EXAMPLE_COLUMNS
    points = model.manifest.normaliser.to_user(model.start_points()[:2])
    rounded: Reals = points.round(1 if is_wide and points.max() > 10 else 2 if is_wide else 4)
    return rounded


def _example_tensor(points: Reals) -> Schema:
    shape, data = list(points.shape), points.ravel().tolist()
    return {"name": "x", "shape": shape, "datatype": "FP64", "data": data}


def _set_examples(operation: Schema, **values: str) -> None:
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in values:
            parameter["example"] = values[parameter["name"]]
