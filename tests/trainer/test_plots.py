"""Plots: pixels are where they belong, planes show most of the variance, files are complete."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from trainer.checkpoint import Loss
from trainer.plots.axes import ACCENT, COLOURS, SECOND
from trainer.plots.curves import (
    draw_bandwidths,
    draw_classes,
    draw_distances,
    draw_losses,
    draw_mixing,
)
from trainer.plots.images import Layout, mosaic, shade, shade_signed
from trainer.plots.local import draw_filters, draw_reconstructions, draw_tangents
from trainer.plots.samples import _outside_note, draw_neighbours, draw_samples
from trainer.plots.view import View, frame, plane_of

IMAGES = [(8, 8), (6, 5, 3), (6, 5, 4), (6, 5, 1), (28, 1), (1, 28), (64, 64), (1, 1), (200, 330)]
TABLES = [1, 2, 8]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def random_view(rng, shape):
    """A view of random images of a shape, or of a random table with this number of columns."""
    image = shape if isinstance(shape, tuple) else None
    rows = rng.random((60, int(np.prod(shape))))
    return View(image, None, 0.0, 1.0, rows)


def read_png(path):
    """The pixels of a PNG that is alone in its folder."""
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    with Image.open(path) as image:
        assert image.format == "PNG"
        pixels = np.asarray(image.convert("RGB"))
    assert min(pixels.shape[:2]) >= 60 and max(pixels.shape[:2]) <= 5000
    assert (pixels[0] == 255).all() and (pixels[-1] == 255).all()  # nothing is cut off
    assert (pixels != 255).any()
    return pixels


def holds(page, part):
    """Whether an image is in a page, pixel by pixel."""
    h, w = part.shape[:2]
    windows = np.lib.stride_tricks.sliding_window_view(page[:, :, 0], (h, w))
    candidates = np.argwhere((windows[:, :, 0] == part[0, :, 0]).all(2))
    return any((page[i : i + h, j : j + w] == part).all() for i, j in candidates)


@pytest.mark.parametrize("group", [0, 2])
def test_image_i_j_lies_in_cell_i_j_and_the_rest_is_white(rng, group):
    layout = Layout(3, 4, height=6, width=9, gap=2, row_gap=5, group=group, group_gap=7)
    images = rng.integers(0, 255, (11, 6, 5, 3)).astype(np.uint8)
    page = mosaic(images, layout)
    assert page.shape == (*layout.size, 3)
    lefts = [0, 11, 22, 33] if not group else [0, 11, 27, 38]
    for k, image in enumerate(images):
        top, left = (k // 4) * 11, lefts[k % 4] + 2  # (9 - 5) // 2 from the cell's edge
        np.testing.assert_array_equal(page[top : top + 6, left : left + 5], image)
        page[top : top + 6, left : left + 5] = 255
    assert (page == 255).all()


def test_values_outside_the_range_are_black_and_white():
    x = np.array([[-7.0, 2.0, 3.0, 4.0, 99.0]])
    pixels = shade(x, (1, 5), 2.0, 4.0)
    width = pixels.shape[2] // 5
    assert pixels[0, 0, ::width, 0].tolist() == [0, 0, 128, 255, 255]


def test_small_images_grow_by_whole_factors(rng):
    x = rng.random((2, 12))
    pixels = shade(x, (3, 4), 0, 1)
    k = pixels.shape[2] // 4
    assert pixels.shape == (2, 3 * k, 4 * k, 3)
    assert k > 1
    grey = np.rint(255 * x).reshape(2, 3, 4)
    np.testing.assert_array_equal(pixels[..., 1], grey.repeat(k, 1).repeat(k, 2))


def test_large_images_shrink_to_means():
    x = np.indices((401, 322)).sum(0) % 2  # a chess board, which picked pixels would not show
    pixels = shade(x.reshape(1, -1).astype(float), (401, 322), 0, 1)
    assert max(pixels.shape[1:3]) <= 160
    assert np.abs(pixels[0, :-1, :-1].astype(int) - 127).max() <= 16


def test_channels_keep_their_colour_and_opacity_lies_over_white():
    red = shade(np.array([[1.0, 0, 0]]), (1, 1, 3), 0, 1)
    assert (red == (255, 0, 0)).all()
    half = shade(np.array([[1.0, 0, 0, 0.2]]), (1, 1, 4), 0, 1)
    assert (half == (255, 204, 204)).all()


def test_pixels_that_are_not_finite_are_red_and_do_not_warn():
    pixels = shade(np.array([[np.nan, np.inf, 0.5]]), (1, 3), 0, 1)
    width = pixels.shape[2] // 3
    r, g, b = pixels[0, 0, ::width].T.astype(int)
    assert (r[:2] > g[:2] + 100).all()
    assert r[2] == g[2] == b[2] == 128


def test_diverging_images_do_not_depend_on_scale_and_swap_colours_with_sign(rng):
    x = rng.standard_normal((3, 16))
    up, scaled, down = (shade_signed(y, (4, 4)).astype(int) for y in (x, 1e-7 * x, -x))
    np.testing.assert_array_equal(up, scaled)
    warm, cool = up[..., 0] > up[..., 2], down[..., 0] > down[..., 2]
    strong = np.abs(up[..., 0] - up[..., 2]) > 20
    assert strong.any()
    assert (warm != cool)[strong].all()
    zero = shade_signed(np.zeros((1, 16)), (4, 4)).astype(int)
    assert np.ptp(zero) <= 2  # grey


def test_plane_is_orthonormal_and_holds_the_leading_variance(rng):
    directions, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    x = rng.standard_normal((900, 6)) * [3, 2, 0.5, 0.4, 0.3, 0.2] @ directions.T
    units = np.array([1, 1e3, 1e-3, 1, 1, 50])
    plane = plane_of(View(None, None, 0, 1, x * units + 7))
    np.testing.assert_allclose(plane.axes @ plane.axes.T, np.eye(2), atol=1e-12)
    seen = plane.points(x * units + 7).var(0)
    expected = np.linalg.eigvalsh(np.corrcoef(x.T))[::-1][:2]
    np.testing.assert_allclose(seen, expected, rtol=1e-9)


def test_plane_of_two_columns_is_the_columns_in_their_units(rng):
    x = rng.standard_normal((5, 2)) * [1, 1000]
    plane = plane_of(View(None, ("age", "income"), 0, 1, x))
    np.testing.assert_array_equal(plane.points(x), x)
    assert plane.names == ("age", "income")


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_fewer_rows_than_columns_and_constant_columns_have_a_plane(rows):
    plane = plane_of(View(None, None, 0, 1, np.ones((rows, 8))))
    np.testing.assert_allclose(plane.axes @ plane.axes.T, np.eye(2), atol=1e-12)
    assert np.isfinite(plane.points(np.ones((3, 8)))).all()


def test_vectors_of_the_plane_are_differences_of_points(rng):
    plane = plane_of(random_view(rng, 8))
    a, b = rng.random((2, 4, 8))
    np.testing.assert_allclose(plane.vectors(b - a), plane.points(b) - plane.points(a), atol=1e-9)


def test_the_frame_holds_all_data_and_ignores_diverged_samples(rng):
    data = rng.random((50, 2))
    far = np.concatenate([rng.random((98, 2)), np.full((2, 2), 1e30)])
    low, high = frame(data, [far])
    assert (low <= data.min(0)).all() and (high >= data.max(0)).all()
    assert (high < 2).all()
    assert "2 of 100" in _outside_note(far, np.stack([low, high]), 100)


def test_an_image_that_does_not_fit_its_rows_is_refused():
    with pytest.raises(ValueError, match="5 values"):
        View((2, 2), None, 0, 1, np.zeros((3, 5)))
    with pytest.raises(ValueError, match="cannot be made"):
        View((2, 2, 2), None, 0, 1, np.zeros((3, 8)))


@pytest.mark.parametrize("shape", [*IMAGES, *TABLES], ids=str)
def test_reconstructions_are_drawn(tmp_path, rng, shape):
    view = random_view(rng, shape)
    x = rng.random((9, view.dims))
    draw_reconstructions(view, x, x + 0.1, x - 0.1, tmp_path / "r.png")
    page = read_png(tmp_path / "r.png")
    if view.image is not None:
        parts = [shade(y[8:9], view.image, 0, 1)[0] for y in (x, x + 0.1, x - 0.1)]
        assert all(holds(page, part) for part in parts)


def test_reconstructions_of_clean_images_come_in_pairs(tmp_path, rng):
    view = random_view(rng, (8, 8))
    x = rng.random((12, 64))  # wider than the title
    draw_reconstructions(view, x, x, 1 - x, tmp_path / "pairs.png")
    pairs = read_png(tmp_path / "pairs.png").shape[1]
    (tmp_path / "pairs.png").unlink()
    draw_reconstructions(view, x, x + 1e-3, 1 - x, tmp_path / "triples.png")
    assert read_png(tmp_path / "triples.png").shape[1] > pairs


@pytest.mark.parametrize("shape", [*IMAGES, *TABLES], ids=str)
def test_tangents_are_drawn(tmp_path, rng, shape):
    view = random_view(rng, shape)
    k = min(3, view.dims)
    tangents = rng.standard_normal((5, k, view.dims))
    values = np.tile(np.array([1e-9, 0.0, -1e-12])[:k], (5, 1))  # too short to see, and rounding
    draw_tangents(view, view.background[:5], tangents, values, tmp_path / "t.png")
    page = read_png(tmp_path / "t.png")
    if view.image is not None:
        assert holds(page, shade_signed(tangents[4, k - 1 : k], view.image)[0])


@pytest.mark.parametrize("shape", [*IMAGES, *TABLES], ids=str)
def test_samples_of_chains_that_diverged_are_drawn(tmp_path, rng, shape):
    view = random_view(rng, shape)
    chains = rng.random((23, 12, view.dims))
    chains[4, 3], chains[5, 3], chains[6, 3] = np.nan, np.inf, 1e200
    draw_samples(view, chains, tmp_path / "s.png", "name with $ and $")
    page = read_png(tmp_path / "s.png")
    if view.image is not None:
        assert holds(page, shade(chains[22, 9:10], view.image, 0, 1)[0])  # last step, walker 10


def test_samples_of_chains_without_one_finite_value_are_drawn(tmp_path, rng):
    for shape in TABLES:
        view = random_view(rng, shape)
        draw_samples(view, np.full((2, 3, view.dims), np.nan), tmp_path / "s.png", "lost")
        read_png(tmp_path / "s.png")


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_filters_with_the_largest_norms_come_first(tmp_path, rng, shape):
    view = random_view(rng, shape)
    weight = rng.standard_normal((130, view.dims)).astype(np.float32)
    weight /= np.linalg.norm(weight, axis=1, keepdims=True)
    weight[77] *= 3
    draw_filters(view, weight, tmp_path / "f.png")
    page = read_png(tmp_path / "f.png")
    largest = shade_signed(weight[77:78].astype(float), view.image)[0]
    h, w = largest.shape[:2]
    assert holds(page[: h + 60, : w + 20], largest)


def test_filters_of_a_table_are_refused(tmp_path, rng):
    with pytest.raises(ValueError, match="images only"):
        draw_filters(random_view(rng, 8), np.zeros((3, 8)), tmp_path / "f.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("values", [(3.0, 2.9), (1e3, 1e-4), (0.0, -1.0), (2.0, float("inf"))])
def test_losses_of_any_sign_and_size_are_drawn(tmp_path, values):
    losses = [Loss(0, 7 * (i + 1), v, v) for i, v in enumerate(values)]
    draw_losses(losses, tmp_path / "l.png", "run")
    read_png(tmp_path / "l.png")


def test_losses_have_one_panel_for_each_stage(tmp_path):
    one = [Loss(0, s, 1 / s, 2 / s) for s in range(1, 9)]
    draw_losses(one, tmp_path / "l.png", "run")
    narrow = read_png(tmp_path / "l.png").shape[1]
    draw_losses([*one, Loss(1, 1, 2.0, 1.0)], tmp_path / "l.png", "run")
    assert read_png(tmp_path / "l.png").shape[1] > 1.5 * narrow


def read_small_png(path):
    """The pixels of a PNG with a white margin on all sides."""
    assert path.stat().st_size < 300_000
    pixels = read_png(path)
    assert (pixels[:, 0] == 255).all() and (pixels[:, -1] == 255).all()
    return pixels


def amount(page, colour):
    """How many pixels have exactly this colour."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((page == wanted).all(axis=2).sum())


