"""The manifest: what is written is what is read, and what is wrong is refused in a sentence."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localmoments import artefact as manifests
from localmoments.arrays import FARTHEST
from localmoments.artefact import MANIFEST, WEIGHTS, Graph, Kernel, Manifest, dumps, parse, read
from localmoments.columns import Normaliser, is_within_reach
from localmoments.errors import ArtefactError, InputError
from localmoments.model import Model

Body = dict[str, Any]


def made(files: dict[str, str] | None = None) -> Manifest:
    border: dict[str, tuple[str | int, ...]] = {"x": ("batch", 6)}
    return Manifest(
        name="faces-2.b_c",
        version="12",
        kind="dae",
        loss="squared",
        alpha=0.25,
        sigma=0.5,
        moments_sigma=0.3,
        noise_levels=(0.1, 1.0),
        covariance_scale="absolute",
        input_dims=6,
        hidden_dims=4,
        features=tuple("abcdeé"),
        image=(2, 3),
        normaliser=Normaliser(np.arange(6.0) / 3, np.full(6, 0.1)),
        graphs={"gibbs": Graph("gibbs.onnx", border, {"next": ("batch", 6), "mean": ("batch", 6)})},
        kernels={"gibbs": Kernel("gibbs", "input", 12, 1.0)},
        default_kernel="gibbs",
        default_emit="noisy",
        opset=20,
        files=files or {"gibbs.onnx": "0" * 64, WEIGHTS: "1" * 64, "card.md": "2" * 64},
        typical=tuple(np.linspace(-1.0, 2.0, 101).tolist()),
        evaluation={"denoising": 0.1},
        data={"name": "faces", "rows": 10},
        recipe={"model": {"hidden": [4]}},
        libraries={"numpy": "2"},
        created="2026-01-01T00:00:00+00:00",
    )


def body() -> Body:
    decoded: Body = json.loads(dumps(made()))
    return decoded


def same(one: Manifest, other: Manifest) -> bool:
    """Equal in every field; arrays do not compare by ==."""
    plain = Normaliser(np.zeros(1), np.ones(1))
    return (
        replace(one, normaliser=plain) == replace(other, normaliser=plain)
        and np.array_equal(one.normaliser.shift, other.normaliser.shift)
        and np.array_equal(one.normaliser.scale, other.normaliser.scale)
    )


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"features": None, "image": None, "noise_levels": None, "moments_sigma": 0.5},
        {"typical": ()},
        {"kind": "cae", "evaluation": {}},
    ],
)
def test_parse_undoes_dumps(change: Body) -> None:
    manifest = replace(made(), **change)
    assert same(parse(json.loads(dumps(manifest))), manifest)


def test_format_1_uses_the_level_of_its_chains_for_clean_rows() -> None:
    old = {k: v for k, v in body().items() if k not in ("moments_sigma", "typical")}
    manifest = parse({**old, "format": 1})
    assert manifest.moments_sigma == manifest.sigma == 0.5 and manifest.typical == ()


def test_an_affine_map_that_is_the_same_for_all_features_is_one_number() -> None:
    written = body()["normaliser"]
    assert written["scale"] == 0.1
    assert len(written["shift"]) == 6


def test_the_text_is_plain_json_without_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps(replace(made(), evaluation={"loss": float("nan")}))


def test_a_manifest_answers_what_the_service_asks() -> None:
    manifest = made()
    assert manifest.reference == "faces-2.b_c@12"
    assert manifest.is_conditioned and not replace(manifest, noise_levels=None).is_conditioned
    assert manifest.state_dims("gibbs") == 6
    hidden = replace(manifest, kernels={"h": Kernel("gibbs", "hidden", 4, 1.0)})
    assert hidden.state_dims("h") == 4


def put(*path_and_value: Any) -> Callable[[Body], None]:
    """A change of one value deep in the manifest."""
    *path, last, value = path_and_value

    def change(manifest: Body) -> None:
        for key in path:
            manifest = manifest[key]
        manifest[last] = value

    return change


BROKEN = {
    "another format": (put("format", 3), "format 3"),
    "no format": (lambda b: b.pop("format"), "format None"),
    "a name with capitals": (put("name", "Faces"), "`name` must be a model name"),
    "a name that climbs": (put("name", "../faces"), "`name` must be a model name"),
    "a name too long": (put("name", "a" * 65), "`name` must be a model name"),
    "a version that is no number": (put("version", "1.2"), "version"),
    "a negative version": (put("version", "-1"), "version"),
    "an unknown kind": (put("kind", "vae"), "kind"),
    "an unknown loss": (put("loss", "hinge"), "loss"),
    "alpha of zero": (put("alpha", 0), "alpha"),
    "alpha not a number": (put("alpha", float("nan")), "alpha"),
    "alpha infinite": (put("alpha", float("inf")), "alpha"),
    "sigma below zero": (put("sigma", -0.5), "sigma"),
    "an unknown covariance scale": (put("covariance_scale", "some"), "covariance_scale"),
    "no hidden dimensions": (put("hidden_dims", 0), "`hidden_dims` must be greater than 0; got 0"),
    "a normaliser too short": (put("normaliser", "shift", [0.0]), "normaliser"),
    "a normaliser too deep": (put("normaliser", "scale", [[1.0]]), "normaliser"),
    "a scale of zero": (put("normaliser", "scale", 0.0), "normaliser"),
    "a scale not a number": (put("normaliser", "scale", float("nan")), "normaliser"),
    "a scale infinite": (put("normaliser", "scale", float("inf")), "normaliser"),
    "a shift not a number": (put("normaliser", "shift", float("nan")), "normaliser"),
    "too few features": (put("features", ["a"]), "`features` must have 6 names"),
    "an image of other dims": (put("image", [2, 2]), "image"),
    "a default kernel not listed": (put("default_kernel", "walk"), "'walk'"),
    "an unknown emission": (put("default_emit", "loud"), "'loud'"),
    "no weights listed": (lambda b: b["files"].pop(WEIGHTS), WEIGHTS),
    "a file above the folder": (
        put("files", "../x", "0"),
        "must be a file name in the model's folder",
    ),
    "a file at the root": (
        put("files", "/etc/passwd", "0"),
        "must be a file name in the model's folder",
    ),
    "a file in a folder below": (
        put("files", "a/b", "0"),
        "must be a file name in the model's folder",
    ),
    "a file of another drive": (
        put("files", "C:\\x", "0"),
        "must be a file name in the model's folder",
    ),
    "a hidden file": (put("files", ".x", "0"), "`files` must be a file name"),
    "the parent": (put("files", "..", "0"), "`files` must be a file name"),
    "a file with no name": (put("files", "", "0"), "`files` must be a file name"),
    "a name that ends a line": (
        put("files", "a\n", "0"),
        "must be a file name in the model's folder",
    ),
    "a graph's file not listed": (
        put("graphs", "gibbs", "file", "x.onnx"),
        "`files` must list the file of every graph",
    ),
    "a kernel's graph not listed": (
        put("kernels", "gibbs", "graph", "x"),
        "`graphs` must list the graph of every kernel",
    ),
    "a kernel in no space": (
        put("kernels", "gibbs", "space", "outer"),
        "`kernels.gibbs.space` must be one of",
    ),
    "a kernel without noise": (put("kernels", "gibbs", "noise", 0), "`kernels.gibbs.noise`"),
    "a kernel without scale": (put("kernels", "gibbs", "scale", 0.0), "`kernels.gibbs.scale`"),
    "half a normal of noise": (put("kernels", "gibbs", "noise", 2.5), "`kernels.gibbs.noise`"),
    "a kernel's scale infinite": (
        put("kernels", "gibbs", "scale", float("inf")),
        "`kernels.gibbs.scale`",
    ),
    "noise levels that fall": (put("noise_levels", [1.0, 0.1]), "noise_levels"),
    "a level for clean rows outside the range": (put("moments_sigma", 1.5), "moments_sigma"),
    "too few percentiles": (put("typical", [1.0]), "typical"),
    "percentiles that fall": (put("typical", list(range(101, 0, -1))), "typical"),
    "more columns than memory": (put("input_dims", 10**30), "`input_dims`"),
    "an alpha of 400 digits": (put("alpha", 10**400), "`alpha`"),
    "a shape of lists": (put("graphs", "gibbs", "inputs", "x", [[1]]), "`graphs.gibbs.inputs.x"),
    "an image of no pixels": (put("image", [0, 3]), "`image"),
    "a percentile that is no number": (put("typical", [float("nan")] * 101), "`typical"),
    "a noise level of zero": (put("noise_levels", [0.0, 1.0]), "noise_levels"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_manifest_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    change, words = BROKEN[case]
    broken = body()
    change(broken)
    with pytest.raises(ArtefactError) as refusal:
        parse(broken)
    assert words in str(refusal.value) and str(refusal.value).endswith(".")
    (tmp_path / MANIFEST).write_text(json.dumps(broken))
    with pytest.raises(ArtefactError) as refusal:
        read(tmp_path)
    assert str(tmp_path / MANIFEST) in str(refusal.value)


@pytest.mark.parametrize("key", list(body()))
def test_a_manifest_without_one_of_its_keys_is_refused(key: str, tmp_path: Path) -> None:
    broken = body()
    del broken[key]
    (tmp_path / MANIFEST).write_text(json.dumps(broken))
    with pytest.raises(ArtefactError, match=key):
        read(tmp_path)


@pytest.mark.parametrize("value", [None, "text", [], 7, {"odd": 1}, float("inf")])
@pytest.mark.parametrize(
    "key",
    ["normaliser", "graphs", "kernels", "files", "input_dims", "hidden_dims", "opset", "alpha"],
)
def test_a_value_of_another_kind_is_refused(key: str, value: Any, tmp_path: Path) -> None:
    if key in ("input_dims", "hidden_dims", "opset", "alpha") and value == 7:
        value = "seven"
    if key in ("graphs", "files") and value == {"odd": 1}:
        value = {"odd": None}
    (tmp_path / MANIFEST).write_text(json.dumps(body() | {key: value}))
    with pytest.raises(ArtefactError, match=r"\.$"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', "null", "\ufeff{}", "{}"])
def test_a_file_that_is_no_manifest_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(text, encoding="utf-8")
    with pytest.raises(ArtefactError, match=MANIFEST):
        read(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArtefactError, match="cannot be read"):
        read(tmp_path)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=f"has no {MANIFEST}"):
        read(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (WEIGHTS, "gibbs.onnx"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
    return tmp_path


def listed(folder: Path) -> Manifest:
    return made({p.name: manifests.sha256(p) for p in folder.iterdir()})


def test_untouched_files_are_trusted(folder: Path) -> None:
    manifests.verify(folder, listed(folder))


@pytest.mark.parametrize("at", [0, 5_000, -1])
def test_one_changed_bit_is_noticed(folder: Path, at: int) -> None:
    manifest = listed(folder)
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[at] ^= 1
    (folder / WEIGHTS).write_bytes(content)
    with pytest.raises(ArtefactError, match=rf"{WEIGHTS} was altered"):
        manifests.verify(folder, manifest)


def test_a_missing_file_is_noticed(folder: Path) -> None:
    manifest = listed(folder)
    (folder / "gibbs.onnx").unlink()
    with pytest.raises(ArtefactError, match=r"gibbs\.onnx cannot be read"):
        manifests.verify(folder, manifest)


def test_a_folder_in_a_files_place_is_noticed(folder: Path) -> None:
    manifest = listed(folder)
    (folder / "gibbs.onnx").unlink()
    (folder / "gibbs.onnx").mkdir()
    with pytest.raises(ArtefactError, match="cannot be read"):
        manifests.verify(folder, manifest)


@pytest.mark.parametrize("part", [0.1, 0.999, 0.99999, 1.00001, 1.1, 1e30])
@pytest.mark.parametrize("sign", [-1, 1])
def test_no_row_that_is_refused_passes_the_quick_test(
    tiny_served: Model, part: float, sign: int
) -> None:
    units, d = tiny_served.manifest.normaliser, tiny_served.manifest.input_dims
    for column in range(d):
        z = np.zeros((3, d))
        z[1, column] = sign * part * FARTHEST
        x = units.shift + units.scale * z
        with np.errstate(over="ignore"):
            is_near = is_within_reach(units.to_model(x))
        if part > 1:
            assert not is_near
            with pytest.raises(InputError, match=rf"x\[1\]\[{column}\] is .* too far"):
                tiny_served.manifest.check_range(x)
        else:
            tiny_served.manifest.check_range(x)
            assert is_near or part > 0.999
