"""Rate limits: one minute's worth at once, then an even refill; the test sets the clock."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmoments.errors import RateError, TooLargeError
from service.http.rate_limits import RateLimit


class Clock:
    def __init__(self, now: float = 1e6) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def refusal(allowance: RateLimit, cost: int) -> Any:
    with pytest.raises(RateError) as refused:
        allowance.charge(cost)
    return refused.value


@pytest.mark.parametrize("most", [1, 7, 60, 600, 999_983])
def test_one_minutes_worth_can_be_used_at_once_and_no_more(clock: Clock, most: int) -> None:
    allowance = RateLimit("alice", "requests", most, clock)
    for _ in range(min(most, 1000) - 1):
        allowance.charge(1)
    allowance.charge(most - min(most, 1000) + 1)
    assert refusal(allowance, 1).retry_after == pytest.approx(60 / most, abs=1e-5)


def test_a_charge_succeeds_after_retry_after_and_not_before(clock: Clock) -> None:
    allowance = RateLimit("alice", "row-steps", 1000, clock)
    allowance.charge(900)
    wait = refusal(allowance, 400).retry_after
    assert wait == pytest.approx(60 * 300 / 1000)
    clock.now += wait - 0.01
    assert refusal(allowance, 400).retry_after == pytest.approx(0.01)
    clock.now += 0.01
    allowance.charge(400)


def test_a_refused_charge_costs_nothing(clock: Clock) -> None:
    allowance = RateLimit("alice", "requests", 10, clock)
    allowance.charge(6)
    for _ in range(100):
        refusal(allowance, 5)
    allowance.charge(4)


def test_an_idle_key_saves_up_one_minute_at_most(clock: Clock) -> None:
    allowance = RateLimit("alice", "requests", 10, clock)
    clock.now += 3600
    allowance.charge(10)
    refusal(allowance, 1)


def test_a_charge_above_the_limit_is_too_large(clock: Clock) -> None:
    allowance = RateLimit("alice", "row-steps", 1000, clock)
    with pytest.raises(
        TooLargeError, match=r"costs 1001 row-steps, but the key 'alice' is limited to 1000"
    ):
        allowance.charge(1001)
    allowance.charge(1000)


def test_the_error_names_the_key_the_limit_and_the_wait(clock: Clock) -> None:
    allowance = RateLimit("alice", "requests", 2, clock)
    allowance.charge(2)
    assert str(refusal(allowance, 1)) == (
        "The key 'alice' has used its 2 requests per minute. Retry in 30 seconds."
    )


events = st.lists(st.tuples(st.floats(0, 30), st.integers(0, 60)), max_size=60)


@given(most=st.integers(1, 50), events=events)
def test_no_interval_exceeds_one_minutes_worth_plus_the_refill(
    most: int, events: list[tuple[float, int]]
) -> None:
    clock, taken = Clock(), []
    allowance = RateLimit("alice", "requests", most, clock)
    for pause, cost in events:
        clock.now += pause
        try:
            allowance.charge(cost)
            taken.append((clock.now, cost))
        except (RateError, TooLargeError):
            pass
    for i, (first, _) in enumerate(taken):
        for j in range(i, len(taken)):
            seconds = taken[j][0] - first
            assert sum(cost for _, cost in taken[i : j + 1]) <= most * (1 + seconds / 60) + 1e-3
