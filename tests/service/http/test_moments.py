"""GET and POST /moments on a real model; their values against the truth are in tests/e2e."""

import base64
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localmoments.model import Model
from service.http.encodings import NPY, NPZ, write_npy

ARRAYS = ("x", "mean", "eigenvalues", "tangents", "score", "covariance")
ALL = "mean,tangents,covariance,score"


@pytest.fixture(scope="module")
def x() -> Any:
    return np.random.default_rng(0).standard_normal((5, 8)).round(3)


def query(row: Any) -> str:
    return ",".join(map(str, row))


@pytest.mark.parametrize("estimator", ["asymptotic", "inverted"])
def test_moments_equal_those_of_the_library(
    client: Any, x: Any, tiny_served: Model, estimator: Any
) -> None:
    body = client.get(f"/moments?x={query(x[0])}&rank=3&estimator={estimator}").json()
    expected = tiny_served.moments(x[0], rank=3, estimator=estimator)
    assert body["estimator"] == estimator and body["model"] == "tiny@1"
    assert body["covariance_scale"] == "absolute" and body["x"] == x[0].tolist()
    assert np.array_equal(body["mean"], expected.mean)
    assert np.array_equal(body["eigenvalues"], expected.eigenvalues)
    assert np.array_equal(body["tangents"], expected.tangents)
    assert np.array_equal(body["score"], expected.score)


def test_many_points_get_the_same_as_one_by_one(client: Any, x: Any) -> None:
    asked = {"x": x.tolist(), "rank": 2, "include": ALL.split(",")}
    many = client.post("/moments", json=asked).json()
    for i, row in enumerate(x):
        one = client.get(f"/moments?x={query(row)}&rank=2&include={ALL}").json()
        assert all(np.array_equal(many[name][i], one[name]) for name in ARRAYS)


def test_json_and_npz_have_the_same_bits(client: Any, x: Any) -> None:
    asked = {"x": x.tolist(), "rank": 4, "include": ALL.split(","), "estimator": "inverted"}
    as_json = client.post("/moments", json=asked).json()
    answer = client.post(
        f"/moments?rank=4&estimator=inverted&include={ALL}",
        content=write_npy(x),
        headers={"content-type": NPY, "accept": NPZ},
    )
    arrays = np.load(io.BytesIO(answer.content))
    assert set(arrays) == set(as_json)
    assert all(np.array_equal(arrays[name], as_json[name]) for name in set(as_json) - {"trust"})
    assert [json.loads(text) for text in arrays.get("trust", [])] == as_json.get("trust", [])
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


def test_the_covariance_is_the_sum_of_all_eigenpairs(client: Any, x: Any) -> None:
    body = client.get(f"/moments?x={query(x[0])}&rank=8&include={ALL}").json()
    U, λ = np.array(body["tangents"]), np.array(body["eigenvalues"])
    np.testing.assert_allclose((U.T * λ) @ U, body["covariance"], atol=1e-12)
    np.testing.assert_allclose(U @ U.T, np.eye(8), atol=1e-10)
    assert (np.diff(λ) <= 0).all() and (np.abs(U).argmax(1) == U.argmax(1)).all()
    few = client.get(f"/moments?x={query(x[0])}&rank=2&include={ALL}").json()
    assert few["covariance"] == body["covariance"] and np.shape(few["tangents"]) == (2, 8)


def test_only_the_included_parts_are_returned(client: Any, x: Any) -> None:
    always = {"model", "x", "estimator", "units", "covariance_scale", "sigma"}
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


@pytest.fixture(scope="module")
def changed(make_client: Any, tiny_artefact: Path, tmp_path_factory: Any) -> Any:
    """The tiny model with a level for clean rows of its own, and one of unknown scale."""
    models = tmp_path_factory.mktemp("changed")
    body = json.loads((tiny_artefact / "manifest.json").read_text())
    for name, facts in {
        "tiny": {"moments_sigma": 0.3, "typical": list(range(1000, 1101))},
        "relative": {"covariance_scale": "relative"},
    }.items():
        shutil.copytree(tiny_artefact, models / name / "1")
        own = json.dumps(body | {"name": name} | facts)
        (models / name / "1" / "manifest.json").write_text(own)
    return make_client(models=models, default_model="tiny")


