"""Distances between samples and real rows. Each sees errors that others miss.

Features u (n, f) are first divided by the root mean square of the real rows' entries, so u·u/f is
about 1 for a real row and no term of the kernel below is negligible.

| figure             | formula                                                | two real sets      |
|--------------------|--------------------------------------------------------|--------------------|
| kernel distance    | E k(x, x') + E k(y, y') - 2 E k(x, y),                 | 0 on average       |
|                    | k(u, v) = (u·v/f + 1)³ (Bińkowski et al., 2018)        |                    |
| Fréchet distance   | ‖m - m'‖² + tr(C + C' - 2 (C C')^½)                    | falls as 1/n       |
| density            | 1/(k m) Σ_j Σ_i 1[y_j ∈ B_i] (Naeem et al., 2020)      | 1                  |
| coverage           | 1/n Σ_i 1[some y_j ∈ B_i]                              | about 1 - 2⁻ᵏ      |
| sliced Wasserstein | mean over directions of W₁ between the projections     | falls as 1/√n      |

B_i is the ball around real row x_i that reaches to its k-th nearest real neighbour. All but the
kernel distance and the density depend on the sizes of the sets, so sets of equal size are compared.

Every distance comes in two forms. The plain function takes two sets. The function whose name ends
in `_parts` also takes the group of each row and returns the figure with each group left out
(`jackknife.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from localmoments.arrays import Doubles, Floats
from trainer.evaluate.jackknife import GroupedRows, Parts, Units, one_group, one_hot
from trainer.evaluate.neighbours import nearest, squared_distances

NEIGHBOURS = 5  # k of density and coverage
PROJECTIONS = 200  # directions of the sliced Wasserstein distance
BLOCK = 2**21  # kernel values at a time


def root_mean_square(real: Floats) -> float:
    """The root mean square of all entries; 1 if all are 0."""
    return float(np.sqrt(np.square(real, dtype=np.float64).mean())) or 1.0


# --- kernel distance


def kernel_distance(real: Floats, samples: Floats, chains: Units | None = None) -> float:
    """Features of real rows (n, f) and of samples (m, f), in any units; chains (m,): the chain of
    each sample."""
    unit = root_mean_square(real)
    x, y = one_group(_in_units(real, unit)), one_group(_in_units(samples, unit), chains)
    return kernel_parts(kernel_sums(x, x), kernel_sums(y, y), kernel_sums(x, y)).value


def _in_units(x: Floats, unit: float) -> Floats:
    return np.asarray(x / unit, np.float32)


@dataclass(frozen=True)
class KernelSums:
    """Sums of k over pairs of rows of different chains, by group of the first and the second."""

    sums: Doubles  # (G, H)
    pairs: Doubles  # (G, H)


def kernel_sums(a: GroupedRows, b: GroupedRows) -> KernelSums:
    """Sum k over all pairs of a row of a and a row of b.

    Pass the same set twice for the sums within it. Pairs of one chain are then left out: they are
    alike however good the sampler is, and would add to the distance.
    """
    sums = np.zeros((a.count, b.count))
    first, second = one_hot(a.groups, a.count), one_hot(b.groups, b.count)
    for part, K in kernel_blocks(a.x, b.x):
        sums += first[part].T @ (K @ second)
    pairs = np.outer(a.sizes, b.sizes)
    if a is b:
        within, count = _sums_within_chains(a)
        sums[np.diag_indices(a.count)] -= within
        pairs[np.diag_indices(a.count)] -= count
    return KernelSums(sums, pairs)


def kernel_blocks(u: Floats, v: Floats) -> Iterator[tuple[slice, Doubles]]:
    """(u·v/f + 1)³ of some rows of u (n, f) with all of v (m, f) at a time; (k, m) each.

    Products are taken in float32, powers are returned in float64.
    """
    step = max(1, BLOCK // len(v))
    v = v / np.float32(u.shape[1])
    for start in range(0, len(u), step):
        part = slice(start, min(start + step, len(u)))
        K = u[part] @ v.T  # (k, m)
        K += 1
        yield part, np.asarray(K * K * K, np.float64)


def _sums_within_chains(a: GroupedRows) -> tuple[Doubles, Doubles]:
    """Sums of k over pairs within a chain, including a row with itself, and their number; (G,)."""
    order = np.argsort(a.units, kind="stable")
    first = np.unique(a.units[order], return_index=True)[1]
    if len(first) == len(a):  # every row is a chain of its own
        itself = (np.square(a.x, dtype=np.float64).mean(1) + 1) ** 3  # k(u, u)
        return np.asarray(np.bincount(a.groups, itself, a.count), np.float64), a.sizes
    sums, pairs = np.zeros(a.count), np.zeros(a.count)
    for rows in np.split(order, first[1:]):
        group = a.groups[rows[0]]
        sums[group] += sum(float(K.sum()) for _, K in kernel_blocks(a.x[rows], a.x[rows]))
        pairs[group] += len(rows) ** 2
    return sums, pairs


def kernel_parts(real: KernelSums, samples: KernelSums, cross: KernelSums) -> Parts:
    """The kernel distance from the sums within both sets and between real rows and samples."""
    within_real, within_samples = _mean(real), _mean(samples)
    between = _mean(cross)
    # Leaving out a group of samples changes two of the three means; so does one of real rows.
    without_samples = _means_without(samples) - 2 * _row_means_without(cross.sums.T, cross.pairs.T)
    without_real = _means_without(real) - 2 * _row_means_without(cross.sums, cross.pairs)
    return Parts(within_real + within_samples - 2 * between, within_real + without_samples,
                 within_samples + without_real)  # fmt: skip


def _mean(s: KernelSums) -> float:
    return float(s.sums.sum() / max(1.0, s.pairs.sum()))


def _means_without(s: KernelSums) -> Doubles:
    """Means over the pairs that have no row in group g; (G,)."""

    def sum_without(x: Doubles) -> Doubles:
        out: Doubles = x.sum() - x.sum(0) - x.sum(1) + np.diag(x)  # the corner was taken off twice
        return out

    out: Doubles = sum_without(s.sums) / np.maximum(1, sum_without(s.pairs))
    return out


def _row_means_without(sums: Doubles, pairs: Doubles) -> Doubles:
    """Means without row g of the sums; (G,)."""
    out: Doubles = (sums.sum() - sums.sum(1)) / np.maximum(1, pairs.sum() - pairs.sum(1))
    return out


# --- Fréchet distance


def frechet_distance(real: Floats, samples: Floats) -> float:
    """Features of real rows (n, f) and of samples (m, f), in any units."""
    unit = root_mean_square(real)
    x, y = (
        _gaussian(_moment_sums(one_group(_in_units(part, unit))).sum(0)) for part in (real, samples)
    )
    return _frechet(x, y)


def frechet_parts(real: GroupedRows, samples: GroupedRows) -> Parts:
    """Of features in units of the real rows' root mean square."""
    P, Q = _moment_sums(real), _moment_sums(samples)  # (G, f + 1, f + 1)
    p, q = _gaussian(P.sum(0)), _gaussian(Q.sum(0))
    return Parts(
        _frechet(p, q),
        np.array([_frechet(p, _gaussian(Q.sum(0) - without)) for without in Q]),
        np.array([_frechet(_gaussian(P.sum(0) - without), q) for without in P]),
    )


