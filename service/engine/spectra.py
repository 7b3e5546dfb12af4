"""r(z) and the eigenpairs of A = (J + Jᵀ)/2 at many points, one graph call for all of them.

The whole A comes from the products with all d unit vectors. Where d is large, leading eigenpairs
come from a Krylov space a point, that begins with random vectors and with r(z) - z: so the space
holds steps of conjugate gradients towards (I - A)⁻¹ (r - z), which the inverted mean needs. A point
whose space is settled leaves the calls, and what is found at it does not depend on the others.
"""

from collections.abc import Sequence

import numpy as np

from service.core.spectrum import Krylov, Spectrum, block_width, full_spectrum
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
    spaces = await worker.call(_begun, z, r, rank)
    growing = list(range(len(z)))
    while growing:
        level = model.noise_level(len(growing), sigma)
        v = _padded([spaces[i].block for i in growing])
        out = await worker.run(model, "moments", x=z[growing], v=v, **level)
        growing = await worker.call(_grow, spaces, growing, out["products"])
    return r, await worker.call(_spectra, spaces)


def vectors_at_once(d: int, rank: int, whole: bool) -> int:
    """Vectors v a point in one graph call, which is what takes memory."""
    return d if whole else block_width(d, rank)


def _begun(z: Floats, r: Floats, rank: int) -> list[Krylov]:
    return [Krylov.begin(z.shape[1], rank, toward) for toward in r.astype(np.float64) - z]


def _padded(blocks: Sequence[Doubles]) -> Floats:
    """Blocks of different heights as one array; (n, w, d)."""
    v = np.zeros((len(blocks), max(map(len, blocks)), blocks[0].shape[1]), np.float32)
    for i, block in enumerate(blocks):
        v[i, : len(block)] = block
    return v


def _grow(spaces: list[Krylov], growing: Sequence[int], products: Floats) -> list[int]:
    """Each with its products, (n, w, d); those that want more."""
    for i, images in zip(growing, products, strict=True):
        space = spaces[i]
        spaces[i] = space.grown(images[: len(space.block)].astype(np.float64))
    return [i for i in growing if not spaces[i].settled]


def _spectra(spaces: Sequence[Krylov]) -> list[Spectrum]:
    return [space.spectrum() for space in spaces]
