"""r(z) and the eigenpairs of A = (J + Jᵀ)/2 at many points, one graph call for all of them.

The whole A comes from the products with all d unit vectors. Where d is large, leading eigenpairs
come from a Krylov space a point, that begins with random vectors and with r(z) - z: so the space
holds a few steps of conjugate gradients towards (I - A)⁻¹ (r - z), which the inverted mean needs.
"""

from collections.abc import Sequence

import numpy as np

from service.core.moments import BLOCKS, EXTRA, Krylov, Spectrum, full_spectrum, random_block
from service.core.types import Doubles, Floats
from service.engine.model import Model
from service.engine.worker import Worker

Spectra = tuple[Floats, list[Spectrum]]  # r(z) (n, d), and for each point its eigenpairs


async def whole_spectra(worker: Worker, model: Model, z: Floats, sigma: float | None) -> Spectra:
    """Every eigenpair; z (n, d)."""
    n, d = z.shape
    v = np.ascontiguousarray(np.broadcast_to(np.eye(d, dtype=np.float32), (n, d, d)))
    out = await worker.run(model, "moments", x=z, v=v, **model.noise_level(n, sigma))
    return out["mean"], await worker.call(lambda: [full_spectrum(A) for A in out["products"]])


async def leading_spectra(
    worker: Worker, model: Model, z: Floats, sigma: float | None, rank: int
) -> Spectra:
    """At least the `rank` leading eigenpairs; z (n, d)."""
    level = model.noise_level(len(z), sigma)
    r = (await worker.run(model, "reconstruct", x=z, **level))["mean"]
    spaces = [Krylov.begin(start) for start in _starts(z, r, rank)]
    for _ in range(BLOCKS):
        blocks = await worker.call(_next_blocks, spaces)
        if not any(map(len, blocks)):
            break
        out = await worker.run(model, "moments", x=z, v=_padded(blocks), **level)
        spaces = _grown(spaces, blocks, out["products"])
    return r, await worker.call(_spectra, spaces)


def vectors_at_once(d: int, rank: int, whole: bool) -> int:
    """Vectors v a point in one graph call, which is what takes memory."""
    return d if whole else min(d, rank + EXTRA + 1)


def _starts(z: Floats, r: Floats, rank: int) -> list[Doubles]:
    """(w, d) for each point."""
    random = random_block(z.shape[1], rank + EXTRA)
    return [np.vstack([toward, random]) for toward in r.astype(np.float64) - z]


def _next_blocks(spaces: Sequence[Krylov]) -> list[Doubles]:
    return [space.next_block() for space in spaces]


def _padded(blocks: Sequence[Doubles]) -> Floats:
    """Blocks of different heights as one array; (n, w, d)."""
    v = np.zeros((len(blocks), max(map(len, blocks)), blocks[0].shape[1]), np.float32)
    for i, block in enumerate(blocks):
        v[i, : len(block)] = block
    return v


def _grown(
    spaces: Sequence[Krylov], blocks: Sequence[Doubles], products: Floats
) -> list[Krylov]:  # fmt: skip
    images = products.astype(np.float64)  # (n, w, d)
    each = zip(spaces, blocks, images, strict=True)
    return [space.grown(block, image[: len(block)]) for space, block, image in each]


def _spectra(spaces: Sequence[Krylov]) -> list[Spectrum]:
    return [space.spectrum() for space in spaces]
