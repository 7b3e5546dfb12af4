"""How many are let in: a count, and fewer of them while a queue stands."""

from collections import deque

import pytest

from localmoments.errors import OverloadError
from service.http.gate import FEWEST, Gate

MOST, WAIT = 64, 0.05


def test_a_gate_counts_those_inside_and_refuses_more() -> None:
    gate = Gate(2, WAIT)
    gate.enter(0.0)
    gate.enter(0.0)
    with pytest.raises(OverloadError) as caught:
        gate.check()
    assert caught.value.retry_after is not None and caught.value.retry_after >= 0
    gate.leave(0.0, 0.01)
    gate.check()
    assert (gate.inside, gate.refused) == (1, 1)


def test_a_server_that_is_asked_too_much_lets_in_what_it_can_answer_in_time() -> None:
    """One answer after the other takes 2 ms: a full gate would mean 128 ms for everyone."""
    times = flooded(Gate(MOST, WAIT), service_seconds=0.002, until=4.0)
    late = times[len(times) // 2 :]
    assert max(times) > 2 * WAIT  # in the beginning
    assert max(late) < 1.5 * WAIT


def test_the_width_is_found_at_the_first_look() -> None:
    """By Little's law: 500 answers a second for 50 ms are 25 inside."""
    gate = Gate(1000, WAIT)
    for _ in range(1000):
        gate.enter(0.0)
    for i in range(1, 200):
        gate.leave(0.0, 0.002 * i)
        if gate.room < 1000 and i * 0.002 > WAIT:
            break
    assert gate.room == pytest.approx(WAIT / 0.002, abs=1)


def test_quick_answers_fill_the_gate() -> None:
    gate = Gate(MOST, WAIT)
    times = flooded(gate, service_seconds=0.0005, until=4.0)
    assert gate.room == MOST and max(times) < WAIT


def test_few_are_let_in_however_long_they_take() -> None:
    gate = Gate(MOST, WAIT)
    flooded(gate, service_seconds=0.1, until=20.0)
    assert gate.room == FEWEST
    small = Gate(4, WAIT)
    flooded(small, service_seconds=0.1, until=5.0)
    assert small.room == 4


def test_a_queue_that_is_gone_opens_the_gate_again() -> None:
    gate = Gate(MOST, WAIT)
    flooded(gate, service_seconds=0.1, until=20.0)
    for i in range(100):
        gate.enter(30 + i)
        gate.leave(30 + i, 30.001 + i)
    assert gate.room == MOST


def test_one_alone_that_takes_long_is_no_queue() -> None:
    gate = Gate(MOST, WAIT)
    for i in range(20):
        gate.enter(float(i))
        gate.leave(float(i), i + 0.9)
    assert gate.room == MOST


def test_what_was_not_done_while_nobody_came_does_not_count() -> None:
    """A crowd after a long pause is judged by what is done since it came."""
    gate = Gate(1000, WAIT)
    gate.enter(0.0)
    gate.leave(0.0, 0.001)
    for _ in range(1000):
        gate.enter(900.0)
    for i in range(100):
        gate.leave(900.0, 900.1 + 0.001 * i)
    assert gate.room == pytest.approx(1000 * WAIT, abs=2)


def test_one_quick_answer_among_slow_ones_is_no_standing_queue() -> None:
    """Large requests take their time while small ones pass by."""
    gate, now = Gate(MOST, WAIT), 0.0
    for i in range(1000):
        now += 0.002
        gate.enter(now - 0.2)
        gate.leave(now - (0.001 if i % 5 == 0 else 0.2), now)
    assert gate.room == MOST


def flooded(gate: Gate, service_seconds: float, until: float) -> list[float]:
    """Seconds that each took; whenever there is room, somebody comes in."""
    queue: deque[float] = deque()
    times, now = [], 0.0
    while now < until:
        while not gate.is_full:
            gate.enter(now)
            queue.append(now)
        now += service_seconds
        began = queue.popleft()
        times.append(now - began)
        gate.leave(began, now)
    return times
