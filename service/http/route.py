"""`HotRoute`: FastAPI's route for handlers that must be fast.

FastAPI resolves the parameters of a handler anew for every request, which takes longer than a
reconstruction. A `HotRoute` looks at the handler's signature once, when the route is made, and then
calls the handler directly. It overrides `get_route_handler`, FastAPI's documented extension point,
so that routing, OpenAPI and error handling stay FastAPI's. A request takes this path whether or not
it has a query, an API key or proxy headers.

A parameter of a handler may be the request, a pydantic model of the query, a part of the path, a
header, or a dependency that takes the request alone. The handler reads its body by
service.http.bodies and returns a Response.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fastapi import params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Getter = Callable[[Request], Any]


class HotRoute(APIRoute):
    """A route that resolves the parameters of its handler without FastAPI."""

    def get_route_handler(self) -> Handler:
        handler = self.endpoint
        getters, dependencies = _inspect_parameters(handler)

        async def handle(request: Request) -> Response:
            values = {name: await depend(request) for name, depend in dependencies.items()}
            for name, get in getters.items():
                values[name] = get(request)
            response: Response = await handler(**values)
            return response

        return handle


def _inspect_parameters(
    handler: Callable[..., Any],
) -> tuple[dict[str, Getter], dict[str, Callable[[Request], Awaitable[Any]]]]:
    """Return how to get each parameter from a request: at once, and by awaiting a dependency.

    Dependencies come first: a request without a valid API key is refused before anything else.
    """
    getters: dict[str, Getter] = {}
    dependencies: dict[str, Callable[[Request], Awaitable[Any]]] = {}
    hints = get_type_hints(handler, include_extras=True)
    for name, parameter in inspect.signature(handler).parameters.items():
        hint = hints[name]
        if hint is Request:
            getters[name] = _get_request
            continue
        if get_origin(hint) is not Annotated:
            raise TypeError(f"HotRoute cannot resolve {name} of {handler.__name__}.")
        kind, *metadata = get_args(hint)
        source = next(m for m in metadata if isinstance(m, params.Param | params.Depends))
        if isinstance(source, params.Depends):
            assert source.dependency is not None
            dependencies[name] = source.dependency
        elif isinstance(source, params.Query):
            getters[name] = _query_getter(kind)
        elif isinstance(source, params.Header):
            getters[name] = _header_getter(source.alias or name, hint, parameter.default)
        else:
            getters[name] = _path_getter(source.alias or name)
    return getters, dependencies


def _get_request(request: Request) -> Request:
    return request


def _query_getter(model: type[BaseModel]) -> Getter:
    empty = model.model_validate({})
    lists = [name for name, field in model.model_fields.items() if _holds_list(field.annotation)]

    def get_query(request: Request) -> BaseModel:
        if not request.scope["query_string"]:
            return empty
        query = request.query_params
        fields: dict[str, Any] = dict(query)  # of a repeated name, the last value
        for name in lists:
            if name in fields:
                fields[name] = query.getlist(name)
        parsed: BaseModel = _validate(model.model_validate, fields, "query")
        return parsed

    return get_query


def _holds_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_holds_list, get_args(annotation)))


def _header_getter(name: str, hint: Any, default: Any) -> Getter:
    adapter: TypeAdapter[Any] = TypeAdapter(hint)

    def get_header(request: Request) -> Any:
        value = request.headers.get(name)
        return (
            default if value is None else _validate(adapter.validate_python, value, "header", name)
        )

    return get_header


def _path_getter(name: str) -> Getter:
    return lambda request: request.path_params[name]


def _validate(validate: Callable[[Any], Any], value: Any, *location: str) -> Any:
    """Validate, and report what is wrong as FastAPI does."""
    try:
        return validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise RequestValidationError(
            [{**fault, "loc": (*location, *fault["loc"])} for fault in faults]
        ) from None
