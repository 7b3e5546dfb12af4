"""/openapi.json, with examples that run as written: they are points of the default model.

FastAPI describes the routes once; the examples follow the models that are served at the moment.
"""

import copy
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from localmoments.arrays import Reals
from localmoments.errors import LocalMomentsError
from localmoments.model import Model
from service.engine.repository import ModelRepository
from service.http import auth, stream_schemas
from service.http.encodings import JSON
from service.http.schemas import CHAIN, Problem
from service.oip import infer

Schema = dict[str, Any]

STEP = {"type": "integer", "minimum": 0}
HEADERS: dict[str, tuple[str, Schema]] = {
    "X-Request-ID": ("the caller's own, or a new one; the log has it", {"type": "string"}),
    "X-Model": ("`name@version` that answered", {"type": "string"}),
    "X-Chain-Id": ("the chain, to go on with", {"type": "string", "pattern": CHAIN}),
    "X-Chain-Step": ("where the chain stands at the end of this answer", STEP),
    "Location": ("the new chain", {"type": "string", "format": "uri-reference"}),
    "Retry-After": ("in so many seconds it may succeed", {"type": "integer", "minimum": 1}),
    "Inference-Header-Content-Length": ("bytes of the JSON head, where bytes follow it", STEP),
    "WWW-Authenticate": ("how a key is sent", {"type": "string"}),
}
SOMETIMES = {"Retry-After", "Inference-Header-Content-Length"}  # unknown, or not needed
READABLE = 64  # columns that a point in a query may have as an example
MODEL = ("X-Model",)
INFER = ("X-Model", "Inference-Header-Content-Length")
CHAINS = ("X-Model", "X-Chain-Id", "X-Chain-Step")
HEADERS_OF = {
    "401": ("WWW-Authenticate",),
    "429": ("Retry-After",),
    "503": ("Retry-After",),
    "post /sample 200": CHAINS,
    "get /chains/{id} 200": CHAINS,
    "post /chains/{id}/fork 201": (*CHAINS, "Location"),
    "post /reconstruct 200": MODEL,
    "get /moments 200": MODEL,
    "post /moments 200": MODEL,
    f"post {infer.PATH} 200": INFER,
    f"post {infer.PATH_OF_VERSION} 200": INFER,
}
LINKS = {  # of an answer that names a chain: method, path, and where the id goes
    "go_on": ("post", "/sample", "chain"),
    "look": ("get", "/chains/{id}", "id"),
    "moments": ("get", "/moments", "chain"),
    "fork": ("post", "/chains/{id}/fork", "id"),
    "end": ("delete", "/chains/{id}", "id"),
}


def documented(app: FastAPI, models: ModelRepository) -> Callable[[], Schema]:
    """A function in the place of `app.openapi`."""
    described: Schema = {}
    shown: tuple[object, Schema] = (None, {})

    def openapi() -> Schema:
        nonlocal shown
        if not described:
            described.update(_described(app))
        if shown[0] is not models.catalogue:
            shown = models.catalogue, _with_examples(described, _default(models))
        return shown[1]

    return openapi


def _described(app: FastAPI) -> Schema:
    schema = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = schema["components"]["schemas"]
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    components |= {**problem.pop("$defs"), "Problem": problem}
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, never sent here
        components.pop(name, None)
    for path in schema["paths"].values():
        for operation in path.values():
            _correct(operation)
            components |= _parts(operation)
    components |= stream_schemas.parts()
    auth.describe(schema, keys=app.state.keyring is not None)
    _add_headers(schema)
    _add_links(schema["paths"])
    return schema


def _correct(operation: Schema) -> None:
    """Nothing in a query is null, and lists have commas between; a 422 that FastAPI foresees where
    nothing can fail goes."""
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _not_null(parameter["schema"])
        if parameter["schema"].get("type") == "array":
            parameter.update(style="form", explode=False)
    responses = operation["responses"]
    if JSON in responses.get("422", {}).get("content", {}):
        del responses["422"]


