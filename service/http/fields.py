"""Field types that several requests and responses share."""

from typing import Annotated

from pydantic import BeforeValidator, Field

Row = list[float]
Rows = list[Row]
Point = Annotated[Row, Field(min_length=1)]
Points = Annotated[list[Point], Field(min_length=1)]

MODEL = "`name` for its newest version, or `name@version`. Default: the default model."

SIGMA = (
    "Noise level, in the model's units, within `noise_levels` of the model. Only for models that "
    "were trained for a range of levels. Default: `moments_sigma` of the model, the level for "
    "clean rows."
)


def _to_whole(value: object) -> object:
    """Turn 1.0 into 1: in JSON it is an integer, and some languages write it so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_to_whole)
Timeout = Annotated[
    int | None,
    Field(
        ge=1,
        le=3_600_000,
        description="Time limit in milliseconds. A request that exceeds it gets 408.",
    ),
    WHOLE,
]


def split_commas(value: object) -> object:
    """Accept `a,b` as well as a list; None stays None."""
    if value is None:
        return None
    parts = value if isinstance(value, list) else [value]
    return [
        word for part in parts for word in (part.split(",") if isinstance(part, str) else [part])
    ]
