"""Which pages of other origins may call."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from service.http.exchange import REQUEST_ID


class CrossOrigin(CORSMiddleware):
    """Pages of these origins may call; no cookies are ever read, so `*` is no danger to a key."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("authorization", "content-type", "idempotency-key", "x-api-key",
                           REQUEST_ID),
            expose_headers=("retry-after", "x-chain-id", "x-chain-step", "x-model", REQUEST_ID),
        )  # fmt: skip
