"""GET /, /web/... and /docs: the playground and Swagger UI, which work without the internet.

The playground may load files only from this origin, and neither scripts nor styles from its
markup. Swagger UI writes styles into its markup, and its page has one inline script, which is
allowed by its digest. Browsers revalidate files every time, so that no page of an older release
runs against a newer API.
"""

import base64
import re
from hashlib import sha256
from os import PathLike, stat_result
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parents[1] / "web"
PAGE = "index.html"
SAME_ORIGIN = "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
POLICY = (
    f"{SAME_ORIGIN}; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
DOCS_POLICY = f"{SAME_ORIGIN}; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class PageFiles(StaticFiles):
    """Static files with a content security policy."""

    def __init__(self, policy: str, **where: object) -> None:
        super().__init__(**where)  # type: ignore[arg-type]
        self._headers = make_headers(policy)

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(self._headers)
        return response


def make_headers(policy: str) -> dict[str, str]:
    return {
        "cache-control": "no-cache",  # revalidate, which is not the same as no-store
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


router = APIRouter(include_in_schema=False)
web_files = PageFiles(POLICY, directory=FOLDER)
swagger_files = PageFiles(DOCS_POLICY, packages=[("fastapi_swagger", "resources")])


@router.api_route("/", methods=["GET", "HEAD"])
async def playground(request: Request) -> Response:
    return await web_files.get_response(PAGE, request.scope)


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs(request: Request) -> HTMLResponse:
    page = get_swagger_ui_html(
        openapi_url="openapi.json",  # relative, so that the page works below a path
        title="localmoments: API",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="web/icon.svg",
        swagger_ui_parameters={"tryItOutEnabled": True, "validatorUrl": None},
    )
    [script] = INLINE_SCRIPT.findall(bytes(page.body))
    digest = base64.b64encode(sha256(script).digest()).decode()
    page.headers.update(make_headers(f"{DOCS_POLICY}; script-src 'self' 'sha256-{digest}'"))
    return page


router.mount("/web", web_files)
router.mount("/docs", swagger_files)
