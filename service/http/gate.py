"""How many requests for rows are answered at a time.

What is worth waiting for is soon done: a request costs a fraction of a millisecond, and waits for
those before it. So the count of those bounds the wait, and who would wait longer hears so at once,
before the body is read. Calls that take longer (chains, moments) count by their rows in the engine.

A queue that comes and goes does no harm. One that stands is seen by this, that for a while not even
the quickest answer was quick (as in Nichols and Jacobson's CoDel): then only so many are let in as
are answered in the time that one may wait (Little's law), and fewer until the queue is gone. The
wait begins with the turn of the event loop in which a request was read, because where refusing
alone keeps the loop busy, that is where the queue stands.
"""

import math

from localmoments.errors import OverloadError

SMOOTH = 0.02  # weight of the newest answer in the measured pace
LOOK_SECONDS = 0.05  # how long nobody is quick before it counts
SHRINK, GROW = 0.7, 1.05
FEWEST = 4  # that are let in, however long they take


class Gate:
    """`enter` before an answer, `leave` after it; times are by the clock of event loops."""

    def __init__(self, most: int, wait_seconds: float) -> None:
        self.inside = self.refused = 0
        self.room = most  # that may be inside
        self._most, self._wait = most, wait_seconds
        self._looked = self._back = -math.inf  # the last look, and the end of the last pause
        self._left, self._crowd, self._quickest = 0, 0, math.inf  # since the last look
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
            if now - self._last > LOOK_SECONDS:
                self._back = now
            self._last = now
        self.inside += 1
        self._crowd = max(self._crowd, self.inside)

    def leave(self, began: float, now: float) -> None:
        """Of a request that came at the time `began`."""
        self.inside -= 1
        self._pace += SMOOTH * (now - self._last - self._pace)
        self._last = now
        self._left += 1
        self._quickest = min(self._quickest, now - began)
        if now - self._looked >= LOOK_SECONDS:
            self._look(now)

    def _look(self, now: float) -> None:
        if self._quickest <= self._wait:
            self.room = min(self._most, math.ceil(self.room * GROW))
        elif self._crowd > FEWEST and self._looked >= self._back:
            rate = self._left / (now - self._looked)
            self.room = max(FEWEST, min(int(rate * self._wait), int(self.room * SHRINK)))
        self._looked = now
        self._left, self._crowd, self._quickest = 0, self.inside, math.inf
