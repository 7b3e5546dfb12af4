"""Hooks that tell schemathesis about a service with one model; its own process loads them.

OpenAPI describes every model at once: rows of any width, any kernel's name. The requests that are
generated here are for the one that is served, which stands in OPENAPI_MODEL as GET /models tells
it, and for the chain in OPENAPI_CHAIN. Nothing else is changed, and no answer's schema is.
"""

import io
import json
import os
import re
from typing import Any

import numpy as np
import schemathesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from schemathesis.core.parameters import ParameterLocation

MODEL = json.loads(os.environ["OPENAPI_MODEL"])
CHAIN = os.environ["OPENAPI_CHAIN"]
D = MODEL["input_dims"]
HEAD = "inference-header-content-length"

# What a schema cannot say: one parameter that fits another, a chain, a limit, or the data.
REASONS = re.compile(
    r"too far from|is (nan|-?inf), not a finite|exactly one of x|^walker must be less"
    r"|points for \d+ walkers|rows for \d+ walkers|`from_step` needs `chain`"
    r"|of chain .* cannot be changed|Idempotency-Key was used|The chain diverged|state in \w+ space"
    r"|With `clamp`, `scale` must|`clamp.std` needs|`clamp` works with|clamp.std has a negative"
    r"|`metropolis` (works|cannot|needs)"
    r"|not a number of its datatype|outside the range of"
    r"|are the most|[Tt]he limit (for|without|is)|are more than the \d+ allowed"
    r"|time limit is reached|was not done within"
)


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Only what the service refuses just as well: what is outside is still wrong."""
    schemas = raw_schema["components"]["schemas"]
    _all_wide(schemas["FromPoints"]["properties"]["points"])
    for name in ("mask", "values", "std"):
        for kind in _arrays(schemas["Clamp"]["properties"][name]):
            for row in _arrays(kind["items"]) or [kind]:
                _wide(row)
    _narrow_tensors(schemas)
    for operation in (each for path in raw_schema["paths"].values() for each in path.values()):
        body = operation.get("requestBody", {"content": {}})["content"].get("application/json")
        fields = {p["name"]: p["schema"] for p in operation.get("parameters", ())}
        for properties in (fields, body["schema"]["properties"] if body else {}):
            _narrow(properties)
        if "inputs" in (body or {"schema": {}})["schema"].get("properties", ()):
            body["schema"]["properties"]["inputs"].update(minItems=1, maxItems=1)
            body["schema"]["required"] = ["inputs"]
        if "id" in fields and operation["operationId"].startswith(("get_chain", "fork_chain")):
            fields["id"].update(enum=[CHAIN])  # one to end must be made first: by links


@schemathesis.hook.apply_to(method="DELETE")
def filter_case(context: Any, case: Any) -> bool:
    return case.path_parameters.get("id") != CHAIN


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Boundaries are tried with all parameters there: here go those that exclude the others.

    What is wrong in a query must not be put right by the body, which wins.
    """
    if not case.meta:
        return
    wrong = {place for place in ParameterLocation if case.meta.is_negative_at(place)}
    if wrong == {ParameterLocation.QUERY} and isinstance(case.body, dict):
        for name in case.query:
            case.body.pop(name, None)
    if wrong or case.meta.generation.mode.is_negative:
        return
    if case.operation.label.endswith("/infer"):
        case.headers.pop(HEAD, None)
        if isinstance(case.body, bytes):
            case.headers[HEAD] = str(case.body.rindex(b"}") + 1)
    if case.operation.label == "GET /moments":
        for spare in [name for name in ("x", "x_b64", "chain") if name in case.query][1:]:
            del case.query[spare]
    if case.operation.label == "POST /sample" and case.meta.phase.name.value == "coverage":
        case.headers.pop("idempotency-key", None)
        for said in (case.query, case.body):
            if isinstance(said, dict) and said.get("chain") == "0" * 32:
                del said["chain"]
                said.pop("from_step", None)


