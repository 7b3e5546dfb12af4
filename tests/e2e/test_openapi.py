"""/openapi.json is truthful: schemathesis calls every operation, with all of its checks.

It runs as its own process, with a configuration made here and the hooks beside this file.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.http.keys import new_key

HOOKS = Path(__file__).with_name("openapi_hooks.py")
MODEL = Path(__file__).parents[2] / "models" / "spiral-dae"
SMALL = {"max_row_steps": 500, "max_sample_values": 5000, "max_rows": 50, "max_points": 8}

# A schema cannot say how wide a model's rows are, what a chain was made with or where the limits
# are, so that a request may fit the schema and be refused (422, 413, 409), or ask for what is not
# there (404) or no more (410), or give less time than it takes (408). For which reasons a 408, 413
# or 422 may come, the hooks check. A request that does not fit may be refused for any of these
# before that is seen.
CONFIGURATION = """
seed = 1
hooks = "{hooks}"
continue-on-failure = true
max-stream-events = 1000
request-timeout = 20
cache.enabled = false

[generation]
database = "none"
no-shrink = true
max-examples = {examples}
dictionaries.integer = {{ dictionary = "small", probability = 0.8 }}  # steps within the limits

[dictionaries.small]
values = [1, 2, 3, 5]

[phases.stateful]
generation.max-examples = {scenarios}
inference.algorithms = ["location-headers"]  # beside the links that we document

[checks]
enabled = true  # all of them
positive_data_acceptance.expected-statuses = ["2xx", {refusals}]
negative_data_rejection.expected-statuses = [406, 415, {refusals}]

[reports.json]
path = "report.json"
"""


@pytest.fixture(scope="module")
def one_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    (folder / MODEL.name).symlink_to(MODEL)
    return folder


def asked(
    http: httpx.Client, folder: Path, examples: int, scenarios: int, *more: int, auth: str = ""
) -> tuple[dict[str, Any], str]:
    """Run schemathesis; return its report and its output."""
    refusals = ", ".join(map(str, (404, 408, 409, 410, 413, 422, *more)))
    settings = CONFIGURATION.format(
        hooks=HOOKS, examples=examples, scenarios=scenarios, refusals=refusals
    )
    (folder / "schemathesis.toml").write_text(settings + auth)
    chain = http.post("/sample", json={"walkers": 2, "steps": 5}).json()["chain"]
    model = http.get("/models").json()["models"][0]
    known = {"OPENAPI_CHAIN": chain, "OPENAPI_MODEL": json.dumps(model)}
    url = str(http.base_url.join("/openapi.json"))
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", url, "--no-color"],
        cwd=folder, env={**os.environ, **known}, capture_output=True, text=True,
    )  # fmt: skip
    said = done.stdout + done.stderr
    report = folder / "report.json"
    assert report.exists(), said
    return json.loads(report.read_text()), said


def check(report: dict[str, Any], said: str, least: int) -> None:
    """Check that every operation was called often enough and behaved as documented."""
    assert not report["failures"] and not report["errors"], said
    assert report["exit_code"] == 0 and report["complete"], said
    assert {phase["status"] for phase in report["phases"].values()} == {"success"}, said
    assert report["operations"]["tested"] == report["operations"]["total"] >= 12, said
    assert report["test_cases"]["generated"] >= least, said
    print(f"\n{report['test_cases']['generated']} cases in {report['running_time']:.0f} s")


def answers(metrics: str) -> dict[tuple[str, str], int]:
    """Return how often each operation returned each status, from the metrics."""
    counted: dict[tuple[str, str], int] = {}
    for line in metrics.splitlines():
        if line.startswith("localmoments_requests_total{"):
            labels, _, count = line.partition("{")[2].rpartition("} ")
            said = dict(pair.split("=") for pair in labels.replace('"', "").split(","))
            counted[f"{said['method']} {said['route']}", said["status"]] = int(float(count))
    return counted


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_answers_match_openapi(start: Callable[..., Any], one_model: Path, tmp_path: Path) -> None:
    service = start(one_model, log_level="warning", **SMALL)
    check(*asked(service.http, tmp_path, 120, 120), least=2000)
    seen = answers(service.http.get("/metrics").text)
    assert sum(seen.values()) > 2000 and not [each for each in seen if each[1] >= "500"]
    paths = service.http.get("/openapi.json").json()["paths"]
    for operation in [f"{m.upper()} {path}" for path, methods in paths.items() for m in methods]:
        assert any(seen.get((operation, status)) for status in ("200", "201", "204")), operation
    assert not [line for line in service.log() if line["level"] == "error"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_keys_are_required_as_openapi_says(
    start: Callable[..., Any], one_model: Path, tmp_path: Path
) -> None:
    """Calls without a key or with a wrong one fail, and no key sees the chains of another."""
    made = {
        "alice": new_key("alice", ["read", "sample"]),
        "bob": new_key("bob", ["read", "sample"]),
        "op": new_key("op", ["admin"]),
    }
    (tmp_path / "keys.toml").write_text("\n".join(entry for _, entry in made.values()))
    users = [
        {"name": name, "fixedHeaders": [{"name": "X-API-Key", "value": secret}]}
        for name, (secret, _) in made.items()
    ]
    (tmp_path / "users.json").write_text(json.dumps({"auth": users}))
    service = start(one_model, log_level="warning", keys_file=tmp_path / "keys.toml", **SMALL)
    service.http.headers["x-api-key"] = made["alice"][0]
    auth = '[auth.wfc]\npath = "users.json"\npeers = ["alice", "bob"]\n'
    check(*asked(service.http, tmp_path, 30, 60, 401, 403, auth=auth), least=1000)
    seen = answers(service.http.get("/metrics", headers={"x-api-key": made["op"][0]}).text)
    assert {status for _, status in seen} >= {"200", "401", "403", "404"}
    assert not [each for each in seen if each[1] >= "500"]
