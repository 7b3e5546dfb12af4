"""Training criteria: what is minimised, as the paper writes it.

    cae    E[ ℓ(x, r(x)) + α ‖∂f/∂x‖²_F ]         eq. 1; r(x) = g(f(x) + s J_f J_fᵀ ε) if noisy
    dae    E[ ℓ(x, r(N(x))) ]                     eq. 2, N a corruption
    rcae   E[ 2ℓ(x, r(x)) + α ‖∂r/∂x‖²_F ]        eq. L_global; 2ℓ = ‖x - r‖² for the squared loss;
                                                  at x + σε instead of x with input noise σ

    ℓ(x, r) = ½‖x - r‖²   or   -Σ x log r + (1 - x) log(1 - r)

As σ → 0, twice the dae criterion with Gaussian noise tends to the rcae one with α = σ² (eq. 3).
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from trainer.autoencoder import AutoEncoder
from trainer.config import Corruption, Kind, Loss
from trainer.layers import UNITS, Dense, Linearised, then


@dataclass(frozen=True)
class Criterion:
    """One of the three criteria with its numbers; call it for the mean over a batch."""

    kind: Kind
    loss: Loss
    alpha: float  # weight of the contraction (cae, rcae)
    sigma: tuple[float, float]  # range of noise levels (dae); equal ends for a single one
    corruption: Corruption = "gaussian"
    amount: float = 0.0  # part of the entries that masking and salt-and-pepper hit
    walkback: int = 1  # steps of the chain whose reconstructions are all pulled to x
    probes: int = 1  # Hutchinson probes of a deep contraction; 0 for the exact sum
    hidden_noise: tuple[float, float] = (0.0, 0.0)  # range of ρ, in parts of the code's spread
    hidden_floor: float = 0.0  # φ, the most of white noise beside it, in the same parts
    hidden_return: float = 0.0  # λ, weight of the loss after the sample is encoded once more
    input_noise: float = 0.0  # σ, where the contracted reconstruction is measured (rcae)

    def __call__(self, ae: AutoEncoder, x: Tensor, generator: Generator) -> Tensor:
        """The criterion on a batch x (B, d), in nats or squared units a row."""
        if self.kind == "dae":
            return self._denoising(ae, x, generator)
        if self.kind == "cae" and self.hidden_noise[0] > 0:
            return self._hidden_denoising(ae, x, generator)
        if self.kind == "cae":
            penalty, h = encoder_contraction(ae, x, self.probes, generator)
            return (self._rows(ae, x, h, None) + self.alpha * penalty).mean()
        return self._contracted(ae, x, generator)

    def _contracted(self, ae: AutoEncoder, x: Tensor, generator: Generator) -> Tensor:
        """2ℓ(x, r(y)) + α‖J(y)‖² at y = x + σε, ε ~ N(0, I); without input noise, at y = x.

        Eq. L_global says nothing about points beside the data, where a chain walks. By eq. 3 the
        noise is a second contraction, of weight σ²: for r(x) = A(x - m) + m on data N(m, C),

            E‖x - r(y)‖² + α‖A‖² = tr (I - A) C (I - A)ᵀ + (σ² + α) tr A Aᵀ

        is least at A = C (C + (σ² + α) I)⁻¹. So moments and chains are those of the level σ² + α.
        """
        y = x
        if self.input_noise > 0:
            y = x + self.input_noise * torch.randn(x.shape, generator=generator)
        f = ae.linearise_encoder(y)
        at = then(f, ae.linearise_decoder(f.value))
        penalty = squared_frobenius(at, y, self.probes, generator)
        return (2 * self._rows(ae, x, f.value, None) + self.alpha * penalty).mean()

    def _denoising(self, ae: AutoEncoder, x: Tensor, generator: Generator) -> Tensor:
        """ℓ(x, r(N(x))), averaged over the walkback steps x₀ = x, xᵢ = r(N(xᵢ₋₁))."""
        total = x.new_zeros(())
        start = x
        for _ in range(self.walkback):
            sigma = noise_levels(len(x), self.sigma, generator)
            noisy = self.corrupted(start, sigma, generator)
            level = sigma if ae.architecture.conditioned else None
            h = ae.encode(noisy, level)
            rows = self._rows(ae, x, h, level)
            total = total + (rows if level is None else rows * self._weight(level)).mean()
            if self.walkback > 1:
                start = ae.decode(h, level).detach()
        return total / self.walkback

    def _hidden_denoising(self, ae: AutoEncoder, x: Tensor, generator: Generator) -> Tensor:
        """ℓ(x, g(h)) + α‖J_f(x)‖², h = f(x) + ρ s n the code after a step of the kernel `hidden`,
        averaged over the walkback steps x₀ = x, xᵢ = g(hᵢ); s is set at the batch (`spread_scale`).

        With a floor h has white noise besides, so that what leaves the data's codes is led back;
        with a return λ the loss at a step is (ℓ(x, g(h)) + λ ℓ(x, r(g(h)))) / (1 + λ), so that f
        learns the samples too, which the chain encodes at its next step.
        """
        f = ae.linearise_encoder(x)
        penalty = squared_frobenius(f, x, self.probes, generator).mean()
        rho = noise_levels(len(x), self.hidden_noise, generator)
        n = kernel_noise(f, generator)
        s, spread = spread_scale(f.value, n), code_spread(f.value)
        total = x.new_zeros(())
        for step in range(self.walkback):
            h = f.value + rho * s * n
            if self.hidden_floor > 0:
                h = h + spread * white_noise(h, self.hidden_floor, generator)
            total = total + self._rows(ae, x, h, None).mean()
            with torch.no_grad():
                sample = ae.decode(h)
            if self.hidden_return > 0:
                again = self._rows(ae, x, ae.encode(sample), None).mean()
                total = total + self.hidden_return * again
            if step + 1 < self.walkback:
                f = ae.linearise_encoder(sample)
                n = kernel_noise(f, generator)
        return total / (self.walkback * (1 + self.hidden_return)) + self.alpha * penalty

    def _weight(self, sigma: Tensor) -> Tensor:
        """σ̄/σ for a model that is told its level, σ̄ the range's geometric middle; (B,)

        The best loss at a level grows with σ, so without this the large levels are most of what
        is learnt. It does not move the optimum, which is one for each level.
        """
        low, high = self.sigma
        return math.sqrt(low * high) / sigma[:, 0]

    def corrupted(self, x: Tensor, sigma: Tensor, generator: Generator) -> Tensor:
        """N(x)"""
        if self.corruption == "gaussian":
            return x + sigma * torch.randn(x.shape, generator=generator)
        hit = torch.rand(x.shape, generator=generator) < self.amount
        if self.corruption == "masking":
            return torch.where(hit, torch.zeros_like(x), x)
        low, high = x.min(), x.max()
        coin = torch.rand(x.shape, generator=generator) < 0.5
        return torch.where(hit, torch.where(coin, low, high), x)

    def _rows(self, ae: AutoEncoder, x: Tensor, h: Tensor, sigma: Tensor | None) -> Tensor:
        """ℓ(x, g(h)) for each row; (B,)"""
        if self.loss == "cross-entropy":
            logits = ae.decode_logits(h, sigma)
            return F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        difference = x - ae.decode(h, sigma)
        return 0.5 * (difference * difference).sum(1)


def noise_levels(rows: int, sigma: tuple[float, float], generator: Generator) -> Tensor:
    """A noise level a row, log-uniform in the range; (B, 1)."""
    low, high = sigma
    if low == high:
        return torch.full((rows, 1), low)
    return low * (high / low) ** torch.rand(rows, 1, generator=generator)


@torch.no_grad()
def kernel_noise(f: Linearised, generator: Generator) -> Tensor:
    """n = J_f J_fᵀ ε, what the kernel `hidden` adds at scale 1; (B, m)

    Without a gradient: an encoder that can shape its own noise turns it to where it does no harm.
    """
    return f.jvp(f.vjp(torch.randn(f.value.shape, generator=generator)))


@torch.no_grad()
def spread_scale(h: Tensor, n: Tensor) -> Tensor:
    """The s at which s n is as large, in root mean square, as h is spread over the batch.

    So the encoder cannot escape the noise by contracting: it would contract the spread as well.
    """
    return code_spread(h) / n.square().mean().sqrt()


@torch.no_grad()
def code_spread(h: Tensor) -> Tensor:
    """Root mean square of a batch of codes around their mean."""
    return (h - h.mean(0)).square().mean().sqrt()


def white_noise(h: Tensor, most: float, generator: Generator) -> Tensor:
    """Normals at a level a row, uniform from 0 to `most`; (B, m)

    J_f J_fᵀ ε stays within a few directions of the code, so without this little is learnt of the
    others, where a chain's errors may add up.
    """
    level = most * torch.rand(len(h), 1, generator=generator)
    return level * torch.randn(h.shape, generator=generator)


def encoder_contraction(
    ae: AutoEncoder, x: Tensor, probes: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """‖J_f(x)‖²_F for each row, and h = f(x).

    One layer has a closed form, Σⱼ s'(aⱼ)² ‖Wⱼ‖²; a deep encoder is probed, or summed exactly.
    """
    if len(ae.encoder) == 1:
        layer = ae.encoder[0]
        assert isinstance(layer, Dense)
        unit, a = UNITS[layer.unit], layer.before_unit(x, None)  # (B, m)
        h = unit.value(a)
        slope = unit.slope(a, h)
        return (slope * slope) @ (layer.weight * layer.weight).sum(1), h
    f = ae.linearise_encoder(x)
    return squared_frobenius(f, x, probes, generator), f.value


def squared_frobenius(at: Linearised, x: Tensor, probes: int, generator: Generator) -> Tensor:
    """‖J‖²_F for each row: E‖J v‖² over random signs v (Hutchinson), or Σᵢ ‖J eᵢ‖² for 0 probes."""
    B, d = x.shape
    if probes == 0:
        v = torch.eye(d, dtype=x.dtype).expand(B, d, d)
        return at.jvp(v).square().sum((1, 2))
    v = torch.randint(0, 2, (B, probes, d), generator=generator).to(x.dtype) * 2 - 1
    return at.jvp(v).square().sum((1, 2)) / probes
