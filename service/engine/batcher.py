"""Continuous batching: rows of all callers share graph calls and join or leave at every pass.

One thread computes while the event loop serves; onnxruntime releases the GIL. Jobs that may share
a graph call wait in one queue. Each pass
  1. picks the queue whose first job has waited longest,
  2. takes slices from the front of that queue, up to `max_rows` rows,
  3. runs the graph once and hands every job its rows,
  4. puts jobs that need another pass (chains, tangents) back at the end of their queue.

A job with more than `max_rows` rows is split, and its slices take turns with other jobs. If a pass
fails, its slices run again one by one, so that only the bad one fails. A cancelled job
is dropped before its next pass.
"""

import itertools
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, perf_counter

from localmoments.arrays import Named
from localmoments.errors import ComputeError, OverloadError
from service.engine.job import Job, LoopNotifier, Next, Slice, concatenate

log = logging.getLogger(__name__)

UNHEALTHY_SECONDS = 2.0  # after a failure of the batcher itself
SPEED_WEIGHT = 0.05  # weight of the newest pass in the moving average of the speed

CLOSED = "The service is shutting down."
FAILED = "The computation failed and was restarted."


class Batcher:
    """The compute thread and the queues of waiting jobs.

    Args:
        max_rows: the most rows in one pass.
        max_load: `admit` refuses rows beyond this many in all unfinished jobs.
    """

    def __init__(self, max_rows: int, max_load: int) -> None:
        self.max_rows, self.max_load = max_rows, max_load
        self.load = 0  # rows of all unfinished jobs
        self.passes = self.rows = self.restarts = 0  # totals, for the metrics
        self.chain_row_steps = 0  # steps of all chains × their rows, also for the metrics
        self._rows_per_second = 0.0
        self._queues: dict[object, deque[Job]] = {}  # by batch key; never empty queues
        self._arrivals = itertools.count()
        self._condition = threading.Condition()  # guards the queues, `load` and `_closed`
        self._preparer = ThreadPoolExecutor(1, thread_name_prefix="prepare")
        self._prepared: Future[None] | None = None
        self._notifier = LoopNotifier()
        self._closed = False
        self._unhealthy_until = 0.0
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def admit(self, rows: int) -> None:
        """Check that there is room for `rows` more rows.

        Raises:
            OverloadError: there is not; `retry_after` is the time that the present load needs.
        """
        if self.load and self.load + rows > self.max_load:
            raise OverloadError(
                f"{self.load} rows are being computed, which leaves no room for {rows} more.",
                retry_after=self.load / self._rows_per_second if self._rows_per_second else 1.0,
            )

    def check_health(self) -> None:
        """Raise ComputeError for a short time after a failure, so that load balancers notice."""
        if monotonic() < self._unhealthy_until or not self._thread.is_alive():
            raise ComputeError(FAILED, retry_after=UNHEALTHY_SECONDS)

    def add(self, job: Job, *, wake: bool = True) -> None:
        """Queue a new job; without `wake` it waits until somebody calls `wake`.

        Raises:
            ComputeError: the batcher is closed.
        """
        job.notifier = self._notifier
        with self._condition:
            if self._closed:
                raise ComputeError(CLOSED)
            self.load += job.load
            self._enqueue(job)
            if wake:
                self._condition.notify()

    def wake(self) -> None:
        """Wake the compute thread."""
        with self._condition:
            self._condition.notify()

    def resume(self, job: Job) -> None:
        """Queue a job again that has paused."""
        with self._condition:
            if not self._closed:
                self._enqueue(job)
                self._condition.notify()
                return
        self.finish(job, ComputeError(CLOSED))
        self._notifier.deliver()

    def finish(self, job: Job, error: Exception | None) -> None:
        """End a job that is in no queue. Any thread may call this."""
        with self._condition:  # reentrant: the caller may hold it
            self.load -= job.load
        job.finish(error)

    def close(self) -> None:
        """Stop the thread after its current pass and fail all waiting jobs."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join()
        self._preparer.shutdown()
        self._fail_all(CLOSED)

    def _enqueue(self, job: Job) -> None:
        job.enqueued = next(self._arrivals)
        self._queues.setdefault(job.batch_key, deque()).append(job)

    def _run(self) -> None:
        """Run passes until the batcher is closed. A bug here fails all jobs, but not the thread."""
        while True:
            batch: list[Slice] = []
            try:
                batch = self._next_batch()
                if not batch:
                    return
                self._run_batch(batch)
                self._notifier.deliver()
            except Exception:
                log.exception("the batcher failed and is restarted")
                self.restarts += 1
                self._unhealthy_until = monotonic() + UNHEALTHY_SECONDS
                self._fail_all(FAILED, batch)

    def _next_batch(self) -> list[Slice]:
        """Wait for jobs and return the slices of the next pass; [] once the batcher is closed."""
        with self._condition:
            while not self._closed:
                if not self._queues:
                    self._notifier.deliver()  # for jobs that were dropped while taking slices
                    self._condition.wait()
                    continue
                oldest = min(self._queues, key=lambda key: self._queues[key][0].enqueued)
                if batch := self._take_slices(oldest):
                    return batch
        return []

    def _take_slices(self, key: object) -> list[Slice]:
        """Take up to `max_rows` rows from the front of a queue, and drop cancelled jobs."""
        queue, room = self._queues[key], self.max_rows
        batch: list[Slice] = []
        while queue and room:
            job = queue[0]
            if job.cancelled:
                self.finish(queue.popleft(), None)
                continue
            piece = job.next_slice(room)
            batch.append(piece)
            room -= piece.rows
            if not piece.is_last:
                # The job stays at the front of its queue, but counts as new among the queues:
                # its next slice lets the other queues go first.
                job.enqueued = next(self._arrivals)
                break
            queue.popleft()
        if not queue:
            del self._queues[key]
        return batch

    def _run_batch(self, batch: Sequence[Slice]) -> None:
        if self._prepared is not None:
            self._prepared.result()  # make_inputs below uses what was prepared
        inputs = concatenate([piece.make_inputs() for piece in batch])
        ending = [piece.job for piece in batch if piece.is_last and piece.job.can_prepare]
        self._prepared = self._preparer.submit(_prepare, ending) if ending else None
        started = perf_counter()
        try:
            outputs = batch[0].job.compute(inputs, batch[0].start)
        except Exception as error:
            self._retry_each(batch, error)
            return
        self._count(sum(piece.rows for piece in batch), perf_counter() - started)
        self._hand_out(batch, outputs)

    def _retry_each(self, batch: Sequence[Slice], error: Exception) -> None:
        """Run the slices of a failed pass one by one, so that only the bad one fails."""
        if len(batch) == 1:
            self.finish(batch[0].job, error)
            return
        for piece in batch:
            self._run_batch([piece])

    def _hand_out(self, batch: Sequence[Slice], outputs: Named) -> None:
        """Give every job its rows, and queue those again that need another pass."""
        start, again = 0, []
        for piece in batch:
            stop = start + piece.rows
            rows = outputs if len(batch) == 1 else {k: v[start:stop] for k, v in outputs.items()}
            if self._process(piece.job, rows) is Next.PASS:
                again.append(piece.job)
            start = stop
        if again:
            with self._condition:
                for job in again:
                    self._enqueue(job)

    def _process(self, job: Job, outputs: Named) -> Next:
        try:
            following = job.take_slice_outputs(outputs)
        except Exception as error:
            self.finish(job, error)
            return Next.END
        if following is Next.END:
            self.finish(job, None)
        return following

    def _fail_all(self, sentence: str, batch: Sequence[Slice] = ()) -> None:
        with self._condition:
            jobs = {job: None for queue in self._queues.values() for job in queue}
            jobs |= {piece.job: None for piece in batch}
            self._queues.clear()
            self._prepared = None
        for job in jobs:
            self.finish(job, ComputeError(sentence))
        self._notifier.deliver()

    def _count(self, rows: int, seconds: float) -> None:
        self.passes, self.rows = self.passes + 1, self.rows + rows
        speed = rows / max(seconds, 1e-6)
        weight = SPEED_WEIGHT if self._rows_per_second else 1.0
        self._rows_per_second += weight * (speed - self._rows_per_second)


def _prepare(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.prepare()
