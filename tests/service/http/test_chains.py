"""GET, DELETE and fork of /chains: status, branches, deletion, expiry and ownership."""

import io
from typing import Any

import numpy as np
import pytest
import redis

NPY = "application/x-npy"


def sample(client: Any, **asked: Any) -> dict[str, Any]:
    answer = client.post("/sample", json=asked)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.parametrize("kernel", ["gibbs", "hidden"])
def test_a_chain_is_at_its_last_step(client: Any, kernel: str) -> None:
    asked = {"seed": 3, "walkers": 2, "kernel": kernel, "emit": "noisy"}
    made = sample(client, **asked, steps=9, thin=1, burn_in=2)
    body = client.get(f"/chains/{made['chain']}").json()
    same = ("chain", "model", "kernel", "scale", "floor", "seed", "walkers", "burn_in", "thin",
            "emit", "step")  # fmt: skip
    assert {name: body[name] for name in same} == {name: made[name] for name in same}
    assert body["possible"] == {"first": 0, "last": 11} and body["busy"] is False
    assert body["created"] < body["expires"]
    np.testing.assert_allclose(body["x"], made["samples"][-1], rtol=1e-5, atol=1e-6)
    raw = client.get(f"/chains/{made['chain']}", headers={"accept": NPY})
    assert np.array_equal(np.load(io.BytesIO(raw.content)), body["x"])
    assert raw.headers["x-chain-step"] == "11"


def test_moments_at_a_walker_equal_those_at_its_point(client: Any, problem: Any) -> None:
    chain = sample(client, walkers=3, steps=4)["chain"]
    x = client.get(f"/chains/{chain}").json()["x"][2]
    there = client.get(f"/moments?chain={chain}&walker=2").json()
    assert there == client.get("/moments?x=" + ",".join(map(str, x))).json()
    problem(client.get(f"/moments?chain={chain}&walker=3"), 422, "less than 3")
    problem(client.get(f"/moments?chain={chain}&x=1"), 422, "exactly one of")
    problem(client.get(f"/moments?chain={'0' * 32}"), 404, "no chain")


def test_an_unchanged_fork_gives_the_samples_of_its_origin(client: Any) -> None:
    origin = sample(client, seed=5, walkers=2, steps=10, thin=1)["chain"]
    forked = client.post(f"/chains/{origin}/fork")
    assert forked.status_code == 201
    same, other = forked.json(), client.post(f"/chains/{origin}/fork", json={"seed": 6}).json()
    assert forked.headers["location"] == f"/chains/{same['chain']}"
    assert same["x"] == other["x"] and (same["step"], other["seed"]) == (10, 6)
    on = sample(client, chain=origin, steps=5)["samples"]
    assert sample(client, chain=same["chain"], steps=5)["samples"] == on
    assert sample(client, chain=other["chain"], steps=5)["samples"] != on


def test_a_fork_can_start_at_an_earlier_step(client: Any, problem: Any) -> None:
    made = sample(client, seed=5, walkers=2, steps=10, thin=1)
    fork = client.post(f"/chains/{made['chain']}/fork", json={"from_step": 4}).json()
    assert fork["step"] == 4 and fork["possible"] == {"first": 4, "last": 4}
    assert sample(client, chain=fork["chain"], steps=6)["samples"] == made["samples"][4:]
    far = client.post(f"/chains/{made['chain']}/fork", json={"from_step": 11})
    problem(far, 409, "only from 0 to 10")


def test_a_fork_may_change_kernel_within_its_space(client: Any, problem: Any) -> None:
    chain = sample(client, seed=5, steps=2)["chain"]
    changed = client.post(f"/chains/{chain}/fork", json={"kernel": "moment", "floor": 0.5}).json()
    assert (changed["kernel"], changed["floor"], changed["seed"]) == ("moment", 0.5, 5)
    assert changed["scale"] != sample(client, chain=chain, steps=1)["scale"]
    where = f"/chains/{chain}/fork"
    problem(client.post(where, json={"kernel": "hidden"}), 422, "hidden space")
    problem(client.post(where, json={"kernel": "none"}), 422, "has no kernel")
    problem(client.post(where, json={"walkers": 3}), 422, "walkers")
    problem(client.post(where, content=b"1", headers={"content-type": NPY}), 415)


