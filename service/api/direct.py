"""A route that FastAPI describes and that is called without its help.

FastAPI takes more time to find out what a handler is to be given than the handler needs for a row.
A request without a query needs nothing found out: its parameters stand in the body.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Direct(APIRoute):
    """`direct`, of a subclass, is the handler of requests without a query."""

    @staticmethod
    async def direct(request: Request) -> Response:
        raise NotImplementedError

    def get_route_handler(self) -> Handler:
        described = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if request.scope["query_string"]:
                return await described(request)
            return await self.direct(request)

        return handle
