"""Every setting of the service: the only place where it reads the environment and `.env`.

The library reads one variable, `LOCALMOMENTS_MODELS`, in `localmoments.load`.

A setting `port` is the flag `--port` of `localmoments serve`, the environment variable
`LOCALMOMENTS_PORT`, or the same line in a file `.env` in the working folder. The flag wins over the
environment, and the environment over the file. `make_table()` documents all of them.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
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
from pydantic_settings import BaseSettings, DotEnvSettingsSource, NoDecode, SettingsConfigDict

from localmoments.cpus import available_cpus
from localmoments.errors import SettingsError

PREFIX = "LOCALMOMENTS_"
DAY = 86_400  # seconds

Reference = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}(@[0-9]{1,9})?$")]
Origin = Annotated[str, StringConstraints(pattern=r"^(\*|https?://[^/?#\s]+)$")]


class Settings(BaseSettings):
    """The settings, read once at the start and passed down."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",  # other programs read the same .env
        frozen=True,
        populate_by_name=True,
    )

    host: Annotated[str, Field(pattern=r"^\S+$", description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="Port to listen on. 0 picks a free port.")
    ] = 8000
    cors_origins: Annotated[
        tuple[Origin, ...],
        NoDecode,
        Field(
            description="Origins whose web pages may call the API, separated by commas. `*` allows "
            "all. Default: none."
        ),
    ] = ()
    keys_file: Annotated[
        Path | None,
        Field(description="TOML file with API keys. Default: no keys, every client is allowed."),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="`debug`, `info` (one line per request), `warning` or `error`."),
    ] = "info"

    models: Annotated[
        Path, Field(description="Folder with the models, as `<name>/<version>/`.")
    ] = Path("models")
    default_model: Annotated[
        Reference | None,
        Field(
            description="`name` or `name@version` for requests without `model`. Default: "
            "`mnist-dae` if it exists, otherwise the first model by name."
        ),
    ] = None
    reload_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=DAY,
            description="Seconds between two checks for new models. 0 checks only at the start.",
        ),
    ] = 5.0
    threads: Annotated[
        int,
        Field(
            ge=0,
            le=1024,
            description="Threads for computing. 0 uses all CPUs that the process may use.",
        ),
    ] = 0
    provider: Annotated[
        Literal["auto", "cpu", "cuda"],
        Field(description="Where graphs run: `cpu`, `cuda`, or `auto` for CUDA if it works."),
    ] = "auto"
    max_batch_rows: Annotated[
        int, Field(gt=0, le=65_536, description="Maximum number of rows in one graph call.")
    ] = 256

    max_requests: Annotated[
        int,
        Field(
            gt=0,
            description="Maximum number of requests in flight, not counting `/sample`. Requests "
            "above it get 429.",
        ),
    ] = 48
    max_load_rows: Annotated[
        int,
        Field(
            gt=0,
            description="Maximum number of rows that are queued or being computed, with the "
            "walkers of chains. Requests above it get 429.",
        ),
    ] = 8192
    max_body_bytes: Annotated[
        int, Field(gt=0, description="Maximum size of a request body in bytes.")
    ] = 32 * 2**20
    max_rows: Annotated[
        int,
        Field(gt=0, description="Maximum number of rows in one `/reconstruct`, or of walkers."),
    ] = 4096
    max_points: Annotated[
        int, Field(gt=0, description="Maximum number of points in one `/moments`.")
    ] = 256
    max_answer_values: Annotated[
        int,
        Field(
            gt=0, description="Maximum number of values in one response of moments or rows."
        ),
    ] = 4_000_000  # fmt: skip
    max_sample_values: Annotated[
        int,
        Field(gt=0, description="Maximum number of values in one `/sample` that is not streamed."),
    ] = 32_000_000
    max_row_steps: Annotated[
        int,
        Field(
            gt=0, description="Maximum of walkers × steps × graph calls per step in one `/sample`."
        ),
    ] = 2_000_000

    redis_url: Annotated[
        SecretStr | None,
        Field(
            validation_alias=AliasChoices("LOCALMOMENTS_REDIS_URL", "REDIS_URL"),
            description="Redis or Valkey that stores chains: `redis://`, `rediss://` or `unix://`, "
            "a single server or any node of a cluster. Also read from `REDIS_URL`. Default: an "
            "embedded Valkey.",
        ),
    ] = None
    store_folder: Annotated[
        Path, Field(description="Folder for the files of the embedded Valkey.")
    ] = Path(".localmoments")
    store_seconds: Annotated[
        float, Field(gt=0, le=600, description="Timeout for one request to the store, in seconds.")
    ] = 5.0
    chain_seconds: Annotated[
        int,
        Field(
            gt=0, le=10**9, description="Seconds after its last use at which a chain is deleted."
        ),
    ] = 7 * DAY  # fmt: skip
    tombstone_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=10**9,
            description="How long a deleted or expired chain returns 410 Gone before it returns "
            "404, in seconds.",
        ),
    ] = 30 * DAY
    lease_seconds: Annotated[
        float,
        Field(
            ge=0.5,
            le=600,
            description="Seconds after which another replica may use the chain of a process that "
            "died.",
        ),
    ] = 5.0

    body_seconds: Annotated[
        float,
        Field(gt=0, le=3600, description="Time limit for receiving a request body, in seconds."),
    ] = 20.0
    write_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="Close the connection if the client reads nothing for this many seconds.",
        ),
    ] = 60.0
    drain_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=600,
            description="Minimum time after SIGTERM during which the service still answers but is "
            "not ready, in seconds.",
        ),
    ] = 1.0
    grace_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=3600,
            description="Maximum time for open requests to finish after SIGTERM, in seconds.",
        ),
    ] = 10

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split_origins(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(word.strip() for word in value.split(",") if word.strip())

    @property
    def compute_threads(self) -> int:
        return self.threads or available_cpus()


# The first setting of each group, in the order of the class.
GROUPS = {
    "Network": "host",
    "Models": "models",
    "Limits": "max_requests",
    "Chains": "redis_url",
    "Timeouts": "body_seconds",
}


def load(flags: Mapping[str, str] | None = None) -> Settings:
    """Read the settings; raise SettingsError with one sentence about all wrong values.

    `flags` are values from the command line, by the name of the setting.
    """
    flags = flags or {}
    try:
        return Settings(**flags)  # type: ignore[arg-type]  # pydantic converts the text
    except ValidationError as error:
        faults = [_describe_fault(e["loc"], e["msg"], e["input"], flags) for e in error.errors()]
        raise SettingsError("; ".join(faults) + ".") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"Cannot read .env: {error}.") from None