def test_a_deleted_chain_returns_410(client: Any, problem: Any) -> None:
    chain = sample(client, steps=1)["chain"]
    assert client.request("DELETE", f"/chains/{chain}").status_code == 204
    for answer in (
        client.get(f"/chains/{chain}"),
        client.request("DELETE", f"/chains/{chain}"),
        client.post("/sample", json={"chain": chain}),
        client.post(f"/chains/{chain}/fork"),
    ):
        body = problem(answer, 410, "was deleted")
        assert body["expired"].startswith("20")


def test_an_expired_chain_returns_410_and_later_404(
    make_client: Any, problem: Any, valkey_url: str
) -> None:
    client = make_client(chain_seconds=1, tombstone_seconds=1)
    chain = sample(client, steps=1)["chain"]
    with redis.Redis.from_url(valkey_url) as server:
        server.delete(f"lm:chain:{{{chain}}}")  # as its time to live would
        body = problem(client.get(f"/chains/{chain}"), 410, "expired")
        assert body["expired"].startswith("20")
        server.delete(f"lm:end:{{{chain}}}")
        problem(client.get(f"/chains/{chain}"), 404, "no chain")


@pytest.mark.parametrize("name", ["nothing", "0" * 31, "G" * 32, "%7Bx%7D", "..%2F..", "0" * 33])
def test_a_malformed_id_is_an_unknown_chain(client: Any, problem: Any, name: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/fork")):
        assert client.request(method, f"/chains/{name}{path}").status_code == 404


def test_a_chain_of_a_removed_version_cannot_be_resumed(
    make_client: Any, problem: Any, tiny_artefact: Any, tmp_path: Any
) -> None:
    import shutil

    shutil.copytree(tiny_artefact, tmp_path / "tiny/1")
    client = make_client(models=tmp_path)
    chain = sample(client, steps=1)["chain"]
    (tmp_path / "tiny/1").rename(tmp_path / "away")
    client.app.state.models.refresh()
    shutil.copytree(tiny_artefact, tmp_path / "other/1")
    problem(client.post("/sample", json={"chain": chain}), 409, "no longer served")


def test_without_the_store_chains_return_503_and_the_rest_works(
    make_client: Any, problem: Any
) -> None:
    client = make_client(store_url="unix:///nowhere/s", store_seconds=1)
    problem(client.post("/sample", json={}), 503, "store")
    problem(client.get(f"/chains/{'0' * 32}"), 503, "store")
    problem(client.get("/readyz"), 503, "store")
    assert client.post("/reconstruct", json={"x": [[0.0] * 8]}).status_code == 200
    assert client.get("/healthz").status_code == 200


def test_no_chain_starts_while_the_service_drains(make_client: Any, problem: Any) -> None:
    client = make_client()
    chain = sample(client, steps=1)["chain"]
    client.app.state.chains.drain(whole=False)
    for answer in (
        client.get("/readyz"),
        client.post("/sample", json={}),
        client.post("/sample", json={"chain": chain}),
        client.post(f"/chains/{chain}/fork"),
    ):
        problem(answer, 503, "shutting down")
        assert answer.headers["retry-after"] == "1"
    assert client.get(f"/chains/{chain}").status_code == 200
    assert client.post("/reconstruct", json={"x": [[0.0] * 8]}).status_code == 200


def test_chains_are_counted(make_client: Any) -> None:
    client = make_client()
    chain = sample(client, walkers=3, steps=7)["chain"]
    client.post(f"/chains/{chain}/fork")
    lines = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines())
    assert float(lines["localmoments_row_steps_total"]) == 21
    assert float(lines["localmoments_commits_total"]) == 1
    assert float(lines["localmoments_chains_opened_total"]) == 2
    assert float(lines["localmoments_chains_running"]) == 0
