"""The parts of the protocol's paths."""

from typing import Annotated

from fastapi import Path

ModelName = Annotated[
    str,
    Path(
        alias="model",
        description="`name`, `name:graph` for one of its graphs, or `name:chain` for its chains",
    ),
]
Version = Annotated[str, Path(alias="version", description="left out: the newest")]