def _not_null(schema: Schema) -> Schema:
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**kinds[0], **rest} if len(kinds) == 1 else schema


def _add_headers(schema: Schema) -> None:
    """What answers say beside their body; what they always say is required."""
    components = schema["components"]
    components["headers"] = {
        name: {"description": said, "required": name not in SOMETIMES, "schema": kind}
        for name, (said, kind) in HEADERS.items()
    }
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                names = ("X-Request-ID", *HEADERS_OF.get(status, ()),
                         *HEADERS_OF.get(f"{method} {path} {status}", ()))  # fmt: skip
                response["headers"] = {
                    name: {"$ref": f"#/components/headers/{name}"} for name in names
                }


def _add_links(paths: Schema) -> None:
    """A chain that an answer names can be gone on with, looked at, asked about and ended."""
    chain = "$response.header.X-Chain-Id"
    links: Schema = {}
    for name, (method, path, parameter) in LINKS.items():
        operation = paths[path][method]["operationId"]
        links[name] = {"operationId": operation, "parameters": {parameter: chain}}
    paths["/sample"]["post"]["responses"]["200"]["links"] = links
    paths["/chains/{id}/fork"]["post"]["responses"]["201"]["links"] = links


def _parts(operation: Schema) -> Schema:
    """Schemas that a body's own refers to, taken out of it."""
    body: Schema = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
    parts: Schema = body.get("schema", {}).pop("$defs", {})
    return parts


def _default(models: ModelRepository) -> Model | None:
    try:
        return models.find()
    except LocalMomentsError:
        return None


def _with_examples(described: Schema, model: Model | None) -> Schema:
    schema = copy.deepcopy(described)
    try:
        points = None if model is None else _points(model)
    except LocalMomentsError:  # start points that cannot be read harm no one here
        points = None
    if model is None or points is None:
        return schema
    paths, rows = schema["paths"], points.tolist()
    if points.shape[1] <= READABLE:  # an image in a query is not worth reading; POST has one
        _parameter(paths["/moments"]["get"], "x")["example"] = ",".join(map(str, rows[0]))
    _body(paths["/moments"]["post"])["example"] = {"x": rows, "rank": 2}
    _body(paths["/reconstruct"]["post"])["example"] = {"x": rows}
    _body(paths["/sample"]["post"])["example"] = {"walkers": 2, "steps": 20, "thin": 10, "seed": 7}
    _parameter(paths["/models/{name}"]["get"], "name")["example"] = model.manifest.name
    for path in (infer.PATH, infer.PATH_OF_VERSION):
        _body(paths[path]["post"])["example"] = {"inputs": [_tensor(points)]}
    for path, operations in paths.items():
        if path.startswith("/v2/models/{model}"):
            for operation in operations.values():
                _exemplify(operation, model=model.manifest.name, version=model.manifest.version)
    return schema


def _points(model: Model) -> Reals:
    """Two of the places where chains may begin, in the user's units, with few digits."""
    wide = model.manifest.input_dims > READABLE
    points = model.manifest.normaliser.to_user(model.start_points()[:2])
    rounded: Reals = points.round(1 if wide and points.max() > 10 else 2 if wide else 4)
    return rounded


def _tensor(points: Reals) -> Schema:
    shape, data = list(points.shape), points.ravel().tolist()
    return {"name": "x", "shape": shape, "datatype": "FP64", "data": data}


def _exemplify(operation: Schema, **values: str) -> None:
    for parameter in operation["parameters"]:
        if parameter["name"] in values:
            parameter["example"] = values[parameter["name"]]


def _parameter(operation: Schema, name: str) -> Schema:
    found: Schema = next(p for p in operation["parameters"] if p["name"] == name)
    return found


def _body(operation: Schema) -> Schema:
    found: Schema = operation["requestBody"]["content"][JSON]
    return found
