"""Draws from N(0, A): four roots, one interface. Only `matrix`, for few columns, builds A.

    exact        Wᵀ (√f' ⊙ ε)      one tied layer with a linear decoder, where J = Wᵀ diag(f') W
    matrix       A₊^{1/2} ε        A = (J + Jᵀ)/2 as a matrix, for few columns
    polynomial   p(A) ε, p(λ)² ≈ λ a few products with A
    jacobian     γ J ε             one product; its covariance is γ² J Jᵀ, a sharper stand-in for A

J Jᵀ has less of every direction than A, λ² for λ, and a chain that is given too little spread
falls into the densest places. The gain γ makes up for it: γ² = tr A / tr J Jᵀ keeps the total.
Between two clusters λ is above 1, and rightly so, and there J Jᵀ has too much.
The polynomial has no constant term, so what A maps to zero gets no noise at all: an error there
would act as isotropic noise and push a chain off the data's manifold.
"""

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from localmoments.arrays import Doubles
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.errors import RecipeError
from trainer.layers import UNITS, Dense, Linearised

UPPER = 1.1  # a trained J is contractive up to a little
EXCESS = 1.5  # of the length that a polynomial's draw may have
FEW = 16  # columns up to which A is built: beyond, a step would be too many small operations
ROUNDS = 18  # of each iteration: resolves signs down to 1.5⁻¹⁸ of ‖A‖
FLOOR = 2e-4  # δ, in parts of ‖A‖


class Root(nn.Module):
    """ε (B, noise) -> a draw from about N(0, A(x)), (B, d)."""

    noise: int

    @abstractmethod
    def forward(self, at: Linearised, x: Tensor, ε: Tensor) -> Tensor:
        """`at` is r linearised at x."""


class Exact(Root):
    def __init__(self, ae: AutoEncoder) -> None:
        super().__init__()
        check_exact_root(ae.architecture)
        self._layer = (ae.encoder[0],)  # in a tuple, so that W keeps its one name, the owner's
        self.noise = ae.architecture.hidden[0]

    def forward(self, at: Linearised, x: Tensor, ε: Tensor) -> Tensor:
        (layer,) = self._layer
        assert isinstance(layer, Dense)
        unit, a = UNITS[layer.unit], layer.before_unit(x, None)
        slope = unit.slope(a, unit.value(a))
        return layer.transposed_times(slope.sqrt() * ε)


class Matrix(Root):
    """(A₊ + δ ‖A‖)^{1/2} ε, A₊ the part of A with eigenvalues above 0."""

    def __init__(self, ae: AutoEncoder) -> None:
        super().__init__()
        check_few(ae.architecture)
        self.noise = ae.architecture.dims

    def forward(self, at: Linearised, x: Tensor, ε: Tensor) -> Tensor:
        units = torch.eye(self.noise, dtype=x.dtype) + torch.zeros_like(x).unsqueeze(2)  # (B, d, d)
        J = at.jvp(units)  # row i is J eᵢ
        return (symmetric_root((J + J.transpose(1, 2)) / 2) @ ε.unsqueeze(2)).squeeze(2)


def symmetric_root(A: Tensor) -> Tensor:
    """The root of symmetric matrices (B, d, d), by products alone, as ONNX has no eigenvectors.

    Newton-Schulz twice, on A / ‖A‖: X ← X (3 - X²)/2 tends to sign(A), and A₊ = A (1 + sign A)/2;
    then Y ← Y T, Z ← T Z with T = (3 - Z Y)/2 tends to the root of A₊ + δ and its inverse. The
    floor δ keeps that inverse, and so the rounding errors, small.
    """
    if A.shape[1] == 2:
        return _planar_root(A)
    unit = torch.eye(A.shape[1], dtype=A.dtype)
    size = A.square().sum((1, 2), keepdim=True).sqrt().clamp_min(1e-12)
    X = A = A / size
    for _ in range(ROUNDS):
        X = X @ (1.5 * unit - 0.5 * (X @ X))
    Y, Z = (A + A @ X) / 2 + FLOOR * unit, unit
    for _ in range(ROUNDS):
        T = 1.5 * unit - 0.5 * (Z @ Y)
        Y, Z = Y @ T, T @ Z
    return Y * size.sqrt()


