"""API keys: what a key allows, by its scopes and its rate limits."""

import hashlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from service.http.auth import Keyring
from service.http.keys import Key

SECRETS = {"reader": "r-secret", "sampler": "s-secret", "admin": "a-secret", "poor": "p-secret"}
SCOPES = {"reader": ["read"], "sampler": ["sample"], "admin": ["admin"], "poor": ["read"]}
LIMITS = {"poor": "requests_per_minute = 3\nrow_steps_per_minute = 100"}
OPEN = {"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"}
ROW = {"x": [[0.5] * 8]}
QUERY = "/moments?x=" + ",".join(["0.5"] * 8)


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[name]}"}


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def entry(name: str) -> str:
        digest = hashlib.sha256(SECRETS[name].encode()).hexdigest()
        head = f'[[key]]\nname = "{name}"\nsha256 = "{digest}"\n'
        return f"{head}scopes = {SCOPES[name]}\n{LIMITS.get(name, '')}\n"

    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    path.write_text("".join(map(entry, SECRETS)))
    return path


@pytest.fixture(scope="module")
def locked(make_client: Any, keys_file: Path) -> Any:
    return make_client(keys_file=keys_file)


@pytest.fixture
def fresh(make_client: Any, keys_file: Path) -> Any:
    """Where nobody has used anything up."""
    return make_client(keys_file=keys_file)


def operations(client: Any) -> list[tuple[str, str, Any]]:
    paths = client.get("/openapi.json").json()["paths"]
    return [(path, method, one) for path, ops in paths.items() for method, one in ops.items()]


def test_every_operation_but_health_needs_a_key(locked: Any, problem: Any) -> None:
    asked = operations(locked)
    assert len(asked) >= 7
    for path, method, described in asked:
        answer = locked.request(method.upper(), path.replace("{", "").replace("}", ""))
        assert ("security" in described) == (path not in OPEN)
        if path in OPEN:
            assert answer.status_code == 200
        else:
            problem(answer, 401, "An API key is needed")
            assert answer.headers["www-authenticate"] == "Bearer"


def test_a_scope_allows_its_routes_and_no_others(locked: Any, problem: Any) -> None:
    for path, method, described in operations(locked):
        if path in OPEN:
            continue
        [needed] = described["security"][0]["bearer"]
        assert described["security"] == [{"bearer": [needed]}, {"header": [needed]}]
        assert {"401", "403", "429"} <= set(described["responses"])
        for name in ("reader", "sampler", "admin"):
            url = path.replace("{", "").replace("}", "")
            answer = locked.request(method.upper(), url, headers=bearer(name))
            if needed in SCOPES[name]:
                assert answer.status_code not in (401, 403, 429)
            else:
                assert problem(answer, 403, f"the scope '{needed}'")["missing_scope"] == needed


def test_the_documentation_lists_the_routes_of_each_scope(locked: Any) -> None:
    page = (Path(__file__).parents[3] / "docs/keys.md").read_text(encoding="utf-8")
    for path, method, described in operations(locked):
        scope = described["security"][0]["bearer"][0] if "security" in described else "none"
        [row] = [line for line in page.splitlines() if line.startswith(f"| {tick(scope)} |")]
        word = {"/chains/{id}/fork": "fork", "/models/{name}": "/models"}.get(path, path)
        word = next((part for part in ("/v2/health", "/v2") if path.startswith(part)), word)
        assert ("end of a chain" if method == "delete" else word) in row


def tick(scope: str) -> str:
    return scope if scope == "none" else f"`{scope}`"


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer r-secret"},
        {"authorization": "bearer  r-secret "},
        {"x-api-key": "r-secret"},
        {"x-api-key": "r-secret", "authorization": "Basic cHJveHk6"},
        {"x-api-key": "r-secret", "authorization": "Bearer of-a-proxy"},
    ],
)
def test_a_key_may_be_sent_in_either_header(locked: Any, headers: dict[str, str]) -> None:
    assert locked.get("/models", headers=headers).status_code == 200
    assert locked.post("/reconstruct", json=ROW, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "is needed"),
        ({"authorization": ""}, "is needed"),
        ({"authorization": "Bearer"}, "is needed"),
        ({"authorization": "Bearer  "}, "is needed"),
        ({"authorization": "Basic cjpyLXNlY3JldA=="}, "is needed"),
        ({"x-api-key": ""}, "is needed"),
        ({"authorization": "Bearer r-secre"}, "is unknown"),
        ({"authorization": "Bearer r-secret2"}, "is unknown"),
        ({"authorization": "Bearer R-SECRET"}, "is unknown"),
        ({"x-api-key": hashlib.sha256(b"r-secret").hexdigest()}, "is unknown"),
        ({"x-api-key": "näh".encode("latin-1")}, "is unknown"),
        ({"x-api-key": "wrong", "authorization": "Bearer r-secret"}, "is unknown"),
    ],
)
def test_anything_else_is_not_a_key(locked: Any, problem: Any, headers: Any, words: str) -> None:
    problem(locked.get("/models", headers=headers), 401, words)


