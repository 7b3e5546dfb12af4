"""Training criteria: what training minimises, in the notation of the paper.

    cae    E[ ℓ(x, r(x)) + α ‖∂f/∂x‖²_F ]         eq. 1; with hidden noise,
                                                  r(x) = g(f(x) + s J_f J_fᵀ ε)
    dae    E[ ℓ(x, r(N(x))) ]                     eq. 2; N is a corruption
    rcae   E[ 2ℓ(x, r(x)) + α ‖∂r/∂x‖²_F ]        eq. L_global; 2ℓ = ‖x - r‖² for the squared loss;
                                                  with input noise σ, at x + σε instead of x

    ℓ(x, r) = ½‖x - r‖²   or   -Σ x log r + (1 - x) log(1 - r)

As σ → 0, twice the dae criterion with Gaussian noise tends to that of the rcae with α = σ² (eq. 3).
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from trainer.autoencoder import AutoEncoder
from trainer.config import Corruption, Kind, Loss
from trainer.layers import UNITS, Dense, Linearisation, compose_pair


@dataclass(frozen=True)
class Criterion:
    """One of the three criteria with its constants. Calling it gives the mean over a batch."""

    kind: Kind
    loss: Loss
    alpha: float  # weight of the contraction (cae, rcae)
    sigma: tuple[float, float]  # range of noise levels (dae); both ends are equal for one level
    corruption: Corruption = "gaussian"
    amount: float = 0.0  # fraction of the entries that masking and salt-and-pepper change
    walkback: int = 1  # chain steps whose reconstructions are all compared with x
    probes: int = 1  # Hutchinson probes of a deep contraction; 0 for the exact sum
    hidden_noise: tuple[float, float] = (
        0.0,
        0.0,
    )  # range of ρ; 1 is the spread of the codes
    hidden_floor: float = 0.0  # upper limit of added white noise, in the same unit
    hidden_return: float = 0.0  # λ, weight of the loss after the sample is encoded once more
    input_noise: float = 0.0  # σ at which the rcae is evaluated

    def __call__(self, ae: AutoEncoder, x: Tensor, generator: Generator) -> Tensor:
        """The criterion on a batch, averaged over its rows.

        Args:
            ae: the model.
            x: rows in the model's units, (B, d).
            generator: of the noise.

        Returns:
            A scalar, in nats or squared units per row.
        """
        if self.kind == "dae":
            return self._denoise(ae, x, generator)
        if self.kind == "cae" and self.hidden_noise[0] > 0:
            return self._denoise_hidden(ae, x, generator)
        if self.kind == "cae":
            penalty, h = encoder_contraction(ae, x, self.probes, generator)
            return (self._row_losses(ae, x, h, None) + self.alpha * penalty).mean()
        return self._contract(ae, x, generator)

    def _contract(self, ae: AutoEncoder, x: Tensor, generator: Generator) -> Tensor:
        """2ℓ(x, r(y)) + α‖J(y)‖² at y = x + σε, ε ~ N(0, I); without input noise, at y = x.

        Eq. L_global does not determine r off the data, where a chain moves. By eq. 3 the noise is a
        second contraction with weight σ²: for r(x) = A(x - m) + m on data N(m, C),

            E‖x - r(y)‖² + α‖A‖² = tr (I - A) C (I - A)ᵀ + (σ² + α) tr A Aᵀ

        has its minimum at A = C (C + (σ² + α) I)⁻¹. So the α of moments and chains is σ² + α.
        """
        y = x
        if self.input_noise > 0:
            y = x + self.input_noise * torch.randn(x.shape, generator=generator)
        f = ae.linearise_encoder(y)
        at = compose_pair(f, ae.linearise_decoder(f.value))
        penalty = squared_frobenius(at, y, self.probes, generator)
        return (2 * self._row_losses(ae, x, f.value, None) + self.alpha * penalty).mean()

    def _denoise(self, ae: AutoEncoder, x: Tensor, generator: Generator) -> Tensor:
        """ℓ(x, r(N(x))), averaged over the walkback steps x₀ = x, xᵢ = r(N(xᵢ₋₁))."""
        total = x.new_zeros(())
        start = x
        for _ in range(self.walkback):
            sigma = noise_levels(len(x), self.sigma, generator)
            noisy = self.corrupt(start, sigma, generator)
            level = sigma if ae.architecture.conditioned else None
            h = ae.encode(noisy, level)
            losses = self._row_losses(ae, x, h, level)  # (B,)
            total = total + (losses if level is None else losses * self._weight(level)).mean()
            if self.walkback > 1:
                # No gradient through the walk: only the last reconstruction is trained.
                start = ae.decode(h, level).detach()
        return total / self.walkback

    def _denoise_hidden(self, ae: AutoEncoder, x: Tensor, generator: Generator) -> Tensor:
        """ℓ(x, g(h)) + α‖J_f(x)‖², where h = f(x) + ρ s n is the code after a step of `hidden`.

        The loss is averaged over the walkback steps x₀ = x, xᵢ = g(hᵢ). The batch determines s
        (`spread_scale`). With a floor, h also has white noise, so that codes off the data are
        mapped back. With a return weight λ, the loss of a step is
        (ℓ(x, g(h)) + λ ℓ(x, r(g(h)))) / (1 + λ), so that f also learns samples, which the chain
        encodes in its next step.
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
            total = total + self._row_losses(ae, x, h, None).mean()
            with torch.no_grad():  # the sample is an input, as a row of the data is
                sample = ae.decode(h)
            if self.hidden_return > 0:
                again = self._row_losses(ae, x, ae.encode(sample), None).mean()
                total = total + self.hidden_return * again
            if step + 1 < self.walkback:
                f = ae.linearise_encoder(sample)
                n = kernel_noise(f, generator)
        return total / (self.walkback * (1 + self.hidden_return)) + self.alpha * penalty

    def _weight(self, sigma: Tensor) -> Tensor:
        """The weight σ̄/σ of a row of a conditioned model; σ̄ is the middle of the range; (B,).

        The smallest possible loss grows with σ, so without the weight the large levels dominate.
        The weight does not move the optimum, which exists for each level separately.
        """
        low, high = self.sigma
        return math.sqrt(low * high) / sigma[:, 0]

    def corrupt(self, x: Tensor, sigma: Tensor, generator: Generator) -> Tensor:
        """N(x): x (B, d) with noise of level sigma (B, 1), or with entries replaced."""
        if self.corruption == "gaussian":
            return x + sigma * torch.randn(x.shape, generator=generator)
        hit = torch.rand(x.shape, generator=generator) < self.amount
        if self.corruption == "masking":
            return torch.where(hit, torch.zeros_like(x), x)
        low, high = x.min(), x.max()
        coin = torch.rand(x.shape, generator=generator) < 0.5
        return torch.where(hit, torch.where(coin, low, high), x)

    def _row_losses(self, ae: AutoEncoder, x: Tensor, h: Tensor, sigma: Tensor | None) -> Tensor:
        """ℓ(x, g(h)) of each row; (B,)."""
        if self.loss == "cross-entropy":
            logits = ae.decode_logits(h, sigma)
            return F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        difference = x - ae.decode(h, sigma)
        return 0.5 * (difference * difference).sum(1)


