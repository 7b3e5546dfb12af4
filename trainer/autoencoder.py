"""The auto-encoder h = f(x), r(x) = g(f(x)), and products with its Jacobians J_f and J."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from trainer.errors import RecipeError
from trainer.layers import (
    UNITS,
    Dense,
    Layer,
    Linearisation,
    Pushforward,
    Residual,
    TransposedDense,
    compose,
    compose_pair,
    push,
)

EMBEDDING = 16  # numbers that represent a noise level


@dataclass(frozen=True)
class Architecture:
    """The shape of an auto-encoder: everything except its weights.

    Raises:
        RecipeError: if the values do not describe a network.
    """

    dims: int
    hidden: tuple[int, ...]
    unit: str = "sigmoid"
    decoder: str = "linear"  # unit of the output: "sigmoid" or "linear"
    tied: bool = False
    blocks: int = 0  # residual blocks after each encoder layer, mirrored in the decoder
    conditioned: bool = False  # the noise level is a second input

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise RecipeError(f"model.unit must be one of {', '.join(UNITS)}; got {self.unit!r}.")
        if self.decoder not in ("sigmoid", "linear"):
            raise RecipeError(f"model.decoder must be sigmoid or linear; got {self.decoder!r}.")
        if not self.hidden or min(self.dims, *self.hidden) < 1:
            raise RecipeError("model.hidden must have at least one width, all of them at least 1.")
        if self.blocks < 0:
            raise RecipeError(f"model.blocks must be at least 0; got {self.blocks}.")
        if self.tied and self.blocks:
            raise RecipeError(
                "model.tied and model.blocks exclude each other, because a residual block cannot "
                "share its weights with its transpose. Set one of them to false or 0."
            )


class AutoEncoder(nn.Module):
    """Encoder f and decoder g with mirrored layers; tied weights are shared, transposed.

    Methods take points x (B, d) or codes h (B, m) and, for a conditioned model, its noise level
    sigma (B, 1).
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        a = self.architecture = architecture
        e = EMBEDDING if a.conditioned else 0
        widths = (a.dims, *a.hidden)
        self.encoder = nn.ModuleList(_encoder_layers(a, widths, e))
        self.decoder = nn.ModuleList(_decoder_layers(a, widths, e, self.encoder))

    def encode(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        """f(x); (B, m)."""
        return _apply(self.encoder, x, self._embed(sigma))

    def decode(self, h: Tensor, sigma: Tensor | None = None) -> Tensor:
        """g(h); (B, d)."""
        return _apply(self.decoder, h, self._embed(sigma))

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        """r(x); (B, d)."""
        return self.decode(self.encode(x, sigma), sigma)

    def linearise_encoder(self, x: Tensor, sigma: Tensor | None = None) -> Linearisation:
        """f(x) with J_f v and J_fᵀ w."""
        return compose(self.encoder, x, self._embed(sigma))  # type: ignore[arg-type]

    def linearise_decoder(self, h: Tensor, sigma: Tensor | None = None) -> Linearisation:
        """g(h) with J_g v and J_gᵀ w."""
        return compose(self.decoder, h, self._embed(sigma))  # type: ignore[arg-type]

    def linearise(self, x: Tensor, sigma: Tensor | None = None) -> Linearisation:
        """r(x) with J v and Jᵀ w."""
        f = self.linearise_encoder(x, sigma)
        return compose_pair(f, self.linearise_decoder(f.value, sigma))

    def push(self, x: Tensor, v: Tensor, sigma: Tensor | None = None) -> Pushforward:
        """r(x) with J v for v (B, k, d), and Jᵀ w."""
        return push((*self.encoder, *self.decoder), x, v, self._embed(sigma))

    def push_encoder(self, x: Tensor, v: Tensor, sigma: Tensor | None = None) -> Pushforward:
        """f(x) with J_f v for v (B, k, d), and J_fᵀ w."""
        return push(self.encoder, x, v, self._embed(sigma))  # type: ignore[arg-type]

    def decode_logits(self, h: Tensor, sigma: Tensor | None = None) -> Tensor:
        """g(h) before its sigmoid; cross-entropy computed from it does not lose precision."""
        c = self._embed(sigma)
        last = self.decoder[-1]
        assert isinstance(last, Dense)
        return last.before_unit(_apply(list(self.decoder)[:-1], h, c), c)

    def _embed(self, sigma: Tensor | None) -> Tensor | None:
        """φ(σ) = (cos, sin)(ω log σ) at geometric frequencies; (B, EMBEDDING)."""
        if not self.architecture.conditioned:
            return None
        if sigma is None:
            raise ValueError("a conditioned model needs its noise level sigma")
        n = EMBEDDING // 2
        ω = torch.exp(torch.linspace(math.log(0.25), math.log(4.0), n, device=sigma.device))
        phase = torch.log(sigma) * ω  # (B, n)
        return torch.cat([torch.cos(phase), torch.sin(phase)], dim=1)


def _encoder_layers(a: Architecture, widths: tuple[int, ...], e: int) -> list[Layer]:
    layers: list[Layer] = []
    for n, m in pairwise(widths):
        layers.append(Dense(n, m, a.unit, e))
        layers += [Residual(m, a.unit, e) for _ in range(a.blocks)]
    return layers


def _decoder_layers(
    a: Architecture, widths: tuple[int, ...], e: int, encoder: nn.ModuleList
) -> list[Layer]:
    layers: list[Layer] = []
    sources = [layer for layer in encoder if isinstance(layer, Dense)]
    for i in reversed(range(len(a.hidden))):
        n, m = widths[i + 1], widths[i]
        unit = a.decoder if i == 0 else a.unit
        layers += [Residual(n, a.unit, e) for _ in range(a.blocks)]
        layers.append(TransposedDense(sources[i], unit, e) if a.tied else Dense(n, m, unit, e))
    return layers


def _apply(layers: nn.ModuleList | list[nn.Module], x: Tensor, c: Tensor | None) -> Tensor:
    for layer in layers:
        x = layer(x, c)
    return x
