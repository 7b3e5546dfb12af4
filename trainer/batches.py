"""Training batches as a function of (seed, step), so that a resumed run sees the same ones.

Rows that fit into memory are normalised once and permuted in every epoch. Larger data is read from
disk in blocks: each epoch permutes the blocks, groups them into chunks that fit into memory, and
permutes the rows of each chunk. The next chunk is read while the current one is used.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localmoments.columns import Normaliser
from trainer.data.sources import Source

BLOCK_BYTES = 2**20  # size of one read
CHUNK_BYTES = 64 * 2**20  # of float32; two chunks are in memory at a time


def derive_seed(seed: int, purpose: str, count: int) -> int:
    """A 32-bit seed for a purpose and a count, such as an epoch or a step."""
    return (crc32(f"{seed}/{purpose}".encode()) + count) % 2**32


class Feed(Protocol):
    """A source of batches of training rows, in the model's units."""

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one pass over the data."""
        ...

    def batch(self, step: int) -> Tensor:  # (b, d)
        """The batch of a step. Steps are counted across epochs."""
        ...


class MemoryFeed:
    """Batches of rows that are all in memory."""

    def __init__(self, rows: Tensor, batch: int, seed: int) -> None:
        self.rows, self.size, self.seed = rows, min(batch, len(rows)), seed
        self.steps_per_epoch = -(-len(rows) // self.size)
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.long)

    def batch(self, step: int) -> Tensor:
        epoch, i = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            g = torch.Generator().manual_seed(derive_seed(self.seed, "epoch", epoch))
            self._epoch, self._order = epoch, torch.randperm(len(self.rows), generator=g)
        return self.rows[self._order[i * self.size : (i + 1) * self.size]]


class DiskFeed:
    """Batches of rows that are read from disk in shuffled chunks."""

    def __init__(
        self,
        source: Source,
        train: NDArray[np.int64],
        normaliser: Normaliser,
        batch: int,
        seed: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.source, self.normaliser, self.size, self.seed = source, normaliser, batch, seed
        self._is_training = np.zeros(source.rows, dtype=bool)
        self._is_training[train] = True
        self._block = max(1, BLOCK_BYTES // (4 * source.dims))  # rows
        starts = np.arange(0, source.rows, self._block)
        self._counts = np.add.reduceat(
            self._is_training, starts, dtype=np.int64
        )  # training rows in each block
        self._blocks_per_chunk = max(1, chunk_bytes // (4 * source.dims * self._block))
        self.steps_per_epoch = -(-len(train) // batch)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="chunk")
        self._current: tuple[tuple[int, int], Tensor] | None = None
        self._next: tuple[tuple[int, int], Future[Tensor]] | None = None
        self._plan: tuple[int, NDArray[np.int64]] = (0, self._schedule(0))

    def batch(self, step: int) -> Tensor:
        epoch, i = divmod(step, self.steps_per_epoch)
        if self._plan[0] != epoch:
            self._plan = (epoch, self._schedule(epoch))
        chunk, start = self._plan[1][i]
        rows = self._chunk(epoch, int(chunk))
        return rows[start : start + self.size]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng((self.seed, epoch)).permutation(len(self._counts))

    def _schedule(self, epoch: int) -> NDArray[np.int64]:
        """The chunk of every batch and its first row in that chunk; (batches, 2).

        A batch does not cross a chunk's end, so an epoch may have a few more batches than steps,
        some of them short. The last ones are skipped; the next epoch skips others.
        """
        sizes = np.add.reduceat(
            self._counts[self._order(epoch)],
            np.arange(0, len(self._counts), self._blocks_per_chunk),
        )
        pairs = [(c, s) for c, n in enumerate(sizes) for s in range(0, int(n), self.size)]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def _chunk(self, epoch: int, chunk: int) -> Tensor:
        """The rows of a chunk. The chunk after it is read in the background."""
        key = (epoch, chunk)
        if self._current is None or self._current[0] != key:
            if self._next is not None and self._next[0] == key:
                rows = self._next[1].result()
            else:
                rows = self._read(epoch, chunk)
            self._current = (key, rows)
            following = chunk + 1
            if following * self._blocks_per_chunk < len(self._counts):
                future = self._reader.submit(self._read, epoch, following)
                self._next = ((epoch, following), future)
        return self._current[1]

    def _read(self, epoch: int, chunk: int) -> Tensor:
        n = self._blocks_per_chunk
        blocks = np.sort(self._order(epoch)[chunk * n : (chunk + 1) * n])
        parts = []
        for start in blocks * self._block:
            stop = min(int(start) + self._block, self.source.rows)
            rows = self.source.read(int(start), stop)[self._is_training[start:stop]]
            parts.append(self.normaliser.to_model(rows))
        rows = np.concatenate(parts)
        rng = np.random.default_rng((self.seed, epoch, chunk))
        return torch.from_numpy(rows[rng.permutation(len(rows))])


def make_feed(
    source: Source,
    train: NDArray[np.int64],
    normaliser: Normaliser,
    *,
    batch: int,
    seed: int,
    memory_limit: int,
) -> Feed:
    """A feed in memory if the rows fit, as float32, into `memory_limit` bytes; else from disk."""
    if len(train) * source.dims * 4 <= memory_limit:
        rows = torch.empty(len(train), source.dims)
        step = max(1, CHUNK_BYTES // (4 * source.dims))
        for i in range(0, len(train), step):  # in pieces: the normaliser works in float64
            piece = normaliser.to_model(source.take(train[i : i + step]))
            rows[i : i + step] = torch.from_numpy(piece)
        return MemoryFeed(rows, batch, seed)
    return DiskFeed(source, train, normaliser, batch, seed)
