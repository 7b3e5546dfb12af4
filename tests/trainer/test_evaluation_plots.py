"""Pictures of an evaluation: what they show is there, pixel by pixel or line by line."""

import numpy as np
import pytest
from PIL import Image

from trainer.plots import (
    View,
    draw_bandwidths,
    draw_classes,
    draw_distances,
    draw_mixing,
    draw_neighbours,
)
from trainer.plots.curves import COLOURS
from trainer.plots.mosaic import shaded
from trainer.plots.sheet import ACCENT, SECOND


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def opened(path):
    """The pixels of a small PNG on white."""
    assert path.stat().st_size < 300_000
    with Image.open(path) as image:
        assert image.format == "PNG"
        pixels = np.asarray(image.convert("RGB"))
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 255).all()
    return pixels


def amount(page, colour):
    """How many pixels have exactly this colour."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((page == wanted).all(axis=2).sum())


def test_bars_are_as_high_as_the_shares(tmp_path):
    shares = {"samples": np.array([0.1, 0.3, 0.6]), "real": np.array([0.2, 0.2, 0.2])}
    draw_classes(shares, ["0", "1", "2"], tmp_path / "c.png", "Classes")
    page = opened(tmp_path / "c.png")
    ratio = amount(page, ACCENT) / amount(page, SECOND)
    assert ratio == pytest.approx(1 / 0.6, rel=0.15)


def test_every_set_has_its_bandwidth_curve(tmp_path):
    curves = {f"set {k}": {h / 100: 100 - k - (h - 20) ** 2 for h in range(5, 41)} for k in (0, 60)}
    draw_bandwidths(curves, tmp_path / "b.png")
    page = opened(tmp_path / "b.png")
    assert amount(page, COLOURS[0]) > 100 and amount(page, COLOURS[1]) > 100


@pytest.mark.parametrize("values", [(1.0, 0.1, 0.01), (1.0, 0.1, -0.01)])
def test_mixing_is_drawn_also_where_a_distance_falls_below_zero(tmp_path, values):
    correlation = 0.8 ** np.arange(50)[:, None] * np.ones((1, 4))
    settling = dict(zip((1, 10, 100), values, strict=True))
    draw_mixing(correlation, ["a", "b", "c", "d"], settling, tmp_path / "m.png")
    assert amount(opened(tmp_path / "m.png"), COLOURS[3]) > 50


def test_distances_of_both_sets_are_drawn_also_where_all_are_the_same(tmp_path, rng):
    draw_distances({"real": rng.random(500), "samples": rng.random(300)}, tmp_path / "d.png")
    assert amount(opened(tmp_path / "d.png"), COLOURS[0]) > 100
    draw_distances({"real": np.zeros(5), "samples": np.zeros(5)}, tmp_path / "d.png")
    opened(tmp_path / "d.png")


@pytest.mark.parametrize("count", [1, 7, 40])
def test_each_sample_stands_left_of_its_nearest_training_image(tmp_path, rng, count):
    view = View((8, 8), None, 0.0, 1.0, rng.random((5, 64)))
    samples, nearest = rng.random((count, 64)), rng.random((count, 64))
    draw_neighbours(view, samples, nearest, tmp_path / "n.png")
    page = opened(tmp_path / "n.png")
    left, right = (place(page, shaded(x[:1], (8, 8), 0, 1)[0]) for x in (samples, nearest))
    assert left[0] == right[0] and left[1] < right[1]


def place(page, part):
    """Where an image lies in a page."""
    h, w = part.shape[:2]
    windows = np.lib.stride_tricks.sliding_window_view(page[:, :, 0], (h, w))
    rows = np.argwhere((windows[:, :, 0] == part[0, :, 0]).all(2))
    (found,) = [(i, j) for i, j in rows if (page[i : i + h, j : j + w] == part).all()]
    return found
