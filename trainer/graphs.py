"""The graphs of an artefact, each written once: what goes in, what comes out, and the maths.

Beside the kernels' steps there are

    reconstruct        x -> mean r(x)
    encode, decode     x -> hidden f(x);  hidden h -> mean g(h)
    moments            x, v -> mean r(x), products A v, A = (J + Jᵀ)/2
    jacobian           x, v, w -> J v, Jᵀ w
    encoder_jacobian   x, v, w -> J_f v, J_fᵀ w

with k vectors a row in v and w. Both estimators of the local moments are algebra on `moments`
(localmoments.estimators): ONNX has no eigen-decomposition, and they share their eigenpairs.
A conditioned model's graphs also take its noise level, sigma, one a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from localmoments.artefact import Shape
from trainer.autoencoder import AutoEncoder
from trainer.covariance_roots import make_root
from trainer.kernels import KERNELS, Gibbs, Kernel

BATCH, PROBES = "batch", "probes"  # names of the dynamic axes


@dataclass(frozen=True)
class GraphSpec:
    """A module to export, and the names and shapes at its border."""

    module: nn.Module
    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]

    def example(self, batch: int, probes: int = 2, seed: int = 0) -> tuple[Tensor, ...]:
        """Random inputs of a given batch; positive where only that makes sense."""
        g = torch.Generator().manual_seed(seed)
        sizes = {BATCH: batch, PROBES: probes}
        tensors = []
        for name, shape in self.inputs.items():
            concrete = [s if isinstance(s, int) else sizes[s] for s in shape]
            x = torch.randn(concrete, generator=g)
            tensors.append(x.abs().clamp(0.1, 1.0) if name in ("sigma", "scale") else x)
        return tuple(tensors)


class _Of(nn.Module):
    """A function of the auto-encoder, as a module of its own."""

    def __init__(self, ae: AutoEncoder) -> None:
        super().__init__()
        self.ae = ae


class Reconstruct(_Of):
    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        mean: Tensor = self.ae(x, sigma)
        return mean


class Encode(_Of):
    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        return self.ae.encode(x, sigma)


class Decode(_Of):
    def forward(self, hidden: Tensor, sigma: Tensor | None = None) -> Tensor:
        return self.ae.decode(hidden, sigma)


class Moments(_Of):
    def forward(self, x: Tensor, v: Tensor, sigma: Tensor | None = None) -> tuple[Tensor, ...]:
        at = self.ae.push(x, v, sigma)
        return at.value, (at.tangents + at.vjp(v)) / 2


class Jacobian(_Of):
    def forward(
        self, x: Tensor, v: Tensor, w: Tensor, sigma: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        at = self.ae.push(x, v, sigma)
        return at.tangents, at.vjp(w)


class EncoderJacobian(_Of):
    def forward(
        self, x: Tensor, v: Tensor, w: Tensor, sigma: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        at = self.ae.push_encoder(x, v, sigma)
        return at.tangents, at.vjp(w)


def model_graphs(ae: AutoEncoder) -> dict[str, GraphSpec]:
    """Every graph but the kernels'."""
    d, m = ae.architecture.dims, ae.architecture.hidden[-1]
    level: dict[str, Shape] = {"sigma": (BATCH, 1)} if ae.architecture.conditioned else {}
    x: dict[str, Shape] = {"x": (BATCH, d)}
    v: dict[str, Shape] = {"v": (BATCH, PROBES, d)}
    mean: dict[str, Shape] = {"mean": (BATCH, d)}
    products: dict[str, Shape] = {"products": (BATCH, PROBES, d)}
    hidden: dict[str, Shape] = {"hidden": (BATCH, m)}
    graphs = {
        "reconstruct": GraphSpec(Reconstruct(ae), x | level, mean),
        "encode": GraphSpec(Encode(ae), x | level, hidden),
        "decode": GraphSpec(Decode(ae), hidden | level, mean),
        "moments": GraphSpec(Moments(ae), x | v | level, mean | products),
    }
    for name, module, n in (("jacobian", Jacobian, d), ("encoder_jacobian", EncoderJacobian, m)):
        into: dict[str, Shape] = {"w": (BATCH, PROBES, n)}
        out: dict[str, Shape] = {"jvp": (BATCH, PROBES, n), "vjp": (BATCH, PROBES, d)}
        graphs[name] = GraphSpec(module(ae), x | v | into | level, out)
    return graphs


def make_kernels(
    ae: AutoEncoder, sigma: float, root: str = "auto", degree: int = 6, gain: float = 1.0,
    halvings: int = 0, lowest: float = 0.0,
) -> dict[str, Kernel]:  # fmt: skip
    """Every kernel over this model; `lowest` is the lowest noise level that it was trained for."""
    made = make_root(root, ae, degree, gain)
    kernels = {name: kind(ae, sigma, made) for name, kind in KERNELS.items()}
    return kernels | {"gibbs": Gibbs(ae, sigma, made, halvings, lowest)}


def kernel_graph(kernel: Kernel) -> GraphSpec:
    a = kernel.ae.architecture
    n = a.hidden[-1] if kernel.space == "hidden" else a.dims
    return GraphSpec(
        kernel,
        {"state": (BATCH, n), "noise": (BATCH, kernel.noise), "scale": (BATCH, 1)},
        {"next": (BATCH, n), "mean": (BATCH, a.dims)},
    )