def test_bars_are_as_high_as_the_shares(tmp_path):
    shares = {"samples": np.array([0.1, 0.3, 0.6]), "real": np.array([0.2, 0.2, 0.2])}
    draw_classes(shares, ["0", "1", "2"], tmp_path / "c.png", "Classes")
    page = read_small_png(tmp_path / "c.png")
    ratio = amount(page, ACCENT) / amount(page, SECOND)
    assert ratio == pytest.approx(1 / 0.6, rel=0.15)


def test_every_set_has_its_bandwidth_curve(tmp_path):
    curves = {f"set {k}": {h / 100: 100 - k - (h - 20) ** 2 for h in range(5, 41)} for k in (0, 60)}
    draw_bandwidths(curves, tmp_path / "b.png")
    page = read_small_png(tmp_path / "b.png")
    assert amount(page, COLOURS[0]) > 100 and amount(page, COLOURS[1]) > 100


@pytest.mark.parametrize("values", [(1.0, 0.1, 0.01), (1.0, 0.1, -0.01)])
def test_mixing_is_drawn_even_if_a_distance_is_below_zero(tmp_path, values):
    correlation = 0.8 ** np.arange(50)[:, None] * np.ones((1, 4))
    settling = dict(zip((1, 10, 100), values, strict=True))
    draw_mixing(correlation, ["a", "b", "c", "d"], settling, tmp_path / "m.png")
    assert amount(read_small_png(tmp_path / "m.png"), COLOURS[3]) > 50


