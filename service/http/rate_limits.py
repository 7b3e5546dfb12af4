"""Rate limits of API keys: a bucket that refills evenly and holds one minute's worth.

This is the generic cell rate algorithm: the only state is the time at which the bucket will be full
again. It is kept in memory, so each replica counts for itself. Charges happen on the event loop, so
no two of them run at the same time.
"""

from collections.abc import Callable
from time import monotonic

from localmoments.errors import RateError, TooLargeError

MINUTE = 60.0  # seconds
ROUNDING = 1e-6  # seconds; sums of fractions of a minute are not exact

Clock = Callable[[], float]


class RateLimit:
    """How much of one unit a key may use per minute."""

    def __init__(self, key: str, unit: str, per_minute: int, clock: Clock = monotonic) -> None:
        self._key, self._unit, self._limit, self._clock = key, unit, per_minute, clock
        self._full_at = float("-inf")

    def charge(self, cost: int) -> None:
        """Take `cost` from the bucket.

        Raises RateError if too little is left, and TooLargeError if a full bucket does not hold as
        much. Then nothing is taken.
        """
        if cost > self._limit:
            raise TooLargeError(
                f"This costs {cost} {self._unit}, but the key {self._key!r} is limited to "
                f"{self._limit} per minute. Split the request."
            )
        now = self._clock()
        full_at = max(self._full_at, now) + cost * MINUTE / self._limit
        wait = full_at - now - MINUTE
        if wait > ROUNDING:
            raise RateError(
                f"The key {self._key!r} has used its {self._limit} {self._unit} per minute. "
                f"Retry in {wait:.3g} seconds.",
                retry_after=wait,
            )
        self._full_at = full_at
