"""Every setting of the service: the only place that reads the environment and `.env`.

`LOCALMOMENTS_PORT=9000 make serve`, or the same line in a file `.env` in the working folder; the
environment wins over the file. `table()` is the documentation of all of them.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AliasChoices,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from localmoments.cpus import available_cpus
from localmoments.errors import SettingsError
from localmoments.estimators import FULL_JACOBIAN_DIMS

PREFIX = "LOCALMOMENTS_"

Reference = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}(@[0-9]{1,9})?$")]
Origin = Annotated[str, StringConstraints(pattern=r"^(\*|https?://[^/?#\s]+)$")]


class Settings(BaseSettings):
    """Read once at the start and passed down."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",  # .env also serves other programs
        frozen=True,
        populate_by_name=True,
    )

    host: Annotated[str, Field(pattern=r"^\S+$", description="address to listen on")] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")
    ] = 8000
    models: Annotated[Path, Field(description="folder that holds `<name>/<version>/`")] = Path(
        "models"
    )
    default_model: Annotated[
        Reference | None,
        Field(
            description="`name` or `name@version` for requests that name no model; "
            "else `mnist-dae` if it is there, else the first by name"
        ),
    ] = None
    reload_seconds: Annotated[
        float,
        Field(ge=0, le=86_400, description="time between looks for new models; 0: only at start"),
    ] = 5.0
    workers: Annotated[
        int,
        Field(
            ge=1,
            le=256,
            description="processes that serve; more than one for many small requests at a time",
        ),
    ] = 1
    threads: Annotated[
        int,
        Field(
            ge=0,
            le=1024,
            description="threads that compute, in each process; 0: its share of the CPUs allowed",
        ),
    ] = 0
    provider: Annotated[
        Literal["auto", "cpu", "cuda"],
        Field(description="what graphs run on: `cpu`, `cuda`, or `auto`: CUDA where it works"),
    ] = "auto"
    full_jacobian_dims: Annotated[
        int,
        Field(
            ge=0,
            description="up to this width moments come from the whole Jacobian, "
            "above it from a block Krylov method",
        ),
    ] = FULL_JACOBIAN_DIMS
    max_batch_rows: Annotated[
        int, Field(gt=0, le=65_536, description="most rows in one graph call")
    ] = 256  # fmt: skip
    max_load_rows: Annotated[
        int, Field(gt=0, description="rows in work at a time; beyond it callers get a 429")
    ] = 8192
    max_requests: Annotated[
        int,
        Field(gt=0, description="reconstructions answered at a time; beyond it callers get a 429"),
    ] = 64
    max_wait_ms: Annotated[
        float,
        Field(gt=0, description="fewer than so many where even the quickest takes longer"),
    ] = 50.0
    max_body_bytes: Annotated[int, Field(gt=0, description="largest request body")] = 32 * 2**20
    max_rows: Annotated[
        int, Field(gt=0, description="most rows in one reconstruction, most walkers of a chain")
    ] = 4096
    max_points: Annotated[
        int, Field(gt=0, description="most points in one request for moments")
    ] = 256
    max_answer_values: Annotated[
        int, Field(gt=0, description="most numbers in one answer of moments or reconstructions")
    ] = 4_000_000  # fmt: skip
    max_sample_values: Annotated[
        int, Field(gt=0, description="most numbers in one answer of `/sample` that is not streamed")
    ] = 32_000_000  # fmt: skip
    max_row_steps: Annotated[
        int, Field(gt=0, description="most walkers × steps in one call of `/sample`")
    ] = 2_000_000  # fmt: skip
    redis_url: Annotated[
        SecretStr | None,
        Field(
            validation_alias=AliasChoices("LOCALMOMENTS_REDIS_URL", "REDIS_URL"),
            description="where chains are kept: `redis://`, `rediss://` or `unix://`, a single "
            "server or any node of a cluster; left out: an embedded Valkey; also read as "
            "`REDIS_URL`",
        ),
    ] = None
    store_folder: Annotated[
        Path, Field(description="where the embedded Valkey keeps its files")
    ] = Path(".localmoments")  # fmt: skip
    store_seconds: Annotated[
        float, Field(gt=0, le=600, description="time that the store may take to answer")
    ] = 5.0
    chain_seconds: Annotated[
        int, Field(gt=0, le=10**9, description="a chain lives this long after its last use")
    ] = 7 * 86_400
    tombstone_seconds: Annotated[
        int,
        Field(ge=0, le=10**9, description="for so long an ended chain is a 410, and then a 404"),
    ] = 30 * 86_400
    lease_seconds: Annotated[
        float,
        Field(ge=0.5, le=600, description="a writer that died blocks its chain for this long"),
    ] = 5.0
    keys_file: Annotated[
        Path | None,
        Field(description="TOML file with the API keys; left out: no key is asked for"),
    ] = None
    body_seconds: Annotated[
        float, Field(gt=0, le=3600, description="time for a request's head and body to arrive")
    ] = 20.0
    write_seconds: Annotated[
        float, Field(gt=0, le=3600, description="time that a caller may leave an answer unread")
    ] = 60.0
    cors_origins: Annotated[
        tuple[Origin, ...],
        NoDecode,
        Field(description="origins whose pages may call, with commas between; `*` for all"),
    ] = ()
    drain_seconds: Annotated[
        float,
        Field(ge=0, le=600, description="after SIGTERM, time to be seen as not ready at least"),
    ] = 1.0
    grace_seconds: Annotated[
        int, Field(ge=0, le=3600, description="time for open requests to end after SIGTERM")
    ] = 10
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="`debug`, `info` (a line a request), `warning` or `error`"),
    ] = "info"

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """`https://a.example, https://b.example`."""
        if not isinstance(value, str):
            return value
        return tuple(word.strip() for word in value.split(",") if word.strip())

    @property
    def compute_threads(self) -> int:
        return self.threads or max(1, available_cpus() // self.workers)


def load() -> Settings:
    """The settings, or one sentence that names every one that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        faults = [_fault(str(e["loc"][0]), e["msg"], e["input"]) for e in error.errors()]
        raise SettingsError("; ".join(faults) + ".") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f".env cannot be read: {error}.") from None


def _fault(field: str, message: str, value: object) -> str:
    return f"{PREFIX}{field.upper()} is {str(value)!r}, but {message[0].lower()}{message[1:]}"


def unknown_names() -> list[str]:
    """Variables that look like settings and are none: misspelt, perhaps."""
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def table() -> str:
    """All settings as a Markdown table."""
    head = ["| variable | default | meaning |", "|---|---|---|"]
    return "\n".join([*head, *_rows()]) + "\n"


def _rows() -> Iterable[str]:
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, ()) else f"`{field.default}`"
        yield f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |"