def _describe_fault(
    location: tuple[int | str, ...], message: str, value: object, flags: Mapping[str, str]
) -> str:
    field = str(location[0]).lower().removeprefix(PREFIX.lower())
    name = make_flag(field) if field in flags else make_variable(field)
    return f"{name} is {str(value)!r}, but {message[0].lower()}{message[1:]}"


def make_flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def make_variable(field: str) -> str:
    return PREFIX + field.upper()


def list_groups() -> dict[str, list[str]]:
    """Return the names of all settings by group, in the order of the class."""
    groups: dict[str, list[str]] = {}
    first_of = {first: group for group, first in GROUPS.items()}
    for name in Settings.model_fields:
        if name in first_of:
            group = first_of[name]
        groups.setdefault(group, []).append(name)
    return groups


def describe_unknown_variables() -> list[str]:
    """Return a sentence for each variable that looks like a setting but is none, also in `.env`."""
    known = [field.upper() for field in Settings.model_fields]
    known += ["DATA", "TEST_ALL"]  # variables of the trainer and of the tests
    warnings = []
    in_file = {name.upper() for name in DotEnvSettingsSource(Settings).env_vars}
    for name in sorted({*os.environ, *in_file}):
        if name.startswith(PREFIX) and (suffix := name.removeprefix(PREFIX)) not in known:
            close = difflib.get_close_matches(suffix, known, n=1)
            hint = f" Did you mean {PREFIX}{close[0]}?" if close else ""
            warnings.append(f"{name} is set, but there is no such setting.{hint}")
    return warnings


def make_table() -> str:
    """Return all settings as a Markdown table."""
    head = ["| variable | default | meaning |", "|---|---|---|"]
    return "\n".join([*head, *_make_rows()]) + "\n"


def _make_rows() -> Iterable[str]:
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, ()) else f"`{field.default}`"
        yield f"| `{make_variable(name)}` | {default} | {field.description} |"
