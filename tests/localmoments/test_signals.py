"""A signal that is held back comes later, and is not lost."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from localmoments.signals import ENDS, held_back


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
class TestHeldBack:
    def test_it_arrives_at_the_end_of_the_block_for_who_handled_it_before(
        self, number: int
    ) -> None:
        reached = []
        with pytest.raises(Asked, match=str(int(number))), held_back():
            os.kill(os.getpid(), number)
            reached.append("the end of the block")
        assert reached

    def test_also_where_there_are_other_threads(self, number: int) -> None:
        over, reached = threading.Event(), []
        idle = threading.Thread(target=over.wait)
        idle.start()
        try:
            with pytest.raises(Asked), held_back():
                os.kill(os.getpid(), number)
                reached.append("the end of the block")
        finally:
            over.set()
            idle.join()
        assert reached

    def test_the_handlers_are_those_of_before(self, number: int) -> None:
        with held_back():
            assert signal.getsignal(number) is not ask
        assert signal.getsignal(number) is ask

    def test_an_error_of_the_block_is_said_as_it_is(self, number: int) -> None:
        with pytest.raises(ValueError, match="a bad graph"), held_back():
            os.kill(os.getpid(), number)
            raise ValueError("a bad graph")
