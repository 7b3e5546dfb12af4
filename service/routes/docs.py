"""GET /docs: /openapi.json to read and to try, also where there is no way to the internet.

Swagger UI comes with the package fastapi-swagger, of which only its files are used: FastAPI's own
page loads them from elsewhere. It writes styles into its markup and has pictures in its styles,
which the policy of this page lets it.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from pathlib import PurePath

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.routes.playground import FOLDER, OWN, READ, TYPES, File, answer, file_of

router = APIRouter(include_in_schema=False)

PAGE = "page.html"
POLICY = f"{OWN}; style-src 'self' 'unsafe-inline'; img-src 'self' data:"


@router.api_route("/docs", methods=READ)
async def page(request: Request) -> Response:
    return answer(request, files()[PAGE], POLICY)


@router.api_route("/docs/{name}", methods=READ)
async def part(request: Request, name: str) -> Response:
    if name == PAGE or name not in files():
        raise HTTPException(404)
    return answer(request, files()[name], POLICY)


@functools.cache
def files() -> Mapping[str, File]:
    theirs = resources.files("fastapi_swagger") / "resources"
    own = [FOLDER / "docs" / PAGE, FOLDER / "docs" / "start.js"]
    found = [*own, theirs / "swagger-ui-bundle.js", theirs / "swagger-ui.css"]
    return {
        path.name: file_of(path.read_bytes(), TYPES[PurePath(path.name).suffix]) for path in found
    }
