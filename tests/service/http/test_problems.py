"""Every error has one status; an unexpected one is a 500 that reveals nothing."""

import asyncio
import logging
from typing import Any

import httpx
import pytest

from localmoments import errors
from service.app import create_app
from service.http.problems import KINDS, find_kind
from service.settings import Settings


def every(family: type[Exception]) -> list[type[Exception]]:
    return [family, *(e for child in family.__subclasses__() for e in every(child))]


@pytest.mark.parametrize("family", every(errors.LocalMomentsError), ids=lambda e: e.__name__)
def test_every_error_has_one_status(family: type[Exception]) -> None:
    abstract = (errors.LocalMomentsError, errors.RequestError, errors.SettingsError)
    assert (family in KINDS) == (family not in abstract)
    assert 400 <= find_kind(family("x")).status < 600
    if issubclass(family, errors.RequestError) and family not in abstract:
        assert find_kind(family("x")).status < 500


def test_the_docstring_of_errors_lists_all_of_them() -> None:
    for family in every(errors.LocalMomentsError):
        assert family.__name__ in (errors.__doc__ or "")


def test_a_problem_name_has_one_status() -> None:
    names = {kind.name: kind.status for kind in KINDS.values()}
    assert all(names[kind.name] == kind.status for kind in KINDS.values())


@pytest.mark.parametrize(
    "path", ["/web/no.js", "/nothing", "/models/", "/models/a/b", "/%2e%2e/etc"]
)
def test_an_unknown_path_is_a_problem(client: Any, problem: Any, path: str) -> None:
    problem(client.get(path), 404, "Nothing is at")


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [("PUT", "/moments", "GET, POST"), ("GET", "/reconstruct", "POST"), ("POST", "/docs", "GET")],
)
def test_a_wrong_method_is_a_problem_that_lists_the_right_ones(
    client: Any, problem: Any, method: str, path: str, right: str
) -> None:
    answer = client.request(method, path)
    problem(answer, 405, f"does not support {method}")
    assert right in answer.headers["allow"]


def test_wrong_formats_are_problems(client: Any, problem: Any) -> None:
    sent = {"content": b"<x/>", "headers": {"content-type": "text/xml"}}
    problem(client.post("/reconstruct", **sent), 415, "text/xml")
    problem(client.post("/moments", **sent), 415, "text/xml")
    html = {"accept": "text/html"}
    problem(client.post("/reconstruct", json={"x": [[0] * 8]}, headers=html), 406, "x-npy")
    problem(client.get("/moments?x=0,0,0,0,0,0,0,0", headers=html), 406, "x-npz")


def test_wrong_parameters_are_listed_one_by_one(client: Any, problem: Any) -> None:
    body = problem(client.get("/moments?x=1&rank=0&estimator=none"), 422)
    assert [fault["field"] for fault in body["errors"]] == ["rank", "estimator"]
    long = problem(client.get(f"/moments?x=1&rank={'9' * 3000}"), 422)
    assert len(long["detail"]) < 300


def test_an_unexpected_error_is_logged_and_not_shown_to_the_client(
    problem: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(Settings(_env_file=None, models=tmp_path), "redis://nowhere.invalid")

    @app.get("/breaks")
    async def breaks() -> None:
        raise RuntimeError("a secret")

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await http.get("/breaks")

    with caplog.at_level(logging.ERROR):
        answer = asyncio.run(ask())
    body = problem(answer, 500, "unexpected")
    assert "secret" not in answer.text
    [record] = [r for r in caplog.records if r.exc_info]
    assert record.fields["request_id"] == body["request_id"]  # type: ignore[attr-defined]
