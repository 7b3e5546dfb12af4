"""What an artefact says about itself is true."""

import json
import sys

import pytest
import torch
from safetensors import safe_open

from localmoments import artefact as manifests
from localmoments.noise import normals
from trainer.config import make_recipe
from trainer.errors import RecipeError
from trainer.export import (
    SETTLING_STEPS,
    choose_sigma,
    find_covariance_scale,
    library_versions,
    set_up_chains,
)
from trainer.fit import new_model
from trainer.prepare import held_out_rows, prepare


def prepared_with(tiny_recipe, **tables):
    body = tiny_recipe.as_dict()
    recipe = make_recipe(body | {k: body[k] | v for k, v in tables.items()})
    return recipe, prepare(recipe)


def test_every_file_is_listed_with_its_sha256(tiny_artefact):
    manifest = manifests.read(tiny_artefact)
    manifests.verify(tiny_artefact, manifest)
    found = {p.name for p in tiny_artefact.iterdir()} - {manifests.MANIFEST}
    assert found == set(manifest.files)
    assert {g.file for g in manifest.graphs.values()} <= found


def test_the_manifest_repeats_the_recipe_and_the_data(tiny_artefact, tiny_recipe, tiny_prepared):
    m = manifests.read(tiny_artefact)
    assert make_recipe(json.loads(json.dumps(m.recipe))) == tiny_recipe
    assert m.data["fingerprint"] == tiny_prepared.dataset.fingerprint
    assert m.data["training_rows"] == len(tiny_prepared.split.train)
    assert m.noise_levels == (0.2, 1.0) and m.alpha == pytest.approx(m.sigma**2)
    assert m.sigma == pytest.approx((0.2 * 1.0) ** 0.5)
    assert m.covariance_scale == "absolute"


def test_weights_are_stored_once_and_are_the_models(tiny_artefact, tiny_model):
    with safe_open(tiny_artefact / manifests.WEIGHTS, framework="pt") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    stored.pop(manifests.START_POINTS)
    own = tiny_model.state_dict()
    assert own.keys() == stored.keys() and all(torch.equal(own[k], stored[k]) for k in own)
    largest = max(v.numel() * 4 for v in own.values())
    for graph in tiny_artefact.glob("*.onnx"):
        data = graph.read_bytes()
        for value in own.values():
            if value.numel() * 4 >= largest // 2:
                assert value.numpy().tobytes() not in data


def test_graphs_contain_no_paths_of_the_machine_that_exported_them(tiny_artefact):
    for graph in tiny_artefact.glob("*.onnx"):
        data = graph.read_bytes()
        assert b"/work" not in data and b"site-packages" not in data and b".py" not in data


@pytest.mark.parametrize("conditioned", [False, True])
@pytest.mark.parametrize("name", ["hidden", "gibbs"])
def test_start_points_are_the_means_of_a_chain_a_few_steps_after_the_rows(
    name, conditioned, tiny_recipe
):
    """The kernel applied by hand, to the noise of each step, gives the same points."""
    recipe, prepared = prepared_with(
        tiny_recipe, sampling={"kernel": name}, model={"conditioned": conditioned}
    )
    ae = new_model(prepared, 0).eval()
    chains = set_up_chains(recipe, prepared, ae)
    kernel, x = chains.kernels[name], held_out_rows(prepared, recipe.sampling.start_points)
    level = torch.full((len(x), 1), chains.sigma) if conditioned else None
    with torch.no_grad():
        state = ae.encode(x, level) if name == "hidden" else x
        for step in range(SETTLING_STEPS):
            noise = torch.from_numpy(normals(0, step, (len(x), kernel.noise)))
            state, mean = kernel(state, noise, torch.full((len(x), 1), chains.scales[name]))
    assert torch.equal(chains.starts, mean)


def test_start_points_are_synthetic_unless_the_recipe_asks_for_rows(
    tiny_recipe, tiny_prepared, tiny_model, tiny_chains
):
    rows = held_out_rows(tiny_prepared, 10**6)
    everything = torch.cat([rows, torch.from_numpy(tiny_prepared.normaliser.to_model(
        tiny_prepared.dataset.source.take(tiny_prepared.split.train)))])  # fmt: skip
    nearest = torch.cdist(tiny_chains.starts, everything).min(1).values
    assert len(tiny_chains.starts) == 7 and (nearest > 1e-4).all()
    recipe, prepared = prepared_with(tiny_recipe, sampling={"starts": "data"})
    real = set_up_chains(recipe, prepared, tiny_model).starts
    taken = {tuple(row) for row in real.tolist()}
    assert len(taken) == 7 and taken <= {tuple(row) for row in rows.tolist()}


@pytest.mark.parametrize(("kind", "kernel"), [("cae", "hidden"), ("dae", "gibbs")])
def test_the_default_kernel_depends_on_the_criterion(kind, kernel, tiny_recipe):
    recipe, prepared = prepared_with(
        tiny_recipe, criterion={"kind": kind}, model={"conditioned": False}
    )
    model = new_model(prepared, 0)
    assert set_up_chains(recipe, prepared, model).default == kernel


def test_scales_of_the_recipe_are_kept_and_unknown_kernels_refused(tiny_recipe, tiny_model):
    recipe, prepared = prepared_with(tiny_recipe, sampling={"scales": {"gibbs": 0.25}})
    chains = set_up_chains(recipe, prepared, tiny_model)
    assert chains.scales["gibbs"] == 0.25 and chains.scales["hidden"] > 0
    with pytest.raises(RecipeError, match=r"sampling\.scales"):
        prepared_with(tiny_recipe, sampling={"scales": {"gibs": 0.25}})


def test_sigma_of_masking_is_its_root_mean_square(tiny_recipe):
    recipe, prepared = prepared_with(
        tiny_recipe,
        criterion={"corruption": "masking", "amount": 0.5},
        model={"conditioned": False},
    )
    rows = held_out_rows(prepared, 10**6)
    expected = float((0.5 * rows.square().mean()).sqrt())
    assert choose_sigma(recipe, prepared, rows) == pytest.approx(expected, rel=0.2)


SCALES = {
    "dae, one level": ({}, "absolute"),
    "dae, told its level": ({"sigma": [0.1, 1.0], "conditioned": True}, "absolute"),
    "dae, a range it is not told": ({"sigma": [0.1, 1.0]}, "relative"),
    "dae, walkback": ({"walkback": 2}, "relative"),
    "dae, masking": ({"corruption": "masking"}, "relative"),
    "rcae, squared": ({"kind": "rcae"}, "absolute"),
    "rcae, cross-entropy": ({"kind": "rcae", "loss": "cross-entropy"}, "relative"),
    "cae": ({"kind": "cae"}, "relative"),
}


@pytest.mark.parametrize("case", SCALES)
def test_the_covariance_scale_is_absolute_only_if_theory_fixes_it(case: str) -> None:
    options, expected = SCALES[case]
    conditioned = options.get("conditioned", False)
    criterion = {k: v for k, v in options.items() if k != "conditioned"}
    recipe = make_recipe(
        {
            "name": "scale",
            "data": {"source": "gaussian"},
            "model": {"conditioned": conditioned},
            "criterion": criterion,
        }
    )
    assert find_covariance_scale(recipe) == expected


def test_libraries_that_are_not_installed_are_left_out():
    versions = library_versions()
    assert versions["python"] == sys.version.split()[0]
    assert {"torch", "numpy", "onnx"} <= set(versions)
    assert ("onnxruntime" in versions) != ("onnxruntime-gpu" in versions)
