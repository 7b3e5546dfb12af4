"""The library and the service return the same numbers, bit for bit."""

import io
from typing import Any

import numpy as np
import pytest

from localmoments.model import Model

NPY = {"accept": "application/x-npy"}
KERNELS = ["gibbs", "hidden", "input", "moment", "walkjump"]
HALF = [True] * 4 + [False] * 4


@pytest.fixture(scope="module")
def x(tiny_served: Model) -> Any:
    return tiny_served.manifest.normaliser.to_user(tiny_served.start_points()).round(3)


def read(answer: Any) -> Any:
    assert answer.status_code == 200, answer.text
    return np.load(io.BytesIO(answer.content))


def test_reconstructions_are_equal(client: Any, tiny_served: Model, x: Any) -> None:
    for body, sigma in (({}, None), ({"sigma": 0.4}, 0.4)):
        rows = {"x": x.tolist(), **body}
        expected = tiny_served.reconstruct(x.astype(np.float64), sigma=sigma)
        array = read(client.post("/reconstruct", json=rows, headers=NPY))
        assert np.array_equal(array, expected.reconstruction)
        answer = client.post("/reconstruct", json=rows).json()
        assert np.array_equal(answer["error"], expected.error)


@pytest.mark.parametrize("estimator", ["asymptotic", "inverted"])
@pytest.mark.parametrize("units", ["data", "standard"])
def test_moments_are_equal(
    client: Any, tiny_served: Model, x: Any, estimator: Any, units: Any
) -> None:
    include: Any = ["mean", "tangents", "covariance", "score", "trust", "dimension"]
    how: dict[str, Any] = {"rank": 3, "estimator": estimator, "units": units, "include": include}
    answer = client.post("/moments", json={"x": x.tolist(), **how})
    body = answer.json()
    expected = tiny_served.moments(x.astype(np.float64), **how)
    for name in ("mean", "eigenvalues", "tangents", "covariance", "score", "dimension"):
        assert np.array_equal(body[name], getattr(expected, name)), name
    assert expected.trust is not None
    assert body["trust"] == [each and each.as_dict() for each in expected.trust]


def test_moments_at_one_point_have_no_leading_axis(client: Any, tiny_served: Model, x: Any) -> None:
    point = x[0].astype(np.float64)
    query = f"x={','.join(map(str, point))}&rank=2&include=mean,tangents,dimension_curve"
    body = client.get(f"/moments?{query}").json()
    fields: Any = ["mean", "tangents", "dimension_curve"]
    expected = tiny_served.moments(point, rank=2, include=fields)
    assert np.array_equal(body["mean"], expected.mean) and np.shape(expected.mean) == (8,)
    assert np.array_equal(body["tangents"], expected.tangents)
    assert expected.dimension_curve is not None
    assert np.array_equal(body["dimension_curve"]["dimension"], expected.dimension_curve[1])


SAMPLES: dict[str, dict[str, Any]] = {
    **{kernel: {"kernel": kernel} for kernel in KERNELS},
    "noisy": {"emit": "noisy"},
    "noise": {"start": "noise", "burn_in": 3},
    "floor": {"floor": 0.1, "scale": 0.5},
    "schedule": {"scale": [0.5, 1.0]},
    "clamp": {"clamp": {"mask": HALF, "values": [0.5] * 8}},
    "clamp with errors": {"clamp": {"mask": HALF, "values": [0.5] * 8, "std": 0.2}},
    "clamp, moment": {"clamp": {"mask": HALF, "values": [0.5] * 8}, "kernel": "moment"},
    "metropolis": {"metropolis": True},
    "metropolis, moment": {"metropolis": True, "kernel": "moment"},
}


@pytest.mark.parametrize("how", SAMPLES.values(), ids=list(SAMPLES))
def test_samples_are_equal(client: Any, tiny_served: Model, how: dict[str, Any]) -> None:
    body = {"walkers": 3, "steps": 4, "thin": 4, "seed": 5, **how}
    [samples] = read(client.post("/sample", json=body, headers=NPY))
    assert np.array_equal(samples, tiny_served.sample(3, steps=4, seed=5, **how))


def test_samples_from_given_points_are_equal(client: Any, tiny_served: Model, x: Any) -> None:
    body = {"walkers": 3, "steps": 4, "thin": 2, "seed": 5, "start": {"points": x[:3].tolist()}}
    samples = read(client.post("/sample", json=body, headers=NPY))
    expected = tiny_served.chain(3, steps=4, thin=2, seed=5, start=x[:3].astype(np.float64))
    assert np.array_equal(samples, list(expected))