def test_a_request_without_permission_is_refused_before_its_body_is_read(
    locked: Any, problem: Any
) -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    for path in ("/reconstruct", "/moments"):
        problem(locked.post(path, content=never()), 401)
        problem(locked.post(path, content=never(), headers=bearer("sampler")), 403)
    problem(locked.post("/sample", content=never(), headers=bearer("reader")), 403, "'sample'")


def test_without_keys_everything_is_allowed_and_documented_so(client: Any) -> None:
    assert client.get("/models").status_code == client.get("/metrics").status_code == 200
    assert client.post("/reconstruct", json=ROW, headers=bearer("reader")).status_code == 200
    assert "securitySchemes" not in client.get("/openapi.json").json()["components"]
    for _, _, described in operations(client):
        assert "security" not in described and not {"401", "403"} & set(described["responses"])


def test_openapi_lists_the_two_security_schemes(locked: Any) -> None:
    schemes = locked.get("/openapi.json").json()["components"]["securitySchemes"]
    assert schemes == {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }


def test_each_key_has_its_own_request_limit(fresh: Any, problem: Any) -> None:
    poor = bearer("poor")
    problem(fresh.get("/metrics", headers=poor), 403)  # counts as well
    for _ in range(2):
        assert fresh.get("/models", headers=poor).status_code == 200
    answer = fresh.get("/models", headers=poor)
    problem(answer, 429, "'poor' has used its 3 requests per minute")
    assert 1 <= int(answer.headers["retry-after"]) <= 20
    assert fresh.get("/models", headers=bearer("reader")).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "cost"),
    [
        ("/reconstruct", {"x": [[0.5] * 8] * 9}, 9),
        ("/moments", {"x": [[0.5] * 8] * 9, "rank": 2}, 18),
        ("/moments", {"x": [[0.5] * 8] * 9, "rank": 100}, 72),
        ("/moments", {"x": [[0.5] * 8] * 9, "rank": 2, "include": ["covariance"]}, 72),
        (QUERY + "&rank=3", None, 3),
    ],
)
def test_row_steps_are_charged_as_documented(
    fresh: Any, problem: Any, path: str, body: Any, cost: int
) -> None:
    poor, method = bearer("poor"), "GET" if body is None else "POST"
    assert fresh.request(method, path, json=body, headers=poor).status_code == 200
    rest = {"x": [[0.5] * 8] * (101 - cost)}
    answer = fresh.post("/reconstruct", json=rest, headers=poor)
    problem(answer, 429, "100 row-steps per minute")
    assert answer.headers["retry-after"] == "1"  # for one row-step too many, 0.6 seconds
    last = {"x": rest["x"][1:]}
    assert fresh.post("/reconstruct", json=last, headers=poor).status_code == 200


@pytest.mark.parametrize("path", ["/reconstruct", "/moments"])
def test_a_request_that_fails_its_checks_is_not_charged(fresh: Any, path: str) -> None:
    poor = bearer("poor")
    for body, status in (({"x": [[0.5] * 8] * 50, "model": "other"}, 404),
                         ({"x": [[0.5] * 7] * 50}, 422)):  # fmt: skip
        assert fresh.post(path, json=body, headers=poor).status_code == status
    all_row_steps = {"x": [[0.5] * 8] * 100}
    assert fresh.post("/reconstruct", json=all_row_steps, headers=poor).status_code == 200


def test_a_request_above_the_limit_per_minute_is_too_large(fresh: Any, problem: Any) -> None:
    rows = {"x": [[0.5] * 8] * 101}
    problem(fresh.post("/reconstruct", json=rows, headers=bearer("poor")), 413, "101 row-steps")


def test_the_log_has_the_name_of_the_key_but_not_the_secret(
    locked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for headers in (bearer("reader"), bearer("sampler"), {"x-api-key": "wrong"}):
            locked.get("/models", headers=headers)
    lines = [r.fields for r in caplog.records if r.name == "service.request"]  # type: ignore[attr-defined]
    assert [(line["caller"], line["status"]) for line in lines] == [
        ("reader", 200), ("sampler", 403), ("", 401)]  # fmt: skip
    assert not any(s in repr(vars(r)) for r in caplog.records for s in ("-secret", "wrong"))


def test_only_admin_keys_see_all_chains() -> None:
    keys = [
        Key(name=n, sha256=hashlib.sha256(SECRETS[n].encode()).hexdigest(), scopes=SCOPES[n])
        for n in SECRETS
    ]
    ring = Keyring(keys)
    seen = {n: ring.find(Headers(bearer(n))).caller.sees_all for n in SECRETS}
    assert seen == {"reader": False, "sampler": False, "admin": True, "poor": False}
