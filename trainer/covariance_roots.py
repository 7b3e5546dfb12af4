"""Covariance roots: draws from N(0, A) with A = (J + Jᵀ)/2, from standard normals ε.

    exact        Wᵀ (√f' ⊙ ε)      for one tied layer with a linear decoder: J = Wᵀ diag(f') W
    matrix       A₊^{1/2} ε        builds A as a matrix, for few columns
    polynomial   p(A) ε, p(λ)² ≈ λ takes a few products with A
    jacobian     γ J ε             takes one product; its covariance is γ² J Jᵀ instead of A

Only `matrix` builds a d×d matrix.

For an eigenvalue λ < 1 of A, J Jᵀ has about λ², which is less. A chain with too little spread
collapses into the densest regions. The gain γ compensates: γ² = tr A / tr J Jᵀ keeps the total
variance. Between two clusters λ is above 1, which is correct, and there J Jᵀ has too much.

The polynomial has no constant term, so directions that A maps to zero get no noise. An error there
would act as isotropic noise and push a chain off the data's manifold.
"""

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from localmoments.arrays import Doubles
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.errors import RecipeError
from trainer.layers import UNITS, Dense, Linearisation

UPPER = 1.1  # upper end of the polynomial's interval: a trained J hardly exceeds 1
EXCESS = 1.5  # how much longer than expected a polynomial's draw may be
MATRIX_COLUMNS = 16  # columns up to which A is built; more would be too many small operations
ROUNDS = 18  # of each iteration: resolves the sign of eigenvalues down to 1.5⁻¹⁸ ‖A‖
FLOOR = 2e-4  # δ, as a fraction of ‖A‖


class Root(nn.Module):
    """Maps standard normals ε (B, noise) to draws from about N(0, A(x)), (B, d)."""

    noise: int  # standard normals per row

    @abstractmethod
    def forward(self, at: Linearisation, x: Tensor, ε: Tensor) -> Tensor:
        """Draw one vector per row.

        Args:
            at: r linearised at x.
            x: the points, (B, d).
            ε: standard normals, (B, noise).
        """


class Exact(Root):
    """Wᵀ (√f' ⊙ ε), whose covariance is Wᵀ diag(f') W = A."""

    def __init__(self, ae: AutoEncoder) -> None:
        super().__init__()
        check_exact_root(ae.architecture)
        self._layer = (
            ae.encoder[0],
        )  # in a tuple, so that W is registered only once, in the encoder
        self.noise = ae.architecture.hidden[0]

    def forward(self, at: Linearisation, x: Tensor, ε: Tensor) -> Tensor:
        (layer,) = self._layer
        assert isinstance(layer, Dense)
        unit, a = UNITS[layer.unit], layer.before_unit(x, None)
        slope = unit.slope(a, unit.value(a))  # f', (B, m); at least 0 for a rising unit
        return layer.transposed_times(slope.sqrt() * ε)


class Matrix(Root):
    """(A₊ + δ ‖A‖)^{1/2} ε, where A₊ is the part of A with positive eigenvalues."""

    def __init__(self, ae: AutoEncoder) -> None:
        super().__init__()
        check_matrix_root(ae.architecture)
        self.noise = ae.architecture.dims

    def forward(self, at: Linearisation, x: Tensor, ε: Tensor) -> Tensor:
        # Adding zeros gives the identity the dynamic batch axis: `expand` would fix it on export.
        units = torch.eye(self.noise, dtype=x.dtype) + torch.zeros_like(x).unsqueeze(2)  # (B, d, d)
        J = at.jvp(units)  # (B, d, d), row i is J eᵢ: the transpose of J, but A is symmetric
        return (symmetric_root((J + J.transpose(1, 2)) / 2) @ ε.unsqueeze(2)).squeeze(2)


def symmetric_root(A: Tensor) -> Tensor:
    """(A₊ + δ ‖A‖)^{1/2} of symmetric matrices A (B, d, d), by matrix products alone.

    ONNX has no eigendecomposition. Two Newton-Schulz iterations on A / ‖A‖ replace it:

        X ← X (3 - X²)/2                             tends to sign(A), and A₊ = A (1 + sign A)/2
        Y ← Y T,  Z ← T Z  with  T = (3 - Z Y)/2     tend to (A₊ + δ)^{1/2} and its inverse
    """
    if A.shape[1] == 2:
        return _planar_root(A)
    unit = torch.eye(A.shape[1], dtype=A.dtype)
    # The Frobenius norm bounds all eigenvalues, so those of A / ‖A‖ are in [-1, 1], where both
    # iterations converge.
    size = A.square().sum((1, 2), keepdim=True).sqrt().clamp_min(1e-12)
    X = A = A / size
    for _ in range(ROUNDS):
        X = X @ (1.5 * unit - 0.5 * (X @ X))
    # Without the floor δ the inverse Z grows without bound, and with it the rounding errors.
    Y, Z = (A + A @ X) / 2 + FLOOR * unit, unit
    for _ in range(ROUNDS):
        T = 1.5 * unit - 0.5 * (Z @ Y)
        Y, Z = Y @ T, T @ Z
    return Y * size.sqrt()


