"""Models are added, broken and removed while the service runs."""

import re
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx

GOOD = {"x": [[0.0] * 4]}


def test_versions_are_added_broken_and_removed_without_a_restart(
    put: Any, start: Any, wait_for: Any, tmp_path: Path
) -> None:
    put(tmp_path, 1)
    http = start(tmp_path).http
    statuses: list[int] = []
    stop = threading.Event()

    def keep_asking() -> None:
        with httpx.Client(base_url=http.base_url, timeout=30) as other:
            while not stop.is_set():
                statuses.append(other.post("/reconstruct", json=GOOD).status_code)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        assert answering(http) == "gaussian@1"
        put(tmp_path, 2)
        wait_for(lambda: answering(http) == "gaussian@2")
        assert answering(http, "gaussian@1") == "gaussian@1"
        broken = put(tmp_path, 3)
        (broken / "moments.onnx").write_bytes(b"broken")
        wait_for(lambda: "gaussian@3" in refusals(http))
        assert "moments.onnx was altered" in refusals(http)["gaussian@3"]
        assert answering(http) == "gaussian@2" and refused_gauge(http) == 1
        put(tmp_path, 1, name="another")
        wait_for(lambda: answering(http, "another") == "another@1")
        shutil.rmtree(broken)
        wait_for(lambda: not refusals(http))
    finally:
        stop.set()
        asking.join()
    assert len(statuses) > 10 and set(statuses) == {200}


def answering(http: httpx.Client, model: str = "gaussian") -> str:
    answer = http.post("/reconstruct", json={**GOOD, "model": model}).json()
    return str(answer.get("model", answer.get("detail")))


def refusals(http: httpx.Client) -> dict[str, str]:
    return {r["model"]: r["reason"] for r in http.get("/models").json()["refused"]}


def refused_gauge(http: httpx.Client) -> float:
    found = re.search(r"^localmoments_models_refused (\S+)$", http.get("/metrics").text, re.M)
    return float(found[1]) if found else -1


def test_a_broken_model_is_announced_and_the_others_are_served(
    put: Any, start: Any, wait_for: Any, tmp_path: Path
) -> None:
    put(tmp_path, 1)
    (put(tmp_path, 1, name="bad") / "card.md").write_text("altered")
    said = start(tmp_path).announcement
    assert "Serving gaussian@1 (default gaussian@1) at" in said
    assert "refused: bad@1 (bad/1/card.md was altered" in said


def test_a_service_without_models_waits_for_one(
    put: Any, start: Any, wait_for: Any, tmp_path: Path
) -> None:
    service = start(tmp_path)
    assert service.announcement.startswith("Serving no model at http://")
    assert service.http.get("/healthz").status_code == 200
    not_ready = service.http.get("/readyz")
    assert not_ready.status_code == 503 and "No model is usable" in not_ready.json()["detail"]
    put(tmp_path, 1)
    wait_for(lambda: service.http.get("/readyz").status_code == 200)
