"""KServe's REST client against a real server.

The kserve package needs other versions of our dependencies, so it has its own environment:
`make kserve` creates it and runs this file. KSERVE_PYTHON can name another interpreter.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("kserve_client.py")


@pytest.fixture(scope="module")
def results(service: Any, truth: Any, needs: Any) -> dict[str, Any]:
    """The results of kserve_client.py, and the rows `x` that it sent."""
    x = truth.units.to_user(np.random.default_rng(5).standard_normal((9, 4))).round(3)
    process = subprocess.run(
        [needs("kserve"), SCRIPT, str(service.http.base_url).rstrip("/"), "gaussian"],
        input=json.dumps(x.tolist()), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return {"x": x.tolist(), **json.loads(process.stdout)}


def test_health(results: dict[str, Any]) -> None:
    assert results["server_live"] and results["server_ready"] and results["model_ready"]
    assert not results["unknown_model_ready"]


def test_infer_returns_the_same_rows_as_reconstruct(
    results: dict[str, Any], http: httpx.Client
) -> None:
    ours = http.post("/reconstruct", json={"x": results["x"]}).json()["reconstruction"]
    assert results["binary"] == results["json"]
    assert np.array_equal(np.float32(results["binary"]), np.float32(ours))
    assert results["id_and_model"] == ["42", "gaussian"]


def test_an_error_has_a_reason(results: dict[str, Any]) -> None:
    assert results["refusal"] == [422, "x has shape [9, 1]; expected [batch, 4]."]
