"""GET and POST /moments on a real model; their values against the truth are in tests/e2e."""

import base64
import io
from typing import Any

import numpy as np
import pytest

from service.api.encodings import NPY, NPZ, write_npy
from service.engine.model import Model
from trainer.evaluate import moments_at

ARRAYS = ("x", "mean", "eigenvalues", "tangents", "score", "covariance")
ALL = "mean,tangents,covariance,score"


@pytest.fixture(scope="module")
def x() -> Any:
    return np.random.default_rng(0).standard_normal((5, 8)).round(3)


def query(row: Any) -> str:
    return ",".join(map(str, row))


@pytest.mark.parametrize("estimator", ["asymptotic", "inverted"])
def test_moments_are_those_that_evaluation_scores(
    client: Any, x: Any, tiny_served: Model, estimator: Any
) -> None:
    body = client.get(f"/moments?x={query(x[0])}&rank=3&estimator={estimator}").json()
    [expected] = moments_at(tiny_served, x[:1], 3, estimator)
    assert body["estimator"] == estimator and body["model"] == "tiny@1"
    assert body["covariance_scale"] == "absolute" and body["x"] == x[0].tolist()
    np.testing.assert_allclose(body["mean"], expected.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(body["eigenvalues"], expected.eigenvalues, rtol=1e-5)
    np.testing.assert_allclose(body["tangents"], expected.tangents, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(body["score"], expected.score, rtol=1e-5, atol=1e-5)


def test_many_points_get_what_each_gets_alone(client: Any, x: Any) -> None:
    asked = {"x": x.tolist(), "rank": 2, "include": ALL.split(",")}
    many = client.post("/moments", json=asked).json()
    for i, row in enumerate(x):
        one = client.get(f"/moments?x={query(row)}&rank=2&include={ALL}").json()
        assert all(np.array_equal(many[name][i], one[name]) for name in ARRAYS)


def test_json_and_npz_hold_the_same_bits(client: Any, x: Any) -> None:
    asked = {"x": x.tolist(), "rank": 4, "include": ALL.split(","), "estimator": "inverted"}
    as_json = client.post("/moments", json=asked).json()
    answer = client.post(
        f"/moments?rank=4&estimator=inverted&include={ALL}",
        content=write_npy(x),
        headers={"content-type": NPY, "accept": NPZ},
    )
    arrays = np.load(io.BytesIO(answer.content))
    assert set(arrays) == set(as_json)
    assert all(np.array_equal(arrays[name], as_json[name]) for name in as_json)
    alone = client.get(f"/moments?x={query(x[1])}&rank=4&estimator=inverted&include={ALL}",
                       headers={"accept": NPZ})  # fmt: skip
    one = np.load(io.BytesIO(alone.content))
    assert all(np.array_equal(one[name], arrays[name][1]) for name in ARRAYS)


def test_a_point_in_base64_is_the_same_point(client: Any) -> None:
    point = np.linspace(-1, 1, 8).astype("<f4")
    text = base64.urlsafe_b64encode(point.tobytes()).decode()
    one = client.get(f"/moments?x_b64={text}").json()
    other = client.get(f"/moments?x={query(point.astype(float))}").json()
    assert one == other


def test_the_covariance_is_made_of_all_eigenpairs(client: Any, x: Any) -> None:
    body = client.get(f"/moments?x={query(x[0])}&rank=8&include={ALL}").json()
    U, λ = np.array(body["tangents"]), np.array(body["eigenvalues"])
    np.testing.assert_allclose((U.T * λ) @ U, body["covariance"], atol=1e-12)
    np.testing.assert_allclose(U @ U.T, np.eye(8), atol=1e-10)
    assert (np.diff(λ) <= 0).all() and (np.abs(U).argmax(1) == U.argmax(1)).all()
    few = client.get(f"/moments?x={query(x[0])}&rank=2&include={ALL}").json()
    assert few["covariance"] == body["covariance"] and np.shape(few["tangents"]) == (2, 8)


def test_a_krylov_space_finds_what_the_whole_jacobian_holds(
    client: Any, make_client: Any, x: Any
) -> None:
    krylov = make_client(full_jacobian_dims=1)
    for estimator in ("asymptotic", "inverted"):
        asked = {"x": x.tolist(), "rank": 3, "estimator": estimator}
        got, expected = (c.post("/moments", json=asked).json() for c in (krylov, client))
        for name in ("mean", "eigenvalues", "tangents", "score"):
            np.testing.assert_allclose(got[name], expected[name], rtol=1e-3, atol=1e-4)


def test_only_what_was_asked_for_is_sent(client: Any, x: Any) -> None:
    always = {"model", "x", "estimator", "covariance_scale", "sigma"}
    for include, names in [
        ("mean", {"mean"}),
        ("score,mean", {"mean", "score"}),
        ("tangents", {"tangents", "eigenvalues"}),
        ("covariance", {"covariance"}),
    ]:
        body = client.get(f"/moments?x={query(x[0])}&include={include}").json()
        assert set(body) == always | names
    body = client.get(f"/moments?x={query(x[0])}&include=mean&include=score").json()
    assert set(body) == always | {"mean", "score"}
    assert set(client.get(f"/moments?x={query(x[0])}").json()) == always | {
        "mean", "tangents", "eigenvalues", "score",
    }  # fmt: skip


def test_the_noise_level_sets_alpha(client: Any, x: Any, tiny_served: Model) -> None:
    body = client.get(f"/moments?x={query(x[0])}&sigma=0.5").json()
    units = tiny_served.manifest.normaliser
    z, level = units.to_model(x[:1]), tiny_served.noise_level(1, 0.5)
    r = tiny_served.run("reconstruct", x=z, **level)["mean"].astype(np.float64)
    expected = ((r - z) / 0.25 / units.scale)[0]
    assert body["sigma"] == 0.5
    np.testing.assert_allclose(body["score"], expected, rtol=1e-5, atol=1e-5)


ZEROS = query([0.0] * 8)


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ("", 422, "as x, as x_b64 or as chain"),
        (f"x={ZEROS}&x_b64=AAAA", 422, "one of the three"),
        ("x=1,2", 422, "x has 2 columns, but tiny@1 takes 8"),
        ("x_b64=AAAAAA", 422, "x has 1 columns, but tiny@1 takes 8"),
        ("x=a", 422, "commas"),
        ("x=", 422, "commas"),
        ("x=nan,0,0,0,0,0,0,0", 422, "x[0] is nan"),
        ("x=0,inf,0,0,0,0,0,0", 422, "x[1] is inf"),
        ("x=0,1e38,0,0,0,0,0,0", 422, "too far"),
        ("x_b64=***", 422, "base64url"),
        (f"x={ZEROS}&rank=0", 422, "rank: input should be greater than or equal to 1"),
        (f"x={ZEROS}&rank=many", 422, "rank"),
        (f"x={ZEROS}&estimator=best", 422, "estimator"),
        (f"x={ZEROS}&include=mean,all", 422, "include"),
        (f"x={ZEROS}&include=", 422, "include"),
        (f"x={ZEROS}&sigma=nan", 422, "sigma"),
        (f"x={ZEROS}&sigma=0.1", 422, "knows 0.2 to 1"),
        (f"x={ZEROS}&ranks=2", 422, "ranks: there is no such parameter"),
        (f"x={ZEROS}&model=unknown", 404, "there are tiny"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(
    client: Any, problem: Any, asked: str, status: int, words: str
) -> None:
    problem(client.get(f"/moments?{asked}"), status, words)


def test_limits_are_said_with_both_numbers(make_client: Any, problem: Any, x: Any) -> None:
    client = make_client(max_points=4, max_answer_values=100)
    problem(client.post("/moments", json={"x": x.tolist()}), 413, "5 rows, but 4")
    problem(client.post("/moments", json={"x": x[:2].tolist()}), 413, "128 numbers, but 100")
    asked = {"x": x[:2].tolist(), "rank": 1}
    assert client.post("/moments", json=asked).status_code == 200
    asked["include"] = ["covariance"]
    problem(client.post("/moments", json=asked), 413, "144 numbers")