def test_the_default_level_is_the_one_for_clean_rows(changed: Any, x: Any) -> None:
    rows = {"x": x.tolist()}
    for path in ("/moments", "/reconstruct"):
        plain = changed.post(path, json=rows).json()
        named = changed.post(path, json=rows | {"sigma": 0.3}).json()
        chains = changed.post(path, json=rows | {"sigma": 0.2}).json()
        assert plain == named and plain["sigma"] == 0.3
        assert chains != plain and chains["sigma"] == 0.2
    assert changed.get("/models/tiny").json()["moments_sigma"] == 0.3


def test_standard_units_are_the_models_own(client: Any, x: Any, tiny_served: Model) -> None:
    D = tiny_served.manifest.normaliser.scale
    asked = {"x": x.tolist(), "include": ALL.split(","), "rank": 8}
    for estimator in ("asymptotic", "inverted"):
        data, standard = (
            client.post("/moments", json=asked | {"units": units, "estimator": estimator}).json()
            for units in ("data", "standard")
        )
        assert (data["units"], standard["units"]) == ("data", "standard")
        assert data["x"] == standard["x"]
        mean = tiny_served.manifest.normaliser.to_user(np.array(standard["mean"]))
        np.testing.assert_allclose(data["mean"], mean, rtol=1e-6)
        np.testing.assert_allclose(data["score"], np.array(standard["score"]) / D, rtol=1e-6)
        for i in range(len(x)):
            U, λ = np.array(standard["tangents"][i]), np.array(standard["eigenvalues"][i])
            C = np.array(standard["covariance"][i])
            np.testing.assert_allclose((U.T * λ) @ U, C, atol=1e-12)
            if estimator == "asymptotic":
                # Negative eigenvalues are clipped in the units of the answer: of A, of D A D.
                A = symmetric_jacobian(tiny_served, x[i])
                α = tiny_served.alpha(tiny_served.manifest.moments_sigma)
                np.testing.assert_allclose(C, α * positive_part(A), atol=1e-5 * C.max())
                expected = α * positive_part(A * D * D[:, None])
            else:
                expected = C * D * D[:, None]
            np.testing.assert_allclose(data["covariance"][i], expected, atol=1e-5 * expected.max())


def symmetric_jacobian(model: Model, x: Any) -> Any:
    """(J + Jᵀ)/2 at x (d,) in model units, at the level for clean rows; (d, d)."""
    z = model.manifest.normaliser.to_model(x[None])
    v = np.eye(len(x), dtype=np.float32)[None]
    level = model.noise_level(1, model.manifest.moments_sigma)
    A = model.run("moments", x=z, v=v, **level)["products"][0].astype(np.float64)
    return (A + A.T) / 2


def positive_part(A: Any) -> Any:
    """The matrix with its negative eigenvalues set to 0."""
    λ, U = np.linalg.eigh(A)
    return (U * np.maximum(λ, 0)) @ U.T


def test_trust_is_returned_on_request_and_for_unusual_points(
    client: Any, changed: Any, x: Any
) -> None:
    point = query(x[0])
    names = {"asymmetry", "mass_below_zero", "mass_above_one", "clipped", "shrunk", "exact",
             "warnings"}  # fmt: skip
    assert set(client.get(f"/moments?x={point}&include=trust").json()["trust"]) == names
    many = client.post("/moments", json={"x": x.tolist(), "include": ["trust"]}).json()
    assert [set(each) for each in many["trust"]] == [names] * len(x)
    unasked = changed.get(f"/moments?x={point}").json()["trust"]  # t is below 1,000
    assert unasked["typicality"] == 0 and "not like the data" in unasked["warnings"][0]
    elsewhere = changed.get(f"/moments?x={point}&sigma=0.5&include=trust").json()["trust"]
    assert "typicality" not in elsewhere


