"""How many requests for rows are answered at a time.

What is worth waiting for is soon done: a request costs a fraction of a millisecond, and waits for
those before it. So the count of those bounds the wait, and who would wait longer hears so at once,
before the body is read. Calls that take longer (chains, moments) count by their rows in the engine.

A queue that comes and goes does no harm. One that stands is seen by this, that for a while not even
the quickest answer was quick (as in Nichols and Jacobson's CoDel): then fewer are let in, until
it is gone.
"""

import math

from service.core.errors import OverloadError

SMOOTH = 0.02  # weight of the newest answer in the measured pace
LOOK_SECONDS = 0.05  # how long nobody is quick before it counts
SHRINK, GROW = 0.7, 1.05
FEWEST = 8  # that are let in, however long they take


class Gate:
    """`enter` before an answer, `leave` after it; times are those of one clock, in seconds."""

    def __init__(self, most: int, wait_seconds: float) -> None:
        self.inside = self.refused = 0
        self.room = most  # that may be inside
        self._most, self._wait = most, wait_seconds
        self._looked, self._quickest = -math.inf, math.inf
        self._pace = 0.0  # seconds from one answer to the next, while there is something to do
        self._last = 0.0

    @property
    def is_full(self) -> bool:
        return self.inside >= self.room

    def refusal(self) -> OverloadError:
        self.refused += 1
        return OverloadError(
            f"{self.inside} requests are being answered, and no more at a time.",
            retry_after=self.inside * self._pace,
        )

    def check(self) -> None:
        if self.is_full:
            raise self.refusal()

    def enter(self, now: float) -> None:
        if not self.inside:
            self._last = now
        self.inside += 1

    def leave(self, began: float, now: float) -> None:
        """Of a request that came at the time `began`."""
        self.inside -= 1
        self._pace += SMOOTH * (now - self._last - self._pace)
        self._last = now
        self._quickest = min(self._quickest, now - began)
        if now - self._looked >= LOOK_SECONDS:
            self._look(now)

    def _look(self, now: float) -> None:
        if self._quickest > self._wait:
            self.room = max(min(FEWEST, self._most), int(self.room * SHRINK))
        else:
            self.room = min(self._most, math.ceil(self.room * GROW))
        self._looked, self._quickest = now, math.inf
