"""POST /reconstruct on a real model."""

import io
from typing import Any

import numpy as np
import pytest

from localmoments.model import Model
from service.http.encodings import NPY, write_npy


@pytest.fixture(scope="module")
def x() -> Any:
    return np.random.default_rng(0).standard_normal((6, 8))


def test_a_reconstruction_is_in_the_units_of_the_data(
    client: Any, x: Any, tiny_served: Model
) -> None:
    answer = client.post("/reconstruct", json={"x": x.tolist()})
    assert answer.status_code == 200
    body, units = answer.json(), tiny_served.manifest.normaliser
    z, level = units.to_model(x), tiny_served.noise_level(6, tiny_served.manifest.moments_sigma)
    expected = units.to_user(tiny_served.run("reconstruct", x=z, **level)["mean"])
    assert body["model"] == answer.headers["x-model"] == "tiny@1"
    assert np.array_equal(np.float32(body["reconstruction"]), expected)
    rms = np.sqrt(np.square((expected - x) / units.scale).mean(axis=1))  # in standard units
    np.testing.assert_allclose(body["error"], rms, rtol=1e-5)
    assert body["sigma"] == tiny_served.manifest.moments_sigma


def test_json_and_npy_have_the_same_bits(client: Any, x: Any) -> None:
    as_json = client.post("/reconstruct", json={"x": x.tolist(), "model": "tiny"}).json()
    answer = client.post(
        "/reconstruct?model=tiny",
        content=write_npy(x),
        headers={"content-type": NPY, "accept": NPY},
    )
    assert answer.headers["content-type"] == NPY and answer.headers["x-model"] == "tiny@1"
    assert np.array_equal(
        np.load(io.BytesIO(answer.content)), np.float32(as_json["reconstruction"])
    )


def test_large_bodies_give_the_same_rows(client: Any) -> None:
    """Beyond 64 KiB they are read and written on another thread."""
    x = np.random.default_rng(1).standard_normal((3000, 8))
    body = client.post("/reconstruct", json={"x": x.tolist()}).json()
    last = client.post("/reconstruct", json={"x": x[-1:].tolist()}).json()
    assert body["reconstruction"][-1] == last["reconstruction"][0]


def test_sigma_is_the_noise_level_of_the_reconstruction(
    client: Any, x: Any, tiny_served: Model
) -> None:
    got = [
        client.post("/reconstruct", json={"x": x.tolist(), "sigma": sigma}).json()["reconstruction"]
        for sigma in (0.2, 1)
    ]
    units = tiny_served.manifest.normaliser
    z, level = units.to_model(x), tiny_served.noise_level(6, 1.0)
    expected = units.to_user(tiny_served.run("reconstruct", x=z, **level)["mean"])
    assert np.array_equal(np.float32(got[1]), expected) and got[0] != got[1]


def test_parameters_of_the_body_win_over_the_query(client: Any, x: Any, problem: Any) -> None:
    rows = x.tolist()
    good = client.post("/reconstruct?model=nothing", json={"x": rows, "model": "tiny@1"})
    assert good.json()["model"] == "tiny@1"
    problem(client.post("/reconstruct?model=nothing", json={"x": rows}), 404, "nothing")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "x is missing"),
        ({"x": []}, 422, "no rows"),
        ({"x": [[]]}, 422, "empty rows"),
        ({"x": [[1, 2, 3]]}, 422, "x has 3 columns, but tiny@1 takes 8"),
        ({"x": [[1] * 8, [1] * 7]}, 422, "got 7 and 8"),
        ({"x": [[1e38] * 8]}, 422, "x[0][0] is 1e+38, which is too far"),
        ({"x": [[-1e308] * 8]}, 422, "too far"),
        ({"x": [["1"] * 8]}, 422, "not a number"),
        ({"x": [[1] * 8], "model": "none"}, 404, "there are tiny"),
        ({"x": [[1] * 8], "model": "tiny@2"}, 404, "there are tiny@1"),
        ({"x": [[1] * 8], "model": "tiny@"}, 404, "'tiny@'"),
        ({"x": [[1] * 8], "model": "../tiny"}, 404, "'../tiny'"),
        ({"x": [[1] * 8], "model": 3}, 422, "model: input should be a valid string"),
        ({"x": [[1] * 8], "sigma": "1"}, 422, "sigma: input should be a valid number"),
        ({"x": [[1] * 8], "sigma": 7}, 422, "sigma is 7, but tiny@1 knows 0.2 to 1"),
        ({"x": [[1] * 8], "sigma": 0}, 422, "sigma: input should be greater than 0"),
        ({"x": [[1] * 8], "modle": "tiny"}, 422, "modle: there is no such parameter"),
    ],
)
def test_invalid_input_is_explained_in_a_sentence(
    client: Any, problem: Any, body: Any, status: int, words: str
) -> None:
    problem(client.post("/reconstruct", json=body), status, words)
    assert client.post("/reconstruct", json={"x": [[0.5] * 8]}).status_code == 200


def test_a_limit_is_reported_with_both_numbers(make_client: Any, problem: Any) -> None:
    client = make_client(max_rows=3)
    problem(client.post("/reconstruct", json={"x": [[1] * 8] * 4}), 413, "4 rows; the limit is 3")
    client = make_client(max_answer_values=31)
    body = {"x": [[1] * 8] * 4}
    problem(client.post("/reconstruct", json=body), 413, "32 numbers; the limit is 31")
