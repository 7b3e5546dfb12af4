"""Continuous batching: rows of all callers share graph calls, joining and leaving at every pass.

One thread computes while the event loop serves; onnxruntime releases the GIL. A pass takes the
work that has waited longest, and with it whatever else waits for the same graph, up to `max_rows`.
A chain comes back after each step by itself, without a way through the event loop. Job larger than
a pass is split, and its parts take turns with others. What fails, fails alone.
"""

import itertools
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, perf_counter

import numpy as np

from localmoments.arrays import Named
from localmoments.errors import OverloadError, WorkerError
from service.engine.job import Job, LoopNotifier, Next, Slice

log = logging.getLogger(__name__)

UNWELL_SECONDS = 2.0
SMOOTH = 0.05  # weight of the newest pass in the measured speed


class Batcher:
    """The thread, its lanes of waiting work, and how much of it may wait."""

    def __init__(self, max_rows: int, max_load: int) -> None:
        self.max_rows, self.max_load = max_rows, max_load
        self.load = 0  # rows of all work that is not ended
        self.passes = self.rows = self.restarts = 0
        self._speed = 0.0  # rows a second
        self._lanes: dict[object, deque[Job]] = {}
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._prepared: Future[None] | None = None
        self._mail = LoopNotifier()
        self._closed = False
        self._unwell_until = 0.0
        self._thread = threading.Thread(target=self._serve, name="batcher", daemon=True)
        self._thread.start()

    def admit(self, rows: int) -> None:
        """Before anything is begun: is there room for so many rows more?"""
        if self.load and self.load + rows > self.max_load:
            raise OverloadError(
                f"{self.load} rows are in work, which leaves no room for {rows} more.",
                retry_after=self.load / self._speed if self._speed else 1.0,
            )

    def check(self) -> None:
        """Raise for a while after a failure, so that balancers notice."""
        if monotonic() < self._unwell_until or not self._thread.is_alive():
            raise WorkerError("The computation failed and begins anew.", retry_after=UNWELL_SECONDS)

    def submit(self, work: Job) -> None:
        self.put(work)
        self.wake()

    def put(self, work: Job) -> None:
        """Job that waits until the thread looks by itself, or is woken."""
        work.mail = self._mail
        with self._changed:
            if self._closed:
                raise WorkerError("The service is about to end.")
            self.load += work.rows
            self._queue(work)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def resume(self, work: Job) -> None:
        """Job that had paused goes on."""
        with self._changed:
            if not self._closed:
                self._queue(work)
                self._changed.notify()
                return
        self._end(work, WorkerError("The service is about to end."))
        self._mail.deliver()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._ahead.shutdown()
        self._fail_all("The service is about to end.")

    def _queue(self, work: Job) -> None:
        work.since = next(self._order)
        lane = self._lanes.setdefault(work.key, deque())
        lane.append(work)

    def _serve(self) -> None:
        """Until it is closed; a fault of its own fails all that waits, and is not the end."""
        while True:
            parts: list[Slice] = []
            try:
                parts = self._next_parts()
                if not parts:
                    return
                self._pass(parts)
                self._mail.deliver()
            except Exception:
                log.exception("the batcher failed and begins anew")
                self.restarts += 1
                self._unwell_until = monotonic() + UNWELL_SECONDS
                self._fail_all("The computation failed and begins anew.", parts)

    def _fail_all(self, sentence: str, parts: Sequence[Slice] = ()) -> None:
        with self._changed:
            works = {w: None for lane in self._lanes.values() for w in lane}
            works |= {part.work: None for part in parts}
            self._lanes.clear()
            self._prepared = None
        for work in works:
            self._end(work, WorkerError(sentence))
        self._mail.deliver()

    def _next_parts(self) -> list[Slice]:
        """Rows for one pass, those that waited longest first; none when it is closed."""
        with self._changed:
            while not self._closed:
                if not self._lanes:
                    self._mail.deliver()  # of work that was dropped
                    self._changed.wait()
                    continue
                oldest = min(self._lanes, key=lambda key: self._lanes[key][0].since)
                if parts := self._taken(oldest):
                    return parts
        return []

    def _taken(self, key: object) -> list[Slice]:
        lane, room = self._lanes[key], self.max_rows
        parts: list[Slice] = []
        while lane and room:
            work = lane[0]
            if work.over:
                self._end(lane.popleft(), None)
                continue
            parts.append(part := work.part(room))
            room -= part.rows
            if not part.is_last:
                work.since = next(self._order)  # its next part lets others go first
                break
            lane.popleft()
        if not lane:
            del self._lanes[key]
        return parts

    def _pass(self, parts: Sequence[Slice]) -> None:
        if self._prepared is not None:
            self._prepared.result()
        inputs = _joined(parts)
        last = [part.work for part in parts if part.is_last and part.work.prepares]
        self._prepared = self._ahead.submit(_prepare, last) if last else None
        began = perf_counter()
        try:
            outputs = parts[0].work.compute(inputs, parts[0].start)
        except Exception as error:
            self._one_by_one(parts, error)
            return
        self._count(sum(part.rows for part in parts), perf_counter() - began)
        self._hand_out(parts, outputs)

    def _one_by_one(self, parts: Sequence[Slice], error: Exception) -> None:
        """A batch that fails is run part by part, so that only the bad one has an error."""
        if len(parts) > 1:
            for part in parts:
                self._pass([part])
        else:
            self._end(parts[0].work, error)

    def _hand_out(self, parts: Sequence[Slice], outputs: Named) -> None:
        start, again = 0, []
        for part in parts:
            stop = start + part.rows
            mine = outputs if len(parts) == 1 else {k: v[start:stop] for k, v in outputs.items()}
            if self._take(part.work, mine) is Next.PASS:
                again.append(part.work)
            start = stop
        if again:
            with self._changed:
                for work in again:
                    self._queue(work)

    def _take(self, work: Job, outputs: Named) -> Next:
        try:
            after = work.gathered(outputs)
        except Exception as error:
            self._end(work, error)
            return Next.END
        if after is Next.END:
            self._end(work, None)
        return after

    def _end(self, work: Job, error: Exception | None) -> None:
        with self._changed:
            self.load -= work.rows
        work.end(error)

    def _count(self, rows: int, seconds: float) -> None:
        self.passes, self.rows = self.passes + 1, self.rows + rows
        speed = rows / max(seconds, 1e-6)
        self._speed += (SMOOTH if self._speed else 1.0) * (speed - self._speed)


def _joined(parts: Sequence[Slice]) -> Named:
    each = [part.inputs() for part in parts]
    if len(each) == 1:
        return each[0]
    return {name: np.concatenate([inputs[name] for inputs in each]) for name in each[0]}


def _prepare(works: Sequence[Job]) -> None:
    for work in works:
        work.prepare()