def noise_levels(rows: int, sigma: tuple[float, float], generator: Generator) -> Tensor:
    """One noise level per row, log-uniform in the range; (B, 1)."""
    low, high = sigma
    if low == high:
        return torch.full((rows, 1), low)
    return low * (high / low) ** torch.rand(rows, 1, generator=generator)


@torch.no_grad()
def kernel_noise(f: Linearisation, generator: Generator) -> Tensor:
    """n = J_f J_fᵀ ε, which the kernel `hidden` adds at scale 1; (B, m).

    It has no gradient: otherwise the encoder learns to turn the noise into harmless directions.
    """
    return f.jvp(f.vjp(torch.randn(f.value.shape, generator=generator)))


@torch.no_grad()
def spread_scale(h: Tensor, n: Tensor) -> Tensor:
    """The s at which the root mean square of s n is the spread of the codes h (B, m).

    The encoder cannot escape the noise by contracting: its codes would contract as well.
    """
    return code_spread(h) / n.square().mean().sqrt()


@torch.no_grad()
def code_spread(h: Tensor) -> Tensor:
    """Root mean square deviation of a batch of codes from their mean."""
    return (h - h.mean(0)).square().mean().sqrt()


def white_noise(h: Tensor, most: float, generator: Generator) -> Tensor:
    """Normals with one level per row, uniform from 0 to `most`; (B, m).

    J_f J_fᵀ ε has only a few directions. Without white noise the model does not learn the others,
    along which the errors of a chain can add up.
    """
    level = most * torch.rand(len(h), 1, generator=generator)
    return level * torch.randn(h.shape, generator=generator)


def encoder_contraction(
    ae: AutoEncoder, x: Tensor, probes: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """‖J_f(x)‖²_F of each row (B,), and h = f(x) (B, m).

    One layer has the closed form Σⱼ s'(aⱼ)² ‖Wⱼ‖². A deep encoder uses `squared_frobenius`.
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


def squared_frobenius(at: Linearisation, x: Tensor, probes: int, generator: Generator) -> Tensor:
    """‖J‖²_F of each row; (B,).

    It is estimated as the mean of ‖J v‖² over `probes` vectors v of random signs (Hutchinson), or
    summed exactly as Σᵢ ‖J eᵢ‖² if `probes` is 0.
    """
    B, d = x.shape
    if probes == 0:
        v = torch.eye(d, dtype=x.dtype).expand(B, d, d)
        return at.jvp(v).square().sum((1, 2))
    v = torch.randint(0, 2, (B, probes, d), generator=generator).to(x.dtype) * 2 - 1
    return at.jvp(v).square().sum((1, 2)) / probes
