"""How much a key may ask for: a bucket that fills evenly and holds one minute's worth.

The generic cell rate algorithm: all there is to remember is when the bucket will be full again.
Kept in memory, so each replica counts for itself; used on the event loop, so no two charges meet.
"""

from collections.abc import Callable
from time import monotonic

from localmoments.errors import RateError, TooLargeError

MINUTE = 60.0  # seconds
ROUNDING = 1e-6  # seconds: a sum of fractions of a minute is a minute

Clock = Callable[[], float]


class Allowance:
    """What one key may take of one thing in a minute."""

    def __init__(self, key: str, things: str, a_minute: int, clock: Clock = monotonic) -> None:
        self._key, self._things, self._most, self._clock = key, things, a_minute, clock
        self._full_at = float("-inf")

    def charge(self, cost: int) -> None:
        """Takes it all, or takes nothing and raises."""
        if cost > self._most:
            raise TooLargeError(
                f"This costs {cost} {self._things}, but {self._most} are all that the key "
                f"{self._key!r} may use in a minute: ask for less at once."
            )
        now = self._clock()
        full_at = max(self._full_at, now) + cost * MINUTE / self._most
        wait = full_at - now - MINUTE
        if wait > ROUNDING:
            raise RateError(
                f"The key {self._key!r} has used up its {self._most} {self._things} a minute; "
                f"this can be had in {wait:.3g} seconds.",
                retry_after=wait,
            )
        self._full_at = full_at
