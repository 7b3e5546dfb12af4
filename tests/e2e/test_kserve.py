"""KServe's REST client, which wants other versions of our packages and so has its own environment.

`make kserve` makes that and runs this; elsewhere KSERVE_PYTHON names an interpreter that has it.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("kserve_client.py")
OWN = Path(__file__).parents[2] / ".venv-kserve/bin/python"


@pytest.fixture(scope="module")
def found(service: Any, truth: Any) -> dict[str, Any]:
    """What the client got, and the rows that it sent."""
    python = os.environ.get("KSERVE_PYTHON") or (str(OWN) if OWN.exists() else "")
    if not python:
        pytest.skip("KServe's client is not installed: run `make kserve`")
    x = truth.units.to_user(np.random.default_rng(5).standard_normal((9, 4))).round(3)
    done = subprocess.run(
        [python, SCRIPT, str(service.http.base_url).rstrip("/"), "gaussian"],
        input=json.dumps(x.tolist()), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = {"x": x.tolist(), **json.loads(done.stdout)}
    return said


def test_health_is_understood(found: dict[str, Any]) -> None:
    assert found["live"] and found["ready"] and found["model"] and not found["other"]


def test_rows_are_those_of_our_own_route(found: dict[str, Any], http: httpx.Client) -> None:
    ours = http.post("/reconstruct", json={"x": found["x"]}).json()["reconstruction"]
    assert found["binary"] == found["json"]
    assert np.array_equal(np.float32(found["binary"]), np.float32(ours))
    assert found["answer"] == ["42", "gaussian"]


def test_a_refusal_has_its_sentence(found: dict[str, Any]) -> None:
    assert found["refusal"] == [422, "x has shape [9, 1], but [batch, 4] is wanted."]


def test_a_sequence_is_a_chain(found: dict[str, Any], http: httpx.Client) -> None:
    ours = http.post("/sample", json={"steps": 6, "seed": 1, "thin": 1}).json()["samples"]
    both = found["sequence_start"] + found["sequence_end"]
    assert np.array_equal(np.float32(both), np.float32(ours))
