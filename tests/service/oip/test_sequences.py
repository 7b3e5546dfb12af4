"""A sequence of requests is a chain: begun, gone on with and ended, at any replica."""

import hashlib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

D = 8
NAME = "tiny:chain"
MADE = {"walkers": 3, "seed": 5, "thin": 1}
START, END = {"sequence_start": True}, {"sequence_end": True}

ids = count(1000)


@pytest.fixture
def number() -> int:
    """Of a sequence that no other test has."""
    return next(ids)


@pytest.fixture
def samples(ask: Any) -> Callable[..., Any]:
    def samples(client: Any, number: int | str, **said: Any) -> Any:
        inputs = said.pop("inputs", {})
        return ask(client, NAME, inputs, sequence_id=number, **said).outputs["samples"]

    return samples


@pytest.fixture
def refused(ask: Any, problem: Any) -> Callable[..., str]:
    def refused(client: Any, number: int | str, status: int, words: str, **said: Any) -> str:
        inputs = said.pop("inputs", {})
        answer = ask.raw(client, NAME, inputs, sequence_id=number, **said)
        detail: str = problem(answer, status, words)["detail"]
        return detail

    return refused


def sampled(client: Any, **asked: Any) -> Any:
    answer = client.post("/sample", json={**MADE, **asked})
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["samples"], "f4")


def test_a_sequence_is_the_chain_of_the_same_seed(client: Any, samples: Any, number: int) -> None:
    expected = sampled(client, steps=10)
    first = samples(client, number, steps=4, **MADE, **START)
    second = samples(client, number, steps=3)
    last = samples(client, number, steps=3, **END)
    assert np.array_equal(np.concatenate([first, second, last]), expected)


def test_the_answer_says_where_the_chain_stands(client: Any, ask: Any, number: int) -> None:
    ask(client, NAME, {}, sequence_id=number, steps=4, **MADE, **START)
    facts = ask(client, NAME, {}, sequence_id=number, steps=2).head["parameters"]
    chain = client.get(f"/chains/{facts['chain']}").json()
    assert (facts["sequence_id"], facts["from_step"], facts["step"]) == (number, 4, 6)
    assert (facts["seed"], facts["kernel"]) == (5, "gibbs") == (chain["seed"], chain["kernel"])
    assert chain["step"] == 6


def test_another_replica_goes_on_and_ends(
    client: Any, make_client: Any, samples: Any, refused: Any, number: int
) -> None:
    other = make_client()
    first = samples(client, number, steps=5, **MADE, **START)
    second = samples(other, number, steps=5)
    assert np.array_equal(np.concatenate([first, second]), sampled(client, steps=10))
    samples(other, number, steps=1, **END)
    refused(client, number, 410, f"The chain of sequence {number} was ended at 20")


def test_a_start_sent_again_gives_the_same_samples(
    client: Any, samples: Any, refused: Any, number: int
) -> None:
    """Its answer may have been lost; but another start must not take a chain away."""
    said = {"walkers": 2, "steps": 4, "thin": 1, **START}  # the seed is the service's
    first = samples(client, number, **said)
    assert np.array_equal(samples(client, number, **said), first)
    refused(client, number, 409, f"The sequence {number} is under way", **{**said, "walkers": 3})
    samples(client, number, steps=1)
    samples(client, number, steps=1)
    refused(client, number, 409, f"The sequence {number} is under way", **said)


def test_a_lost_answer_comes_again_by_its_step(client: Any, samples: Any, number: int) -> None:
    samples(client, number, steps=4, **MADE, **START)
    second = samples(client, number, steps=3)
    assert np.array_equal(samples(client, number, steps=3, from_step=4), second)


def test_an_ended_sequence_can_begin_anew(
    client: Any, samples: Any, refused: Any, number: int
) -> None:
    first = samples(client, number, steps=4, **MADE, **START, **END)
    refused(client, number, 410, "was ended", steps=1)
    assert np.array_equal(samples(client, number, steps=4, **MADE, **START), first)


def test_no_steps_end_a_chain_and_nothing_else(
    client: Any, samples: Any, refused: Any, number: int
) -> None:
    samples(client, number, steps=4, **MADE, **START)
    refused(client, number, 422, "steps is 0", steps=0)
    refused(client, number, 422, "steps is 0", steps=0, **START, **END)
    last = samples(client, number, steps=0, **END)
    assert last.shape == (0, 3, D) and last.dtype == np.float32
    refused(client, number, 410, "was ended", steps=0, **END)