def _narrow_tensors(schemas: dict[str, Any]) -> None:
    """One input that fits reconstruction, which has few of all parameters."""
    tensor = schemas["InputTensor"]
    numbers = {"type": "array", "items": {"type": "number"}, "minItems": D, "maxItems": D}
    tensor["properties"]["name"].update(enum=["x"])
    tensor["properties"] |= {"data": numbers, "shape": {"const": [1, D]}}
    tensor["properties"].pop("parameters")
    tensor["required"] = ["name", "shape", "datatype", "data"]
    schemas["RequestedOutput"]["properties"]["name"].update(enum=["reconstruction", "error"])
    parameters = schemas["InferParameters"]["properties"]
    kept = {"binary_data_output", "timeout", "priority", "sigma"}
    for name in {*parameters} - kept:
        del parameters[name]
    _narrow(parameters)


def _narrow(properties: dict[str, Any]) -> None:
    if properties.get("x", {}).get("type") == "array":
        _all_wide(properties["x"])
    if "x_b64" in properties:
        pattern = properties["x"]["pattern"].replace(")*$", f"){{{D - 1}}}$")
        properties["x"].update(pattern=pattern)
        properties["x_b64"].update(pattern=f"^[A-Za-z0-9_-]{{{-(-4 * D * 8 // 6)}}}={{0,2}}$")
    if "sigma" in properties:
        low, high = MODEL["noise_levels"]
        _said(properties["sigma"]).update(minimum=low, maximum=high)
    if "kernel" in properties:
        _said(properties["kernel"]).update(enum=[*MODEL["kernels"]])
    if "version" in properties:
        properties["version"].update(enum=[MODEL["version"]])
    for name in {"model", "name"} & {*properties}:
        _said(properties[name]).update(enum=[MODEL["name"], MODEL["reference"]])


def _said(schema: dict[str, Any]) -> dict[str, Any]:
    """Its schema without null."""
    found: dict[str, Any] = schema["anyOf"][0] if "anyOf" in schema else schema
    return found


def _arrays(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The kinds of array that a schema allows."""
    return [each for each in schema.get("anyOf", [schema]) if each.get("type") == "array"]


def _wide(row: dict[str, Any]) -> None:
    row.update(minItems=D, maxItems=D)


def _all_wide(rows: dict[str, Any]) -> None:
    _wide(rows["items"])


def _npy(rows: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, rows)
    return stream.getvalue()


KINDS = st.sampled_from(["<f4", "<f8", ">f8", "<i2", "u1"])
ROWS = KINDS.flatmap(
    lambda kind: arrays.arrays(
        kind, st.tuples(st.integers(1, 5), st.just(D)), elements={"min_value": 0, "max_value": 3}
    )
)
schemathesis.openapi.media_type("application/x-npy", ROWS.map(_npy))


def _head_and_bytes(rows: Any) -> bytes:
    sizes = {"shape": rows.shape, "parameters": {"binary_data_size": rows.nbytes}}
    tensor = {"name": "x", "datatype": f"UINT{8 * rows.itemsize}", **sizes}
    return json.dumps({"inputs": [tensor]}).encode() + rows.tobytes()


BYTES = arrays.arrays(
    "u1", st.tuples(st.integers(1, 5), st.just(D)), elements={"min_value": 0, "max_value": 3}
)
schemathesis.openapi.media_type("application/octet-stream", BYTES.map(_head_and_bytes))


@schemathesis.check
def refuses_valid_requests_only_for_what_no_schema_says(ctx: Any, response: Any, case: Any) -> None:
    """positive_data_acceptance lets these statuses pass: here is for what."""
    positive = case.meta and case.meta.generation.mode.is_positive
    if response.status_code in (408, 413, 422) and positive:
        detail = response.json()["detail"]
        assert REASONS.search(detail), detail
