"""r(z) and the eigenpairs of A = (J + Jᵀ)/2 at many points, one graph call for all of them.

With `scale` (d,), the eigenpairs are those of D A D, D = diag(scale): the graph gets rows D v, and
its products are multiplied by D.

The whole A comes from the products with all d unit vectors. Where d is large, leading eigenpairs
come from a Krylov space a point, that begins with random vectors and with r(z) - z: so the space
holds steps of conjugate gradients towards (I - A)⁻¹ (r - z), which the inverted mean needs. A point
whose space is settled leaves the calls, and what is found at it does not depend on the others.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.model import Model
from localmoments.spectrum import Krylov, Spectrum, block_width, full_spectrum
from service.engine.executor import Executor

Spectra = tuple[Floats, list[Spectrum]]  # r(z) (n, d), and for each point its eigenpairs


async def whole_spectra(
    executor: Executor, model: Model, z: Floats, sigma: float | None, scale: Doubles | None = None
) -> Spectra:
    """Every eigenpair; z (n, d)."""
    n, d = z.shape
    v = np.ascontiguousarray(np.broadcast_to(np.eye(d, dtype=np.float32), (n, d, d)))
    out = await executor.run(model, "moments", x=z, v=v, **model.noise_level(n, sigma))
    A = out["products"]
    return out["mean"], await executor.call(lambda: [full_spectrum(each, scale) for each in A])


async def leading_spectra(
    executor: Executor,
    model: Model,
    z: Floats,
    sigma: float | None,
    rank: int,
    scale: Doubles | None = None,
) -> Spectra:
    """At least the `rank` leading eigenpairs; z (n, d)."""
    level = model.noise_level(len(z), sigma)
    r = (await executor.run(model, "reconstruct", x=z, **level))["mean"]
    D = None if scale is None else scale / scale.max()  # so that float32 holds D v
    spaces = await executor.call(_begun, z, r, rank, D)
    growing = list(range(len(z)))
    while growing:
        level = model.noise_level(len(growing), sigma)
        v = _padded([spaces[i].block for i in growing], D)
        out = await executor.run(model, "moments", x=z[growing], v=v, **level)
        growing = await executor.call(_grow, spaces, growing, out["products"], D)
    found = await executor.call(_spectra, spaces)
    if scale is not None:
        found = [replace(s, eigenvalues=s.eigenvalues * scale.max() ** 2) for s in found]
    return r, found


def vectors_at_once(d: int, rank: int, whole: bool) -> int:
    """Vectors v a point in one graph call, which is what takes memory."""
    return d if whole else block_width(d, rank)


def _begun(z: Floats, r: Floats, rank: int, D: Doubles | None) -> list[Krylov]:
    toward = r.astype(np.float64) - z
    return [Krylov.begin(z.shape[1], rank, each) for each in _times(toward, D)]


def _times(v: Doubles, D: Doubles | None) -> Doubles:
    return v if D is None else v * D


def _padded(blocks: Sequence[Doubles], D: Doubles | None) -> Floats:
    """Blocks of different heights as one array of rows D v; (n, w, d)."""
    v = np.zeros((len(blocks), max(map(len, blocks)), blocks[0].shape[1]), np.float32)
    for i, block in enumerate(blocks):
        v[i, : len(block)] = _times(block, D)
    return v


def _grow(
    spaces: list[Krylov], growing: Sequence[int], products: Floats, D: Doubles | None
) -> list[int]:
    """Each with its products A D v, (n, w, d); those that want more."""
    for i, images in zip(growing, products, strict=True):
        space = spaces[i]
        spaces[i] = space.grown(_times(images[: len(space.block)].astype(np.float64), D))
    return [i for i in growing if not spaces[i].settled]


def _spectra(spaces: Sequence[Krylov]) -> list[Spectrum]:
    return [space.spectrum() for space in spaces]
