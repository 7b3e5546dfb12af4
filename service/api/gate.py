"""How many requests for rows are answered at a time.

What is worth waiting for is soon done: a request costs a fraction of a millisecond, and waits for
those before it. So the count of those bounds the wait, and who would wait longer hears so at once,
before the body is read. Calls that take longer (chains, moments) count by their rows in the engine.
"""

from time import perf_counter

from service.core.errors import OverloadError

SMOOTH = 0.02  # weight of the newest answer in the measured pace


class Gate:
    """Use as `with gate:` around an answer."""

    def __init__(self, most: int) -> None:
        self.inside = self.refused = 0
        self._most = most
        self._pace = 0.0  # seconds from one answer to the next, while there is something to do
        self._last = 0.0

    @property
    def is_full(self) -> bool:
        return self.inside >= self._most

    def refusal(self) -> OverloadError:
        self.refused += 1
        return OverloadError(
            f"{self.inside} requests are being answered, and no more at a time.",
            retry_after=self.inside * self._pace,
        )

    def check(self) -> None:
        if self.is_full:
            raise self.refusal()

    def __enter__(self) -> None:
        if not self.inside:
            self._last = perf_counter()
        self.inside += 1

    def __exit__(self, *error: object) -> None:
        self.inside -= 1
        now = perf_counter()
        self._pace += SMOOTH * (now - self._last - self._pace)
        self._last = now