def _planar_root(A: Tensor) -> Tensor:
    """The same for d = 2, in closed form: A = m + r S with S² = 1, and eigenvalues m ± r."""
    unit = torch.eye(2, dtype=A.dtype)
    size = A.square().sum((1, 2), keepdim=True).sqrt()
    m = (A * unit).sum((1, 2), keepdim=True) / 2
    r = ((A - m * unit).square().sum((1, 2), keepdim=True) / 2).sqrt()
    upper, lower = ((m + s * r).clamp_min(0) + FLOOR * size for s in (1, -1))
    S = (A - m * unit) / r.clamp_min(1e-12)
    return (upper.sqrt() + lower.sqrt()) / 2 * unit + (upper.sqrt() - lower.sqrt()) / 2 * S


class Polynomial(Root):
    """p(A) ε with p(λ) = λ q(λ), q in Chebyshev form and evaluated by its recurrence.

    ‖A^{1/2} ε‖² = εᵀ A ε, so the draw's length is known without a root. One that is much longer
    comes from eigenvalues outside [0, UPPER], where p grows without bound, and is cut.
    """

    def __init__(self, ae: AutoEncoder, degree: int) -> None:
        super().__init__()
        self.noise = ae.architecture.dims
        self.coefficients = tuple(float(c) for c in root_polynomial(degree))

    def forward(self, at: Linearised, x: Tensor, ε: Tensor) -> Tensor:
        def shifted(v: Tensor) -> Tensor:
            """(2/UPPER) A v - v: the spectrum moved from [0, UPPER] to [-1, 1]."""
            return (at.jvp(v) + at.vjp(v)) / UPPER - v

        u = (at.jvp(ε) + at.vjp(ε)) / 2  # T₀ A ε
        before, now = u, shifted(u)
        total = self.coefficients[0] * before + self.coefficients[1] * now
        for c in self.coefficients[2:]:
            before, now = now, 2 * shifted(now) - before
            total = total + c * now
        length = total.square().sum(1, keepdim=True).clamp_min(1e-24)
        known = (ε * u).sum(1, keepdim=True).clamp_min(0)
        return total * (EXCESS * (known / length).sqrt()).clamp_max(1)


class Jacobian(Root):
    def __init__(self, ae: AutoEncoder, gain: float = 1.0) -> None:
        super().__init__()
        self.noise = ae.architecture.dims
        self.gain = gain

    def forward(self, at: Linearised, x: Tensor, ε: Tensor) -> Tensor:
        return self.gain * at.jvp(ε)


def root_polynomial(degree: int) -> Doubles:
    """Chebyshev coefficients on [0, UPPER] of q, where λ q(λ) ≈ √λ.

    Least squares weighted by √λ, because an error δ of p is one of 2√λ δ in the variance.
    """
    t = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)
    λ = (t + 1) * UPPER / 2
    basis = np.polynomial.chebyshev.chebvander(t, degree - 1) * λ[:, None]
    weight = np.sqrt(λ)[:, None]
    return np.asarray(np.linalg.lstsq(basis * weight, λ, rcond=None)[0], np.float64)


def check_few(a: Architecture) -> None:
    if a.dims > FEW:
        raise RecipeError(f"sampling.root = matrix is for {FEW} columns or fewer.")


def has_exact_root(a: Architecture) -> bool:
    one_tied = a.tied and len(a.hidden) == 1 and not a.conditioned
    return one_tied and a.decoder == "linear" and UNITS[a.unit].rising


def check_exact_root(a: Architecture) -> None:
    if not has_exact_root(a):
        raise RecipeError(
            "sampling.root = exact needs one tied layer with a linear decoder, not conditioned, "
            "and a unit that never falls (sigmoid, tanh, softplus, linear)."
        )


def make_root(name: str, ae: AutoEncoder, degree: int = 6, gain: float = 1.0) -> Root:
    """The root that a recipe asks for; `auto` is exact or a matrix's where it can be."""
    if name == "auto":
        if has_exact_root(ae.architecture):
            return Exact(ae)
        return Matrix(ae) if ae.architecture.dims <= FEW else Jacobian(ae, gain)
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
        f"sampling.root {name!r} is none of auto, exact, matrix, polynomial, jacobian."
    )