def _planar_root(A: Tensor) -> Tensor:
    """`symmetric_root` for d = 2 in closed form: A = m + r S with S² = 1 has eigenvalues m ± r."""
    unit = torch.eye(2, dtype=A.dtype)
    size = A.square().sum((1, 2), keepdim=True).sqrt()
    m = (A * unit).sum((1, 2), keepdim=True) / 2
    r = ((A - m * unit).square().sum((1, 2), keepdim=True) / 2).sqrt()
    upper, lower = ((m + s * r).clamp_min(0) + FLOOR * size for s in (1, -1))
    S = (A - m * unit) / r.clamp_min(1e-12)
    # φ(A) = (φ(m+r) + φ(m-r))/2 + (φ(m+r) - φ(m-r))/2 S for any function φ, here the root.
    return (upper.sqrt() + lower.sqrt()) / 2 * unit + (upper.sqrt() - lower.sqrt()) / 2 * S


class Polynomial(Root):
    """p(A) ε with p(λ) = λ q(λ), where q is a Chebyshev series, evaluated by its recurrence.

    ‖A^{1/2} ε‖² = εᵀ A ε gives the expected length of the draw without a root. A draw that is much
    longer comes from eigenvalues outside [0, UPPER], where p grows without bound; it is shortened.
    """

    def __init__(self, ae: AutoEncoder, degree: int) -> None:
        super().__init__()
        self.noise = ae.architecture.dims
        self.coefficients = tuple(float(c) for c in root_polynomial(degree))

    def forward(self, at: Linearisation, x: Tensor, ε: Tensor) -> Tensor:
        def shifted(v: Tensor) -> Tensor:
            """(2/UPPER) A v - v: the spectrum moved from [0, UPPER] to [-1, 1]."""
            return (at.jvp(v) + at.vjp(v)) / UPPER - v

        u = (at.jvp(ε) + at.vjp(ε)) / 2  # A ε: the factor λ of p, and T₀(A) A ε
        before, now = u, shifted(u)
        total = self.coefficients[0] * before + self.coefficients[1] * now
        for c in self.coefficients[2:]:
            before, now = now, 2 * shifted(now) - before  # Tₙ₊₁(t) = 2t Tₙ(t) - Tₙ₋₁(t)
            total = total + c * now
        length = total.square().sum(1, keepdim=True).clamp_min(1e-24)
        expected = (ε * u).sum(1, keepdim=True).clamp_min(0)
        return total * (EXCESS * (expected / length).sqrt()).clamp_max(1)


class Jacobian(Root):
    """γ J ε with the gain γ."""

    def __init__(self, ae: AutoEncoder, gain: float = 1.0) -> None:
        super().__init__()
        self.noise = ae.architecture.dims
        self.gain = gain

    def forward(self, at: Linearisation, x: Tensor, ε: Tensor) -> Tensor:
        return self.gain * at.jvp(ε)


def root_polynomial(degree: int) -> Doubles:
    """Chebyshev coefficients on [0, UPPER] of q, where λ q(λ) ≈ √λ; (degree,).

    A least-squares fit at Chebyshev nodes. The weight is √λ, because an error e of p changes the
    variance p² by about 2√λ e.
    """
    t = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)  # nodes in (-1, 1)
    λ = (t + 1) * UPPER / 2
    basis = np.polynomial.chebyshev.chebvander(t, degree - 1) * λ[:, None]
    weight = np.sqrt(λ)[:, None]
    # The right-hand side is √λ times the weight, which is λ.
    return np.asarray(np.linalg.lstsq(basis * weight, λ, rcond=None)[0], np.float64)


def check_matrix_root(a: Architecture) -> None:
    """Raise a RecipeError if there are too many columns for the root `matrix`."""
    if a.dims > MATRIX_COLUMNS:
        raise RecipeError(f"sampling.root = matrix requires at most {MATRIX_COLUMNS} columns.")


def has_exact_root(a: Architecture) -> bool:
    """Whether A is Wᵀ diag(f') W with f' ≥ 0."""
    one_tied = a.tied and len(a.hidden) == 1 and not a.conditioned
    return one_tied and a.decoder == "linear" and UNITS[a.unit].rising


def check_exact_root(a: Architecture) -> None:
    """Raise a RecipeError if the architecture has no root `exact`."""
    if not has_exact_root(a):
        raise RecipeError(
            "sampling.root = exact requires one tied layer with a linear decoder, not conditioned, "
            "and an increasing unit (sigmoid, tanh, softplus or linear)."
        )


def choose_root(name: str, a: Architecture) -> str:
    """Replace `auto` by `exact`, `matrix` or `jacobian`, the first that fits the architecture."""
    if name != "auto":
        return name
    if has_exact_root(a):
        return "exact"
    return "matrix" if a.dims <= MATRIX_COLUMNS else "jacobian"


def make_root(name: str, ae: AutoEncoder, degree: int = 6, gain: float = 1.0) -> Root:
    """Make the root of a recipe.

    Args:
        name: auto, exact, matrix, polynomial or jacobian.
        ae: the auto-encoder.
        degree: of the polynomial.
        gain: γ of the root `jacobian`.

    Raises:
        RecipeError: if there is no such root, or it does not fit the architecture.
    """
    name = choose_root(name, ae.architecture)
    if name == "exact":
        return Exact(ae)
    if name == "matrix":
        return Matrix(ae)
    if name == "polynomial":
        if degree < 2:
            raise RecipeError("sampling.root_degree must be 2 or more.")
        return Polynomial(ae, degree)
    if name == "jacobian":
        return Jacobian(ae, gain)
    raise RecipeError(
        f"sampling.root must be auto, exact, matrix, polynomial or jacobian; got {name!r}."
    )
