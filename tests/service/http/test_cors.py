"""CORS: off by default; pages of the origins in the setting can read answers and errors."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

ORIGIN = "https://app.example"
ALLOWED, EXPOSED = "access-control-allow-origin", "access-control-expose-headers"


@pytest.fixture(scope="module")
def shared(make_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An application for one origin, with keys."""
    keys: Path = tmp_path_factory.mktemp("keys") / "keys.toml"
    digest = hashlib.sha256(b"secret").hexdigest()
    keys.write_text(f'[[key]]\nname = "page"\nsha256 = "{digest}"\nscopes = ["read"]\n')
    return make_client(cors_origins=[ORIGIN], keys_file=keys, max_body_bytes=1000)


def preflight(client: Any, origin: str, method: str = "POST", headers: str = "") -> Any:
    asked = {"origin": origin, "access-control-request-method": method}
    wanted = {"access-control-request-headers": headers} if headers else {}
    return client.request("OPTIONS", "/reconstruct", headers={**asked, **wanted})


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_preflight_needs_no_key(shared: Any, method: str) -> None:
    ours = "authorization, content-type, idempotency-key, x-api-key, x-request-id"
    answer = preflight(shared, ORIGIN, method, ours)
    assert answer.status_code == 200 and answer.headers[ALLOWED] == ORIGIN
    assert method in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers


def test_other_origins_methods_and_headers_are_not_allowed(shared: Any) -> None:
    assert ALLOWED not in preflight(shared, "https://evil.example").headers
    assert preflight(shared, ORIGIN, "PUT").status_code == 400
    assert preflight(shared, ORIGIN, headers="x-other").status_code == 400
    answer = shared.get("/healthz", headers={"origin": "https://evil.example"})
    assert ALLOWED not in answer.headers


def test_pages_can_read_answers_and_errors(shared: Any) -> None:
    page = {"origin": ORIGIN}
    keyed = {**page, "authorization": "Bearer secret"}
    asked = [
        (200, shared.post("/reconstruct", json={"x": [[0.5] * 8]}, headers=keyed)),
        (401, shared.post("/reconstruct", json={"x": [[0.5] * 8]}, headers=page)),
        (403, shared.get("/metrics", headers=keyed)),
        (404, shared.get("/nothing", headers=page)),
        (413, shared.post("/reconstruct", content=b" " * 1001, headers=keyed)),
    ]
    for status, answer in asked:
        assert answer.status_code == status and answer.headers[ALLOWED] == ORIGIN
        assert "x-request-id" in answer.headers and "Origin" in answer.headers["vary"]
        exposed = set(answer.headers[EXPOSED].split(", "))
        assert exposed == {"retry-after", "x-chain-id", "x-chain-step", "x-model", "x-request-id"}


def test_pages_can_read_unexpected_errors(make_client: Any) -> None:
    client = make_client(cors_origins=["*"])

    @client.app.get("/breaks")
    async def breaks() -> None:
        raise RuntimeError

    answer = client.get("/breaks", headers={"origin": ORIGIN})
    assert answer.status_code == 500 and answer.headers[ALLOWED] == "*"


def test_by_default_no_page_may_call(client: Any, problem: Any) -> None:
    problem(preflight(client, ORIGIN), 405)
    assert ALLOWED not in client.get("/healthz", headers={"origin": ORIGIN}).headers
