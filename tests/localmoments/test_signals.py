"""A delayed signal arrives later and is not lost."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from localmoments.signals import ENDS, delay_signals


class Asked(Exception):
    pass


def ask(number: int, frame: object) -> None:
    raise Asked(number)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = {number: signal.signal(number, ask) for number in ENDS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDS)
class TestDelaySignals:
    def test_a_signal_reaches_the_earlier_handler_at_the_end_of_the_block(
        self, number: int
    ) -> None:
        reached = []
        with pytest.raises(Asked, match=str(int(number))), delay_signals():
            os.kill(os.getpid(), number)
            reached.append("the end of the block")
        assert reached

    def test_a_signal_is_delayed_with_other_threads_too(self, number: int) -> None:
        over, reached = threading.Event(), []
        idle = threading.Thread(target=over.wait)
        idle.start()
        try:
            with pytest.raises(Asked), delay_signals():
                os.kill(os.getpid(), number)
                reached.append("the end of the block")
        finally:
            over.set()
            idle.join()
        assert reached

    def test_the_handlers_are_restored(self, number: int) -> None:
        with delay_signals():
            assert signal.getsignal(number) is not ask
        assert signal.getsignal(number) is ask

    def test_an_error_of_the_block_is_raised_unchanged(self, number: int) -> None:
        with pytest.raises(ValueError, match="a bad graph"), delay_signals():
            os.kill(os.getpid(), number)
            raise ValueError("a bad graph")
