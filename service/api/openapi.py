"""/openapi.json, with examples that run as written: they are points of the default model.

FastAPI describes the routes once; the examples follow the models that are served at the moment.
"""

import copy
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.encodings import JSON
from service.api.schemas import Problem
from service.core.errors import LocalMomentsError
from service.core.types import Doubles
from service.engine.model import Model
from service.engine.repository import Repository

Schema = dict[str, Any]


def documented(app: FastAPI, models: Repository) -> Callable[[], Schema]:
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
    return schema


def _correct(operation: Schema) -> None:
    """Lists have commas between; a 422 that FastAPI foresees where nothing can fail goes."""
    for parameter in operation.get("parameters", ()):
        if parameter["name"] == "include":
            parameter.update(style="form", explode=False)
    responses = operation["responses"]
    if JSON in responses.get("422", {}).get("content", {}):
        del responses["422"]


def _default(models: Repository) -> Model | None:
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
    _parameter(paths["/moments"]["get"], "x")["example"] = ",".join(map(str, rows[0]))
    _body(paths["/moments"]["post"])["example"] = {"x": rows, "rank": 2}
    _body(paths["/reconstruct"]["post"])["example"] = {"x": rows}
    _parameter(paths["/models/{name}"]["get"], "name")["example"] = model.manifest.name
    return schema


def _points(model: Model) -> Doubles:
    """Two of the places where chains may begin, in the user's units."""
    points: Doubles = model.manifest.normaliser.to_user(model.start_points()[:2]).round(4)
    return points


def _parameter(operation: Schema, name: str) -> Schema:
    found: Schema = next(p for p in operation["parameters"] if p["name"] == name)
    return found


def _body(operation: Schema) -> Schema:
    found: Schema = operation["requestBody"]["content"][JSON]
    return found
