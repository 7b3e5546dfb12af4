"""A generator of graph calls as one job of the batcher: local moments.

Each call that the generator yields is one pass. The algebra between passes, such as an eigen-
decomposition, runs on the executor's algebra thread, so that it does not hold up other passes; the
job pauses meanwhile. So a request crosses between the event loop and the compute threads twice:
once to queue the job, and once to deliver its result.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from localmoments.arrays import Arrays, Named
from localmoments.graph_calls import Call, Calls, check_finite
from localmoments.model import Model
from service.engine.batcher import Batcher
from service.engine.job import Next, ResultJob, count_rows

T = TypeVar("T")


class CallsJob(ResultJob[T]):
    """Run a generator of graph calls. Await `result` for what it returns.

    Args:
        algebra: the thread on which the generator runs between passes. The first call is made
            by the constructor, on the event loop.
    """

    def __init__(
        self, batcher: Batcher, algebra: ThreadPoolExecutor, model: Model, calls: Calls[T]
    ) -> None:
        call = next(calls)
        super().__init__(model, call.graph, count_rows(call.inputs))
        self._batcher, self._algebra, self._calls = batcher, algebra, calls
        self._set_call(call)

    def _set_call(self, call: Call) -> None:
        """Make this the next pass. Jobs whose rows have the same shapes share it."""
        shapes = tuple((name, array.shape[1:]) for name, array in call.inputs.items())
        self._call, self.graph, self.rows = call, call.graph, count_rows(call.inputs)
        self.batch_key = (id(self.model), call.graph, ("calls", shapes))

    def make_inputs(self) -> Named:
        return dict(self._call.inputs)

    def take_outputs(self, outputs: Named) -> Next:
        self._algebra.submit(self._continue, outputs)
        return Next.PAUSE

    def _continue(self, outputs: Arrays) -> None:
        """Run the generator to its next call, on the algebra thread."""
        try:
            if not self.cancelled:
                check_finite(self.model, outputs)
                self._set_call(self._calls.send(outputs))
        except StopIteration as end:
            self.value = end.value
            self._batcher.finish(self, None)
        except Exception as error:
            self._batcher.finish(self, error)
        else:
            self._batcher.resume(self)  # the batcher drops it if it is cancelled

    def finish(self, error: Exception | None) -> None:
        # Not through the notifier, which belongs to the batcher's thread: this may be the other.
        self.loop.call_soon_threadsafe(partial(self.set_result, error))
