"""Batches as a pure function of (seed, step), so that a resumed run sees the same ones.

Rows that fit into memory are normalised once and permuted anew each epoch. Larger data is read
in chunks of neighbouring blocks: each epoch permutes the blocks, deals them into chunks that fit
into memory, and permutes the rows within a chunk; the next chunk is read while this one is used.
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

BLOCK_BYTES = 2**20  # read in one go
CHUNK_BYTES = 64 * 2**20  # float32 bytes held at a time; two chunks are in memory


def seeded(seed: int, purpose: str, count: int) -> int:
    """A 32-bit seed that differs for every purpose and every count."""
    return (crc32(f"{seed}/{purpose}".encode()) + count) % 2**32


class Feed(Protocol):
    """Training rows in the model's units, a batch at a time."""

    @property
    def steps_per_epoch(self) -> int: ...

    def batch(self, step: int) -> Tensor:  # (b, d)
        """The batch of a step; steps count on over the epochs."""
        ...


class MemoryFeed:
    """All rows in memory."""

    def __init__(self, rows: Tensor, batch: int, seed: int) -> None:
        self.rows, self.size, self.seed = rows, min(batch, len(rows)), seed
        self.steps_per_epoch = -(-len(rows) // self.size)
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.long)

    def batch(self, step: int) -> Tensor:
        epoch, i = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            g = torch.Generator().manual_seed(seeded(self.seed, "epoch", epoch))
            self._epoch, self._order = epoch, torch.randperm(len(self.rows), generator=g)
        return self.rows[self._order[i * self.size : (i + 1) * self.size]]


class DiskFeed:
    """Rows read from disk in shuffled chunks."""

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
        self._wanted = np.zeros(source.rows, dtype=bool)
        self._wanted[train] = True
        self._block = max(1, BLOCK_BYTES // (4 * source.dims))  # rows
        starts = np.arange(0, source.rows, self._block)
        self._counts = np.add.reduceat(self._wanted, starts, dtype=np.int64)  # training rows each
        self._blocks_a_chunk = max(1, chunk_bytes // (4 * source.dims * self._block))
        self.steps_per_epoch = -(-len(train) // batch)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="chunk")
        self._held: tuple[tuple[int, int], Tensor] | None = None
        self._coming: tuple[tuple[int, int], Future[Tensor]] | None = None
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
        """(chunk, first row in it) of every batch.

        No batch straddles two chunks, so there may be a few more, short ones than an epoch has
        steps; the last of them are left out, and are others in the next epoch.
        """
        sizes = np.add.reduceat(
            self._counts[self._order(epoch)], np.arange(0, len(self._counts), self._blocks_a_chunk)
        )
        pairs = [(c, s) for c, n in enumerate(sizes) for s in range(0, int(n), self.size)]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def _chunk(self, epoch: int, chunk: int) -> Tensor:
        """The rows of a chunk; the one after it is fetched meanwhile."""
        key = (epoch, chunk)
        if self._held is None or self._held[0] != key:
            if self._coming is not None and self._coming[0] == key:
                rows = self._coming[1].result()
            else:
                rows = self._read(epoch, chunk)
            self._held = (key, rows)
            following = chunk + 1
            if following * self._blocks_a_chunk < len(self._counts):
                future = self._reader.submit(self._read, epoch, following)
                self._coming = ((epoch, following), future)
        return self._held[1]

    def _read(self, epoch: int, chunk: int) -> Tensor:
        n = self._blocks_a_chunk
        blocks = np.sort(self._order(epoch)[chunk * n : (chunk + 1) * n])
        parts = []
        for start in blocks * self._block:
            stop = min(int(start) + self._block, self.source.rows)
            rows = self.source.read(int(start), stop)[self._wanted[start:stop]]
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
    """The feed that fits: memory where float32 rows are within the limit, else disk."""
    if len(train) * source.dims * 4 <= memory_limit:
        rows = torch.empty(len(train), source.dims)
        step = max(1, CHUNK_BYTES // (4 * source.dims))
        for i in range(0, len(train), step):  # in pieces, because the map works in float64
            piece = normaliser.to_model(source.take(train[i : i + step]))
            rows[i : i + step] = torch.from_numpy(piece)
        return MemoryFeed(rows, batch, seed)
    return DiskFeed(source, train, normaliser, batch, seed)