def test_distances_are_drawn_even_if_all_are_equal(tmp_path, rng):
    draw_distances({"real": rng.random(500), "samples": rng.random(300)}, tmp_path / "d.png")
    assert amount(read_small_png(tmp_path / "d.png"), COLOURS[0]) > 100
    draw_distances({"real": np.zeros(5), "samples": np.zeros(5)}, tmp_path / "d.png")
    read_small_png(tmp_path / "d.png")


@pytest.mark.parametrize("count", [1, 7, 40])
def test_each_sample_is_left_of_its_nearest_training_image(tmp_path, rng, count):
    view = View((8, 8), None, 0.0, 1.0, rng.random((5, 64)))
    samples, nearest = rng.random((count, 64)), rng.random((count, 64))
    draw_neighbours(view, samples, nearest, tmp_path / "n.png")
    page = read_small_png(tmp_path / "n.png")
    left, right = (place(page, shade(x[:1], (8, 8), 0, 1)[0]) for x in (samples, nearest))
    assert left[0] == right[0] and left[1] < right[1]


def place(page, part):
    """Where an image lies in a page."""
    h, w = part.shape[:2]
    windows = np.lib.stride_tricks.sliding_window_view(page[:, :, 0], (h, w))
    rows = np.argwhere((windows[:, :, 0] == part[0, :, 0]).all(2))
    (found,) = [(i, j) for i, j in rows if (page[i : i + h, j : j + w] == part).all()]
    return found


def test_plots_do_not_import_pyplot():
    code = "import sys, trainer.plots.artefact; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
