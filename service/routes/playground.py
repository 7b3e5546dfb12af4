"""GET / and /web/...: the playground, static files that call this API and nothing else.

The policy lets the page load from its own origin only, and no script or style from its markup.
Files are revalidated by their digest each time, so that no page of an older release runs against
a newer API.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "web"
PAGE = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
OWN = "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
POLICY = f"{OWN}; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
HEADERS = {
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
READ = ["GET", "HEAD"]


@dataclass(frozen=True)
class File:
    content: bytes
    kind: str
    tag: str


@router.api_route("/", methods=READ)
async def page(request: Request) -> Response:
    return answer(request, files()[PAGE])


@router.api_route("/web/{name}", methods=READ)
async def part(request: Request, name: str) -> Response:
    if name == PAGE or name not in files():
        raise HTTPException(404)
    return answer(request, files()[name])


@functools.cache
def files() -> Mapping[str, File]:
    """All of them: they are few and small, and do not change while the service runs."""
    return {
        path.name: file_of(path.read_bytes(), TYPES[path.suffix])
        for path in FOLDER.iterdir()
        if path.suffix in TYPES
    }


def file_of(content: bytes, kind: str) -> File:
    return File(content, kind, f'"{sha256(content).hexdigest()[:32]}"')


def answer(request: Request, file: File, policy: str = POLICY) -> Response:
    headers = {**HEADERS, "content-security-policy": policy, "etag": file.tag}
    if file.tag in _known(request):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.kind)


def _known(request: Request) -> set[str]:
    """The digests that the browser holds; proxies that compress mark them as weak."""
    said = request.headers.get("if-none-match", "")
    return {tag.strip().removeprefix("W/") for tag in said.split(",")}