def test_points_of_the_caller_begin_a_chain(client: Any, samples: Any, number: int) -> None:
    points = np.random.default_rng(2).standard_normal((3, D)).astype("f4")
    found = samples(client, number, steps=4, **MADE, **START, inputs={"start": points})
    expected = sampled(client, steps=4, start={"points": points.tolist()})
    assert np.array_equal(found, expected)


def test_a_schedule_is_a_text_with_commas(client: Any, samples: Any, number: int) -> None:
    found = samples(client, number, steps=4, **MADE, scale="0.5,1.0", **START)
    assert np.array_equal(found, sampled(client, steps=4, scale=[0.5, 1.0]))
    alone = samples(client, next(ids), steps=4, **MADE, scale=0.5, kernel="moment", **START)
    assert np.array_equal(alone, sampled(client, steps=4, scale=0.5, kernel="moment"))


def test_numbers_and_texts_are_different_ids(client: Any, samples: Any, refused: Any) -> None:
    number = next(ids)
    samples(client, number, steps=1, **START)
    refused(client, str(number), 404, f"There is no chain of sequence '{number}'")
    samples(client, str(number), steps=2, **START)
    samples(client, number, steps=1, **END)
    assert samples(client, str(number), steps=2, thin=1).shape == (2, 4, D)


@pytest.mark.parametrize(
    ("status", "words", "said"),
    [
        (404, "There is no chain of sequence 7.", {"sequence_id": 7}),
        (422, "a sequence_id other than 0", {}),
        (422, "a sequence_id other than 0", {"sequence_id": "", "sequence_start": True}),
        (422, "no kernel 'other'", {"sequence_id": 7, "kernel": "other", **START}),
        (422, "scale takes up to", {"sequence_id": 7, "scale": "1,0", **START}),
        (422, "scale is not a list", {"sequence_id": 7, "scale": "1,e", **START}),
        (422, "no parameter sigma", {"sequence_id": 7, "sigma": 1.0, **START}),
        (422, "from_step belongs to a chain", {"sequence_id": 7, "from_step": 3, **START}),
        (413, "row-steps", {"sequence_id": 7, "steps": 10**9, **START}),
        (422, "parameters.sequence_id", {"sequence_id": True}),
        (422, "parameters.sequence_id", {"sequence_id": -1}),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(
    client: Any, ask: Any, problem: Any, status: int, words: str, said: Any
) -> None:
    problem(ask.raw(client, NAME, {}, **said), status, words)


def test_what_a_chain_is_cannot_change(
    client: Any, samples: Any, refused: Any, number: int
) -> None:
    samples(client, number, steps=1, **MADE, **START)
    said = refused(client, number, 422, "walkers of chain of sequence", walkers=4)
    assert "cannot be changed" in said
    assert len(samples(client, number, steps=1, **MADE)) == 1


SECRETS = {"alice": "a", "bob": "b", "reader": "r"}


@pytest.fixture(scope="module")
def locked(make_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("keys") / "keys.toml"
    entries = [
        f'[[key]]\nname = "{name}"\nsha256 = "{hashlib.sha256(secret.encode()).hexdigest()}"\n'
        f"scopes = {['read'] if name == 'reader' else ['read', 'sample']}\n"
        f"row_steps_per_minute = 100\n"
        for name, secret in SECRETS.items()
    ]
    path.write_text("".join(entries))
    return make_client(keys_file=path)


def of(name: str) -> dict[str, Any]:
    return {"headers": {"x-api-key": SECRETS[name]}}


def test_callers_with_keys_never_meet(locked: Any, samples: Any, refused: Any, number: int) -> None:
    first = samples(locked, number, steps=2, **MADE, **START, **of("alice"))
    refused(locked, number, 404, "no chain of sequence", steps=1, **of("bob"))
    own = samples(locked, number, steps=2, **{**MADE, "seed": 6}, **START, **of("bob"))
    assert not np.array_equal(first, own)
    samples(locked, number, steps=0, **END, **of("bob"))
    assert samples(locked, number, steps=2, **of("alice")).shape == (2, 3, D)


def test_chains_take_the_scope_and_the_price_of_samples(
    locked: Any, ask: Any, refused: Any, problem: Any, number: int
) -> None:
    refused(locked, number, 403, "'sample'", **START, **of("reader"))
    refused(locked, number, 413, "400 row-steps", **START, **of("bob"))
    rows = np.zeros((80, D), "f4")
    assert ask(locked, "tiny", {"x": rows}, **of("reader")).outputs
    problem(ask.raw(locked, "tiny", {"x": rows}, **of("reader")), 429, "used up its 100 row-steps")
    problem(ask.raw(locked, "tiny", {"x": rows}), 401, "An API key is needed")
