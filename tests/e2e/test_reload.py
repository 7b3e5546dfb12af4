"""Models are added, damaged and removed while the service runs."""

import re
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx

BODY = {"x": [[0.0] * 4]}


def test_versions_are_added_and_removed_without_a_restart(
    put: Any, start: Any, wait_for: Any, tmp_path: Path
) -> None:
    put(tmp_path, 1)
    http = start(tmp_path).http
    statuses: list[int] = []
    stop = threading.Event()

    def send_requests() -> None:
        with httpx.Client(base_url=http.base_url, timeout=30) as client:
            while not stop.is_set():
                statuses.append(client.post("/reconstruct", json=BODY).status_code)

    thread = threading.Thread(target=send_requests)
    thread.start()
    try:
        assert model_of_response(http) == "gaussian@1"
        put(tmp_path, 2)
        wait_for(lambda: model_of_response(http) == "gaussian@2")
        assert model_of_response(http, "gaussian@1") == "gaussian@1"
        broken = put(tmp_path, 3)
        (broken / "moments.onnx").write_bytes(b"broken")
        wait_for(lambda: "gaussian@3" in refused_models(http))
        assert "moments.onnx was altered" in refused_models(http)["gaussian@3"]
        assert model_of_response(http) == "gaussian@2" and count_refused(http) == 1
        put(tmp_path, 1, name="another")
        wait_for(lambda: model_of_response(http, "another") == "another@1")
        shutil.rmtree(broken)
        wait_for(lambda: not refused_models(http))
    finally:
        stop.set()
        thread.join()
    assert len(statuses) > 10 and set(statuses) == {200}


def model_of_response(http: httpx.Client, model: str = "gaussian") -> str:
    response = http.post("/reconstruct", json={**BODY, "model": model}).json()
    return str(response.get("model", response.get("detail")))


def refused_models(http: httpx.Client) -> dict[str, str]:
    return {r["model"]: r["reason"] for r in http.get("/models").json()["refused"]}


def count_refused(http: httpx.Client) -> float:
    match = re.search(r"^localmoments_models_refused (\S+)$", http.get("/metrics").text, re.M)
    assert match
    return float(match[1])


def test_a_damaged_model_is_reported_at_start_and_the_others_are_served(
    put: Any, start: Any, wait_for: Any, tmp_path: Path
) -> None:
    put(tmp_path, 1)
    (put(tmp_path, 1, name="bad") / "card.md").write_text("altered")
    announcement = start(tmp_path).announcement
    assert "Serving gaussian@1 (default gaussian@1) at" in announcement
    assert "refused: bad@1 (bad/1/card.md was altered" in announcement


def test_the_service_starts_without_models_and_waits_for_one(
    put: Any, start: Any, wait_for: Any, tmp_path: Path
) -> None:
    service = start(tmp_path)
    assert service.announcement.startswith("Serving no model at http://")
    assert service.http.get("/healthz").status_code == 200
    not_ready = service.http.get("/readyz")
    assert not_ready.status_code == 503 and "No model is usable" in not_ready.json()["detail"]
    put(tmp_path, 1)
    wait_for(lambda: service.http.get("/readyz").status_code == 200)
