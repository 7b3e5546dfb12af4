"""A signal is never lost for good."""

import gc
import os
import signal

import pytest

from localmoments.signals import ENDS
from trainer.atomic_files import new_version
from trainer.interrupts import INTERRUPT, install_interrupt_handler


class Ends:
    """Its finaliser is where Python prints an exception and forgets it."""

    def __init__(self, number):
        self.number = number
        self.itself = self

    def __del__(self):
        os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
class TestInterrupt:
    @pytest.fixture(autouse=True)
    def _as_it_was(self):
        before = {s: signal.getsignal(s) for s in ENDS}
        install_interrupt_handler()
        yield
        INTERRUPT.is_set = False
        for each, handler in before.items():
            signal.signal(each, handler)

    def test_a_signal_raises_keyboard_interrupt_at_once(self, number):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_a_signal_that_python_swallowed_prevents_a_new_version(self, number, tmp_path):
        reached = []
        with pytest.raises(KeyboardInterrupt), new_version(tmp_path, "model") as (folder, _):
            (folder / "file").write_text("whole")
            Ends(number)
            gc.collect()
            reached.append("the end of the block")
        assert reached and list(tmp_path.iterdir()) == []
