"""Measure conditional sampling: Gaussians, slices of the spiral, halves of digits, and its cost.

    python -m benchmarks.conditional gaussian
    python -m benchmarks.conditional spiral
    python -m benchmarks.conditional mnist --data mnist-train.npz --pictures out.png
    python -m benchmarks.conditional cost

"before" is how `clamp` worked at first: after each step of the kernel, it reset the known columns.
It is kept here for comparison.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.stats import norm

from localmoments.arrays import Doubles, Floats
from localmoments.chain import draw_starts, make_transition, positions
from localmoments.chain_state import Clamp, Transition
from localmoments.clamp import noise_levels
from localmoments.gaussian import Gaussian, Measurement
from localmoments.model import Model
from trainer.data import ArraySource
from trainer.data.dataset import compute_fingerprint
from trainer.data.known_sets import locate_file
from trainer.data.synthetic import Spiral
from trainer.evaluate.features import (
    Classifier,
    Network,
    Tensors,
    measure_accuracy,
    read_or_make,
    train_classifier,
)

MODELS = Path("models")
BINS = np.linspace(-1.7, 1.7, 35)  # of 0.1, in the units of the data
HELD_OUT = 10_000  # last rows
EXAMPLES = 60_000  # that the classifier sees


def make_hard_clamp(mask: NDArray[np.bool_], values: Floats) -> Clamp:
    return Clamp(
        np.atleast_2d(mask), np.atleast_2d(values), np.zeros((1, mask.shape[-1]), np.float32)
    )


def make_conditional(model: Model, clamp: Clamp, seed: int = 1) -> Transition:
    """Return the transition of a request with `clamp` and no other options."""
    return make_transition(model, seed=seed, clamp=clamp)


def run_with_reset(
    model: Model, clamp: Clamp, x: Floats, steps: int, seed: int = 1
) -> Iterator[Any]:
    """Yield (state, mean) after each step of the former clamp."""
    walk = make_transition(model, seed=seed)
    for step in range(steps):
        (position,) = positions(model, walk, x, 1, first=step)
        x = clamp.hold(position.state)
        yield x, clamp.hold(position.mean)


def run_conditional(
    model: Model, clamp: Clamp, x: Floats, steps: int, seed: int = 1
) -> Iterator[Any]:
    for position in positions(model, make_conditional(model, clamp, seed), x, steps):
        yield position.state, position.mean


# --- Gaussian data --------------------------------------------------------------------------------


class Normal(Model):
    """A model with the local moments of N(0, C) in closed form: r(x) = A x, A = C (C + t²)⁻¹."""

    def __init__(self, C: Doubles, levels: tuple[float, float]) -> None:
        like = Model.open(MODELS / "digits-dae/1", threads=1).manifest
        super().__init__(
            Path(), replace(like, input_dims=len(C), sigma=1.0, alpha=1.0, noise_levels=levels)
        )
        self._C = C

    def run(self, graph: str, **inputs: Any) -> dict[str, Floats]:
        t = float(inputs["sigma"][0, 0])
        A = np.linalg.solve(self._C + t**2 * np.eye(len(self._C)), self._C)
        out = {"mean": inputs["x"] @ A, "products": inputs["v"] @ A}
        return {name: array.astype(np.float32) for name, array in out.items()}


def count_burn_in(C: Doubles, mask: NDArray[np.bool_], t: float) -> int:
    """Return the steps until a thousandth of the slowest mode is left.

    A step down from level t is X given y = x + tε, so the unknown columns, of conditional
    covariance V, forget by V (V + t²)⁻¹.
    """
    slowest = max(np.linalg.eigvalsh(np.linalg.inv(np.linalg.inv(C)[~m][:, ~m]))[-1] for m in mask)
    return int(np.ceil(np.log(0.001) / np.log(slowest / (slowest + t**2))))


def compute_z_scores(x: Doubles, truth: Gaussian) -> tuple[Doubles, Doubles]:
    """Return z-scores of the mean and of all entries of the covariance, for independent rows of x.

    The rows are first divided by a root of the true covariance, which makes the z independent.
    """
    n, root = len(x), np.linalg.cholesky(truth.covariance)
    e = np.linalg.solve(root, (x - truth.mean).T).T  # (n, u), N(0, I) if x has the true law
    S = e.T @ e / n - np.eye(e.shape[1])  # an entry's variance is 1/n, on the diagonal 2/n
    upper = np.triu_indices(e.shape[1])
    z = np.sqrt(n / np.where(upper[0] == upper[1], 2.0, 1.0)) * S[upper]
    return np.sqrt(n) * e.mean(0), z


def measure_gaussian(columns: list[int], tops: list[float], walkers: int) -> None:
    """Draw random masks, one for each group of walkers; all walkers run in one batch.

    Walkers are independent, and only the last step of each is used.
    """
    print("| columns | masks | levels | steps | mean: RMS z, max | covariance: RMS z, max |\n"
          "|---|---|---|---|---|---|")  # fmt: skip
    for d in columns:
        masks = max(1, 48 // d)  # few columns give few z-scores, so use more masks
        rng = np.random.default_rng(d)
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        C = (Q * np.geomspace(0.1, 2.0, d)) @ Q.T
        mask = np.stack(
            [
                rng.permutation(np.arange(d) < rng.integers(-(-d // 4), 3 * d // 4 + 1))
                for _ in range(masks)
            ]
        )
        values = rng.multivariate_normal(np.zeros(d), C, masks).astype(np.float32)
        each = Clamp(
            mask.repeat(walkers, 0), values.repeat(walkers, 0), np.zeros((1, d), np.float32)
        )
        for top in tops:
            model, steps = Normal(C, (0.25, top)), count_burn_in(C, mask, top)
            start = each.start(np.zeros((masks * walkers, d), np.float32))
            *_, (x, _) = run_conditional(model, each, start, steps, seed=d)
            means, entries = [], []
            for m, v, rows in zip(mask, values, x.reshape(masks, walkers, d), strict=True):
                seen = Measurement.of_columns(m, v.astype(np.float64), np.zeros(d))
                given = Gaussian(np.zeros(d), C).given(seen)
                free = Gaussian(given.mean[~m], given.covariance[~m][:, ~m])
                of_mean, of_covariance = compute_z_scores(rows[:, ~m].astype(np.float64), free)
                means.append(of_mean)
                entries.append(of_covariance)
            cells = [
                f"{np.sqrt(np.mean(np.square(z))):.2f}, {np.abs(z).max():.1f} of {len(z)}"
                for z in (np.concatenate(means), np.concatenate(entries))
            ]
            levels = " → ".join(f"{t:g}" for t in noise_levels(model.manifest, top))
            print(f"| {d} | {masks} | {levels} | {steps} | {cells[0]} | {cells[1]} |", flush=True)


# --- the spiral -----------------------------------------------------------------------------------


def compute_true_slice(column: int, value: float) -> Doubles:
    """Return the true mass of each bin of the other column, by quadrature along the curve."""
    truth = Spiral()
    t = np.sqrt(np.linspace(truth.first**2, truth.last**2, 100_001))
    curve = truth._curve((t[1:] + t[:-1]) / 2)[0]
    weight = np.exp(-0.5 * ((curve[:, column] - value) / truth.noise) ** 2)
    near = weight > 1e-9 * weight.max()
    edges = (BINS - curve[near, 1 - column][:, None]) / truth.noise
    masses: Doubles = (weight[near, None] * np.diff(norm.cdf(edges), axis=1)).sum(0) / weight.sum()
    return masses


def compute_total_variation(truth: Doubles, samples: Doubles) -> float:
    masses = np.histogram(samples, BINS)[0] / len(samples)
    return float(0.5 * (np.abs(truth - masses).sum() + 1 - masses.sum()))  # outside the bins too


def measure_spiral(walkers: int, steps: int) -> None:
    model = Model.open(MODELS / "spiral-dae/1", threads=1)
    units, every = model.manifest.normaliser, []
    print("| known | value | before | now |\n|---|---|---|---|")
    for column in (0, 1):
        for value in np.arange(-0.9, 1.35, 0.2):
            row = np.zeros((1, 2))
            row[0, column] = value
            clamp = make_hard_clamp(np.arange(2) == column, units.to_model(row))
            x, truth = (
                clamp.start(draw_starts(model, walkers, 1)),
                compute_true_slice(column, value),
            )
            both = []
            for chain in (run_with_reset, run_conditional):
                states = [state for state, _ in chain(model, clamp, x, steps)][steps // 3 :]
                samples = np.concatenate([units.to_user(s)[:, 1 - column] for s in states])
                both.append(compute_total_variation(truth, samples))
            every.append(both)
            print(f"| x{column} | {value:.1f} | {both[0]:.2f} | {both[1]:.2f} |", flush=True)
    print("mean, largest:", np.mean(every, axis=0).round(3), np.max(every, axis=0).round(3))


# --- halves of digits -----------------------------------------------------------------------------


def load_classifier(x: Floats, y: NDArray[np.int64]) -> Classifier:
    """Train a classifier on the rows that are not held out, or load it from the cache."""

    def make() -> Tensors:
        network, names = train_classifier(
            (28, 28), x[:-HELD_OUT], y[:-HELD_OUT], lambda n: None, EXAMPLES
        )
        return {**network.state_dict(), "names": torch.from_numpy(names)}

    fingerprint = compute_fingerprint(ArraySource(x), x.nbytes)
    tensors = read_or_make("classifier", ("conditional", fingerprint, EXAMPLES), make)
    names = tensors.pop("names").numpy()
    network = Network((28, 28), len(names))
    network.load_state_dict(tensors)
    return measure_accuracy(network.eval(), names, x[-HELD_OUT:], y[-HELD_OUT:])


def measure_seam(images: Floats) -> float:
    """Return the mean difference across the edge between the halves."""
    rows = images.reshape(-1, 28, 28)
    return float(np.abs(rows[:, 14] - rows[:, 13]).mean())


def measure_mnist(data: Path, digits: int, steps: int, pictures: Path | None) -> None:
    model = Model.open(MODELS / "mnist-dae/1", threads=1)
    with np.load(data) as file:
        x = (file["x"].reshape(-1, 784) / np.float32(255)).astype(np.float32)
        y = file["y"].astype(np.int64)
    classifier = load_classifier(x, y)
    pick = np.random.default_rng(0).choice(HELD_OUT, digits, replace=False) + len(x) - HELD_OUT
    truth, labels = x[pick], y[pick]
    right = (classifier.names[classifier.predict(truth)] == labels).mean()
    print(
        f"classifier: {classifier.accuracy:.4f} of held-out digits, {right:.3f} of these {digits}"
    )
    print("| known | chain | agreement | of the mean's classes over the chain | seam / real |\n"
          "|---|---|---|---|---|")  # fmt: skip
    shown = [truth]
    for name, mask in (("lower", np.arange(784) >= 392), ("upper", np.arange(784) < 392)):
        clamp = make_hard_clamp(mask, truth)
        start = clamp.start(draw_starts(model, digits, 1))
        for kind, chain in (("before", run_with_reset), ("now", run_conditional)):
            means = [mean for _, mean in chain(model, clamp, start, steps)]
            half = means[steps // 2 :]
            classes = np.stack([classifier.names[classifier.predict(m)] for m in half])  # (n, W)
            agree, most = (
                (classes == labels).mean(),
                np.array([np.bincount(c).argmax() for c in classes.T]),
            )
            ratio = np.mean([measure_seam(m) for m in half]) / measure_seam(truth)
            print(f"| {name} half | {kind} | {agree:.3f} | {(most == labels).mean():.3f} | "
                  f"{ratio:.2f} |", flush=True)  # fmt: skip
            shown.append(means[-1])
    if pictures is not None:
        each = [np.hstack(list(images[:20].reshape(-1, 28, 28))) for images in shown]
        grey = (np.vstack(each).clip(0, 1) * 255).astype(np.uint8)
        Image.fromarray(grey).resize((grey.shape[1] * 2, grey.shape[0] * 2), 0).save(pictures)


# --- what a step costs ----------------------------------------------------------------------------


def measure_cost(rounds: int) -> None:
    print("| model | columns | walkers | plain step, ms | clamped step, ms | ratio |\n"
          "|---|---|---|---|---|---|")  # fmt: skip
    for name in ("spiral-dae", "digits-dae", "mnist-dae"):
        model = Model.open(MODELS / name / "1", threads=1)
        d = model.manifest.input_dims
        for walkers in (1, 64):
            x = draw_starts(model, walkers, 1)
            clamp = make_hard_clamp(np.arange(d) < d // 2, x[:1])
            plain, clamped = make_transition(model, seed=1), make_conditional(model, clamp)
            times: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(rounds):  # in turn, so that other load slows both
                for walk in (plain, clamped):
                    start_time = time.perf_counter()
                    steps = 1 if walk.clamp else 10
                    list(positions(model, walk, clamp.start(x), steps))
                    times[walk is clamped].append((time.perf_counter() - start_time) / steps)
            a, b = (1000 * float(np.median(times[k])) for k in (False, True))
            print(f"| {name} | {d} | {walkers} | {a:.2f} | {b:.1f} | {b / a:.0f} |", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=("gaussian", "spiral", "mnist", "cost"))
    parser.add_argument("--data", help="MNIST's file or its folder (default: $LOCALMOMENTS_DATA)")
    parser.add_argument("--columns", type=int, nargs="+", default=[2, 8, 24, 64])
    parser.add_argument("--levels", type=float, nargs="+", default=[2.0, 1.0, 0.5])
    parser.add_argument("--walkers", type=int, help="walkers per mask (2000) or slice (64)")
    parser.add_argument("--digits", type=int, default=200)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--pictures", type=Path)
    args = parser.parse_args()
    if args.what == "gaussian":
        measure_gaussian(args.columns, args.levels, args.walkers or 2000)
    elif args.what == "spiral":
        measure_spiral(args.walkers or 64, args.steps or 90)
    elif args.what == "mnist":
        measure_mnist(locate_file("mnist", args.data), args.digits, args.steps or 12, args.pictures)
    else:
        measure_cost(args.steps or 5)


if __name__ == "__main__":
    main()