def test_a_score_of_unknown_scale_is_not_returned(changed: Any, problem: Any, x: Any) -> None:
    asked = {"x": x.tolist(), "model": "relative"}
    body = changed.post("/moments", json=asked).json()
    assert "score" not in body and "mean" in body and body["covariance_scale"] == "relative"
    for part in ("score", "dimension", "dimension_curve"):
        answer = changed.post("/moments", json=asked | {"include": ["mean", part]})
        problem(answer, 422, f"`{part}` is unknown")


def test_the_dimension_is_returned_for_one_level_and_for_all(
    client: Any, x: Any, tiny_served: Model
) -> None:
    parts = "dimension,dimension_curve"
    one = client.get(f"/moments?x={query(x[1])}&include={parts}").json()
    many = client.post("/moments", json={"x": x.tolist(), "include": parts.split(",")}).json()
    curve = one["dimension_curve"]
    low, high = tiny_served.manifest.noise_levels or (0, 0)
    assert curve["sigma"][0] == low and curve["sigma"][-1] == pytest.approx(high)
    assert np.shape(many["dimension_curve"]["dimension"]) == (5, len(curve["sigma"]))
    assert many["dimension"][1] == pytest.approx(one["dimension"], rel=1e-5)
    assert many["dimension_curve"]["dimension"][1] == pytest.approx(curve["dimension"], rel=1e-5)
    at = client.get(f"/moments?x={query(x[1])}&include=dimension&sigma={low}").json()
    np.testing.assert_allclose(at["dimension"], curve["dimension"][0], rtol=1e-6)
    answer = client.get(
        f"/moments?x={query(x[1])}&include={parts}", headers={"accept": NPZ}
    )  # fmt: skip
    arrays = np.load(io.BytesIO(answer.content))
    assert arrays["dimension_curve.dimension"].tolist() == curve["dimension"]


ZEROS = query([0.0] * 8)


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ("", 422, "exactly one of x"),
        (f"x={ZEROS}&x_b64=AAAA", 422, "exactly one of x"),
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
        (f"x={ZEROS}&units=metres", 422, "units"),
        (f"x={ZEROS}&include=mean,all", 422, "include"),
        (f"x={ZEROS}&include=", 422, "include"),
        (f"x={ZEROS}&sigma=nan", 422, "sigma"),
        (f"x={ZEROS}&sigma=0.1", 422, "knows 0.2 to 1"),
        (f"x={ZEROS}&ranks=2", 422, "ranks: there is no such parameter"),
        (f"x={ZEROS}&model=unknown", 404, "there are tiny"),
    ],
)
def test_invalid_input_is_explained_in_a_sentence(
    client: Any, problem: Any, asked: str, status: int, words: str
) -> None:
    problem(client.get(f"/moments?{asked}"), status, words)


def test_a_limit_is_reported_with_both_numbers(make_client: Any, problem: Any, x: Any) -> None:
    client = make_client(max_points=4, max_answer_values=100)
    problem(client.post("/moments", json={"x": x.tolist()}), 413, "5 rows; the limit is 4")
    problem(
        client.post("/moments", json={"x": x[:2].tolist()}), 413, "128 numbers; the limit is 100"
    )
    asked = {"x": x[:2].tolist(), "rank": 1}
    assert client.post("/moments", json=asked).status_code == 200
    asked["include"] = ["covariance"]
    problem(client.post("/moments", json=asked), 413, "144 numbers")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_moments_of_a_client_that_disconnects_are_not_computed(
    make_client: Any, x: Any, method: str
) -> None:
    client, sent = make_client(), []
    body = json.dumps({"x": x[:1].tolist()}).encode() if method == "POST" else b""
    messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
    scope = {
        "type": "http", "method": method, "path": "/moments", "raw_path": b"/moments",
        "query_string": b"" if body else f"x={query(x[0])}".encode(), "root_path": "",
        "headers": [(b"content-type", b"application/json")], "app": client.app,
    }  # fmt: skip

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    client.run(client.app(scope, receive, send))
    assert not sent and not messages
    assert client.get(f"/moments?x={query(x[0])}").status_code == 200  # the service still works
    metrics = client.get("/metrics").text
    assert 'status="499"' in metrics and "localmoments_load_rows 0" in metrics
