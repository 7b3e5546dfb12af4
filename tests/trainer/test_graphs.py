"""What each graph computes, and that its declared border is its real one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_kernels import KERNELS, make_kernels
from trainer.graphs import BATCH, PROBES, GraphSpec, kernel_graph, model_graphs

pytestmark = pytest.mark.usefixtures("double")

Maker = Callable[..., AutoEncoder]

ARCHITECTURES = [
    Architecture(5, (7,), "sigmoid", tied=True),
    Architecture(5, (7, 3), "tanh", "sigmoid"),
    Architecture(5, (7,), "silu", blocks=1, conditioned=True),
]
GRAPHS = {"reconstruct", "encode", "decode", "moments", "jacobian", "encoder_jacobian"}


def specs_of(ae: AutoEncoder) -> dict[str, GraphSpec]:
    kernels = make_kernels(ae, 0.5)
    return model_graphs(ae) | {name: kernel_graph(k) for name, k in kernels.items()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_graph_has_the_declared_shapes(architecture: Architecture, make_ae: Maker) -> None:
    specs = specs_of(make_ae(architecture))
    assert set(specs) == GRAPHS | set(KERNELS)
    for spec in specs.values():
        for batch, probes in ((1, 1), (4, 3)):
            out = spec.module(*spec.example(batch, probes))
            out = out if isinstance(out, tuple) else (out,)
            sizes = {BATCH: batch, PROBES: probes}
            declared = [tuple(sizes.get(s, s) for s in shape) for shape in spec.outputs.values()]
            assert [tuple(o.shape) for o in out] == declared


def test_only_the_graphs_of_a_conditioned_model_take_sigma(make_ae: Maker) -> None:
    plain, told = (model_graphs(make_ae(ARCHITECTURES[i])) for i in (0, 2))
    assert all("sigma" not in spec.inputs for spec in plain.values())
    assert all(list(spec.inputs)[-1] == "sigma" for spec in told.values())
    kernels = make_kernels(make_ae(ARCHITECTURES[2]), 0.5)
    for kernel in kernels.values():  # a kernel knows its level
        assert list(kernel_graph(kernel).inputs) == ["state", "noise", "scale"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_graph_computes_its_formula(
    architecture: Architecture, make_ae: Maker, jacobian_of: Callable[..., Tensor]
) -> None:
    ae = make_ae(architecture)
    graphs = model_graphs(ae)
    x, v = torch.randn(4, 5), torch.randn(4, 2, 5)
    level = (torch.rand(4, 1) + 0.1,) if architecture.conditioned else ()
    J = jacobian_of(lambda z: ae(z, *level), x)
    F = jacobian_of(lambda z: ae.encode(z, *level), x)
    w, u = torch.randn(4, 2, 5), torch.randn(4, 2, F.shape[1])
    h = ae.encode(x, *level)
    expected = {
        "reconstruct": ((x,), (ae(x, *level),)),
        "encode": ((x,), (h,)),
        "decode": ((h,), (ae(x, *level),)),
        "moments": ((x, v), (ae(x, *level), v @ (J + J.mT) / 2)),
        "jacobian": ((x, v, w), (v @ J.mT, w @ J)),
        "encoder_jacobian": ((x, v, u), (v @ F.mT, u @ F)),
    }
    for name, (inputs, outputs) in expected.items():
        got = graphs[name].module(*inputs, *level)
        for g, e in zip(got if isinstance(got, tuple) else (got,), outputs, strict=True):
            torch.testing.assert_close(g, e)


def test_example_inputs_are_deterministic_with_positive_scales_and_levels(make_ae: Maker) -> None:
    spec = kernel_graph(make_kernels(make_ae(ARCHITECTURES[0]), 0.5)["gibbs"])
    one, same, other = spec.example(50), spec.example(50), spec.example(50, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one[0], other[0])
    assert (one[2] > 0).all()
