"""HotRoute resolves the parameters of a handler as FastAPI does, but only once per route."""

import asyncio
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from service.http.route import HotRoute


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    count: Annotated[int, Field(ge=1)] = 8
    parts: list[str] | None = None


async def find_user(request: Request) -> str:
    return request.headers.get("x-user", "nobody")


def make_app(route_class: type[APIRoute]) -> FastAPI:
    router = APIRouter(route_class=route_class)

    @router.get("/items/{id}")
    async def items(
        request: Request,
        item: Annotated[str, Path(alias="id")],
        query: Annotated[Parameters, Query()],
        user: Annotated[str, Depends(find_user)],
        tag: Annotated[str | None, Header(alias="x-tag", min_length=2)] = None,
    ) -> Response:
        return JSONResponse([request.method, item, query.model_dump(), user, tag])

    app = FastAPI()
    app.router.routes += router.routes

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: RequestValidationError) -> Response:
        faults = [(list(fault["loc"]), fault["type"]) for fault in error.errors()]
        return JSONResponse(faults, status_code=422)

    return app


HOT, PLAIN = make_app(HotRoute), make_app(APIRoute)


async def ask(app: FastAPI, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        answer = await http.get(path, headers=headers)
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/items/a", {}),
        ("/items/a%20b?name=x&count=3", {"x-user": "alice", "x-tag": "ab"}),
        ("/items/a?name=x&name=y", {}),
        ("/items/a?parts=x&parts=y", {}),
        ("/items/a?count=0", {}),
        ("/items/a?count=one&other=1", {}),
        ("/items/a", {"x-tag": "a"}),
    ],
)
def test_a_hot_route_answers_as_fastapi_does(path: str, headers: dict[str, str]) -> None:
    hot, plain = (asyncio.run(ask(app, path, headers)) for app in (HOT, PLAIN))
    assert hot == plain


def test_a_hot_route_is_documented_as_fastapi_documents_it() -> None:
    assert HOT.openapi() == PLAIN.openapi()


def test_a_parameter_that_a_hot_route_cannot_resolve_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="cannot resolve body of handle"):

        async def handle(body: Parameters) -> Response:
            return Response()

        HotRoute("/", handle, methods=["POST"])