def _moment_sums(a: GroupedRows) -> Doubles:
    """Σ (1, u)(1, u)ᵀ over each group: counts, sums and products at once; (G, f + 1, f + 1)."""
    u = np.concatenate([np.ones((len(a), 1)), a.x], axis=1)  # (n, f + 1)
    return np.stack([u[a.groups == g].T @ u[a.groups == g] for g in range(a.count)])


def _gaussian(S: Doubles) -> tuple[Doubles, Doubles]:
    """Mean (f,) and covariance (f, f) from Σ (1, u)(1, u)ᵀ."""
    n = max(2.0, S[0, 0])
    m = S[0, 1:] / n
    return m, (S[1:, 1:] - n * np.outer(m, m)) / (n - 1)


def _frechet(a: tuple[Doubles, Doubles], b: tuple[Doubles, Doubles]) -> float:
    (m, C), (k, D) = a, b
    w, V = np.linalg.eigh(C)
    root = V * np.sqrt(np.maximum(w, 0)) @ V.T  # C^½
    # tr (C D)^½: C D has the eigenvalues of C^½ D C^½, which is symmetric
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ D @ root), 0)).sum()
    return float(np.square(m - k).sum() + np.trace(C) + np.trace(D) - 2 * cross)


# --- density and coverage


def density_and_coverage(real: Floats, samples: Floats, k: int = NEIGHBOURS) -> tuple[float, float]:
    """Features of real rows (n, f) and of samples (m, f); for coverage n = m."""
    density, coverage = coverage_parts(one_group(real), one_group(samples), ball_radii(real, k), k)
    return density.value, coverage.value


