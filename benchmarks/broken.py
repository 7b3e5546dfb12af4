"""Count the samples of an image model that are broken: blank, white, or black with specks.

    python benchmarks/broken.py models/mnist-dae/1 --data mnist-train.npz

A sample is broken if it is

    white     its mean brightness exceeds that of every real image
    blank     its mean brightness is below half of that of the darkest real image
    specks    its largest stroke has less than half the pixels of the smallest in a real image

where a stroke is a connected region (8 neighbours) of pixels above 0.3 of the image's maximum. The
bounds come from all images of the training file, so no real image counts as broken. Samples are the
means of many chains of the default kernel, started from noise.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from tqdm import tqdm

from localmoments.arrays import Floats
from localmoments.chain import draw_starts, encode_state, make_transition, positions
from localmoments.model import Model

STROKE = 0.3  # of the image's maximum
NEIGHBOURS = np.ones((3, 3))

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Bounds:
    """Limits of real images."""

    darkest: float
    brightest: float
    smallest_stroke: float  # pixels

    def find_broken(self, images: Floats) -> dict[str, Bools]:
        """Return for each kind of fault which images (n, h, w) have it."""
        brightness = images.mean((1, 2))
        return {
            "white": brightness > self.brightest,
            "blank": brightness < self.darkest / 2,
            "specks": measure_strokes(images) < self.smallest_stroke / 2,
        }


def measure_strokes(images: Floats) -> NDArray[np.float64]:
    """Return the number of pixels in the largest stroke of each image (n, h, w)."""
    sizes = np.zeros(len(images))
    for i, image in enumerate(images):
        labels, count = ndimage.label(image > STROKE * image.max(), NEIGHBOURS)
        sizes[i] = np.bincount(labels.ravel())[1:].max() if count else 0
    return sizes


def find_bounds(images: Floats) -> Bounds:
    brightness = images.mean((1, 2))
    return Bounds(float(brightness.min()), float(brightness.max()),
                  float(measure_strokes(images).min()))  # fmt: skip


def load_images(path: Path) -> Floats:
    """Read the images of an .npz, scaled to [0, 1]; (n, h, w)."""
    with np.load(path) as arrays:
        images = next(a for a in (arrays[name] for name in arrays.files) if a.ndim >= 2)
    side = round(images[0].size ** 0.5)
    scaled: Floats = (images.reshape(len(images), side, side) / images.max()).astype(np.float32)
    return scaled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artefact", type=Path, help="folder of a model's version")
    parser.add_argument("--data", type=Path, required=True, help=".npz file with real images")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--burn-in", type=int, default=100, help="steps before the first sample")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pictures", type=Path, help="save the broken samples to this .npy file")
    args = parser.parse_args()

    bounds = find_bounds(load_images(args.data))
    model = Model.open(args.artefact)
    walk = make_transition(model, seed=args.seed)
    state = encode_state(model, walk.kernel, draw_starts(model, args.chains, args.seed, "noise"))
    kept = -(-args.samples // args.chains)
    counts, faulty, seen = dict.fromkeys(("white", "blank", "specks"), 0), [], 0
    scale = model.manifest.normaliser.scale.max()
    steps = positions(model, walk, state, args.burn_in + kept)
    for position in tqdm(steps, total=args.burn_in + kept):
        if position.step <= args.burn_in:
            continue
        x = np.asarray(model.manifest.normaliser.to_user(position.mean)) / scale
        images = x.reshape(len(x), *model.manifest.image or ()).astype(np.float32)
        flags = bounds.find_broken(images)
        seen += len(images)
        counts = {name: counts[name] + int(flags[name].sum()) for name in counts}
        faulty.append(images[np.logical_or.reduce(list(flags.values()))])
    broken = np.concatenate(faulty)
    if args.pictures:
        np.save(args.pictures, broken)
    print(json.dumps({"model": str(args.artefact), "samples": seen, "broken": len(broken),
                      **counts, **vars(bounds)}))  # fmt: skip


if __name__ == "__main__":
    main()
