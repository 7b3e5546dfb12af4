"""How many samples of an image model are no pictures at all: blank, white, or black with specks.

    python benchmarks/broken.py models/mnist-dae/1 --data ../shared/data/mnist-train.npz

A sample is broken if it is one of

    white     brighter on average than every real image
    blank     on average less than half as bright as the darkest real image
    specks    its largest stroke has less than half the pixels of the smallest of any real image

where a stroke is a connected region (8 neighbours) of pixels above 0.3 of the image's own maximum.
The bounds come from all images of the training file; by them no real image is broken. Samples are
the emitted means of many chains of the default kernel that began in noise.
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
    """What real images allow."""

    darkest: float
    brightest: float
    smallest_stroke: float  # pixels

    def broken(self, images: Floats) -> dict[str, Bools]:
        """Which images (n, h, w) are broken, and how."""
        brightness = images.mean((1, 2))
        return {
            "white": brightness > self.brightest,
            "blank": brightness < self.darkest / 2,
            "specks": stroke_sizes(images) < self.smallest_stroke / 2,
        }


def stroke_sizes(images: Floats) -> NDArray[np.float64]:
    """Pixels of the largest stroke of each image (n, h, w)."""
    sizes = np.zeros(len(images))
    for i, image in enumerate(images):
        labels, count = ndimage.label(image > STROKE * image.max(), NEIGHBOURS)
        sizes[i] = np.bincount(labels.ravel())[1:].max() if count else 0
    return sizes


def bounds_of(images: Floats) -> Bounds:
    brightness = images.mean((1, 2))
    return Bounds(float(brightness.min()), float(brightness.max()),
                  float(stroke_sizes(images).min()))  # fmt: skip


def load_images(path: Path) -> Floats:
    """The images of an .npz in [0, 1]; (n, h, w)."""
    with np.load(path) as arrays:
        images = next(a for a in (arrays[name] for name in arrays.files) if a.ndim >= 2)
    side = round(images[0].size ** 0.5)
    scaled: Floats = (images.reshape(len(images), side, side) / images.max()).astype(np.float32)
    return scaled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artefact", type=Path, help="the model's folder")
    parser.add_argument("--data", type=Path, required=True, help="the real images, an .npz file")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--burn-in", type=int, default=100, help="steps before the first sample")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pictures", type=Path, help="save the broken samples, an .npy file")
    args = parser.parse_args()

    bounds = bounds_of(load_images(args.data))
    model = Model.open(args.artefact)
    walk = make_transition(model, seed=args.seed)
    state = encode_state(model, walk.kernel, draw_starts(model, args.chains, args.seed, "noise"))
    kept = -(-args.samples // args.chains)
    counts, found, seen = dict.fromkeys(("white", "blank", "specks"), 0), [], 0
    scale = model.manifest.normaliser.scale.max()
    steps = positions(model, walk, state, args.burn_in + kept)
    for position in tqdm(steps, total=args.burn_in + kept):
        if position.step <= args.burn_in:
            continue
        x = np.asarray(model.manifest.normaliser.to_user(position.mean)) / scale
        images = x.reshape(len(x), *model.manifest.image or ()).astype(np.float32)
        flags = bounds.broken(images)
        seen += len(images)
        counts = {name: counts[name] + int(flags[name].sum()) for name in counts}
        found.append(images[np.logical_or.reduce(list(flags.values()))])
    broken = np.concatenate(found)
    if args.pictures:
        np.save(args.pictures, broken)
    print(json.dumps({"model": str(args.artefact), "samples": seen, "broken": len(broken),
                      **counts, **vars(bounds)}))  # fmt: skip


if __name__ == "__main__":
    main()