def ball_radii(real: Floats, k: int = NEIGHBOURS) -> Floats:
    """Distance to the k-th nearest other row; (n,)."""
    k = min(k, len(real) - 1)
    return nearest(real, real, k + 1)[1][:, k]  # the first neighbour is the row itself


def coverage_parts(
    real: GroupedRows, samples: GroupedRows, radii: Floats, k: int = NEIGHBOURS
) -> tuple[Parts, Parts]:
    """Density and coverage. Leaving out real rows does not change the radii of the others."""
    k = min(k, len(real) - 1)
    hot = one_hot(samples.groups, samples.count).astype(np.float32)
    inside = np.empty((len(real), samples.count))  # samples of each group in each ball
    for part, d in squared_distances(real.x, samples.x):
        inside[part] = (d <= np.square(radii[part, None])).astype(np.float32) @ hot
    total = inside.sum(1)  # (n,)
    rest = total[:, None] - inside  # (n, G)
    left = np.maximum(1, len(samples) - samples.sizes)  # (G,)
    n, m = len(real), len(samples)
    density = Parts(
        float(total.mean() / k * n / m),
        rest.mean(0) / k * n / left,
        _without_rows(total, real) / k * n / m,
    )
    coverage = Parts(float((total > 0).mean()), (rest > 0).mean(0),
                     _without_rows((total > 0).astype(np.float64), real))  # fmt: skip
    return density, coverage


def _without_rows(values: Doubles, real: GroupedRows) -> Doubles:
    """Means over the rows that are not in group g; (H,)."""
    sums = np.bincount(real.groups, values, real.count)
    out: Doubles = (sums.sum() - sums) / np.maximum(1, len(values) - real.sizes)
    return out


# --- sliced Wasserstein


def sliced_wasserstein(a: Doubles, b: Doubles, seed: int = 0) -> float:
    """Mean over random directions of the distance between sorted projections (W₁)."""
    v = directions(a.shape[1], seed)
    return _transport(np.sort((a @ v).T), np.sort((b @ v).T))


def directions(dims: int, seed: int = 0) -> Doubles:
    """Random unit vectors; (dims, PROJECTIONS)."""
    v = np.random.default_rng(seed).standard_normal((dims, PROJECTIONS))
    return np.asarray(v / np.linalg.norm(v, axis=0), np.float64)


def wasserstein_parts(real: GroupedRows, samples: GroupedRows) -> Parts:
    """Of rows projected on the same directions; x (n, PROJECTIONS)."""
    (a, ga), (b, gb) = (_sort_columns(part) for part in (samples, real))
    return Parts(
        _transport(a, b),
        np.array([_transport(_drop(a, ga, g), b) for g in range(samples.count)]),
        np.array([_transport(a, _drop(b, gb, g)) for g in range(real.count)]),
    )


def _sort_columns(a: GroupedRows) -> tuple[Floats, Units]:
    """Projections in order, and the group of each; (P, n) both."""
    order = np.argsort(a.x.T, axis=1)
    return np.take_along_axis(a.x.T, order, axis=1), a.groups[order]


def _drop(x: Floats, groups: Units, g: int) -> Floats:
    """Remove a group; each projection loses the same number of values and stays in order."""
    kept = x[groups != g].reshape(len(x), -1)
    return kept if kept.size else x


def _transport(a: Floats | Doubles, b: Floats | Doubles) -> float:
    """Mean W₁ of sorted projections (P, n) and (P, m): between values at the same quantiles."""
    n = max(a.shape[1], b.shape[1])
    quantiles = (np.arange(n) + 0.5) / n
    qa, qb = (x[:, (quantiles * x.shape[1]).astype(int)] for x in (a, b))
    return float(np.abs(qa - qb).mean(dtype=np.float64))
