"""Recipes: one frozen value that fixes a run, read from TOML and `--set key=value`."""

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from localmoments.artefact import MANIFEST, NAME
from trainer.data import DataOptions
from trainer.errors import RecipeError
from trainer.typed import build

Kind = Literal["cae", "dae", "rcae"]
Loss = Literal["squared", "cross-entropy"]
Corruption = Literal["gaussian", "salt-and-pepper", "masking"]
KernelName = Literal["hidden", "input", "moment", "gibbs", "walkjump"]

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class ModelOptions:
    """[model]: the auto-encoder's shape."""

    dims: int | None = None  # refuse data of another width
    hidden: tuple[int, ...] = (256,)
    unit: Literal["sigmoid", "tanh", "softplus", "silu", "linear"] = "silu"
    decoder: Literal["auto", "sigmoid", "linear"] = "auto"  # auto: by the data's range
    tied: bool = False
    blocks: int = 0
    conditioned: bool = False


@dataclass(frozen=True)
class CriterionOptions:
    """[criterion]: what is minimised."""

    kind: Kind = "dae"
    loss: Loss = "squared"
    alpha: float = 0.1
    sigma: float | tuple[float, float] = 0.5  # a noise level, or the ends of a range
    corruption: Corruption = "gaussian"
    amount: float = 0.25
    walkback: int = 1
    probes: int = 1
    hidden_noise: float | tuple[float, float] = 0.0  # the kernel's own noise in training (cae)
    hidden_floor: float = 0.0  # the most of white noise beside it
    hidden_return: float = 0.0  # weight of the loss after the sample is encoded once more
    input_noise: float = 0.0  # level at which the rcae is measured; 0 is eq. L_global
    stacked: bool = False  # train layer by layer, each on the one below (cae)

    @property
    def levels(self) -> tuple[float, float]:
        return self.sigma if isinstance(self.sigma, tuple) else (self.sigma, self.sigma)

    @property
    def hidden_levels(self) -> tuple[float, float]:
        rho = self.hidden_noise
        return rho if isinstance(rho, tuple) else (rho, rho)


@dataclass(frozen=True)
class TrainingOptions:
    """[training]: how it is minimised."""

    epochs: int = 100
    batch: int = 128
    learning_rate: float = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: float = 0.0
    average: float = 0.999  # decay of the weights' moving average, which is what is kept
    keep: Literal["best", "last"] = "best"  # best: by the loss on held-out rows
    seed: int = 0
    precision: Literal["single", "bfloat16"] = "single"  # of the matrix products
    checkpoint_seconds: float = 30.0
    threads: int = 0  # 0: all cores, or one where a step is too small to share


@dataclass(frozen=True)
class SamplingOptions:
    """[sampling]: how the artefact's chains walk."""

    kernel: Literal["auto"] | KernelName = "auto"
    sigma: float | None = None  # the level that a range's model serves by default
    root: Literal["auto", "exact", "matrix", "polynomial", "jacobian"] = "auto"
    root_degree: int = 6
    gain: float = 1.0  # of the root γ J ε
    halvings: int = 0  # of the noise, on gibbs' way from a corrupted point back to the data
    emit: Literal["auto", "mean", "noisy"] = "auto"  # auto: images the mean, tables the noisy
    scales: Mapping[str, float] = field(default_factory=dict)  # by kernel, over the defaults
    starts: Literal["synthetic", "data"] = "synthetic"  # are start points samples or real rows?
    start_points: int = 256


@dataclass(frozen=True)
class Recipe:
    """Everything that fixes a run; two runs of one recipe give the same weights."""

    name: str
    data: DataOptions
    model: ModelOptions = ModelOptions()
    criterion: CriterionOptions = CriterionOptions()
    training: TrainingOptions = TrainingOptions()
    sampling: SamplingOptions = field(default_factory=SamplingOptions)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def sigma(self) -> float:
        """What is served: asked for, or the range's geometric middle; √(α + input noise²)."""
        low, high = self.criterion.levels
        if self.criterion.kind != "dae":
            return float((self.criterion.alpha + self.criterion.input_noise**2) ** 0.5)
        return float(self.sampling.sigma or (low * high) ** 0.5)

    @property
    def smallest_level(self) -> float:
        """Where gibbs, at its scale, leaves its way back to the data."""
        scale = float(self.sampling.scales.get("gibbs", 1.0))
        return float(self.sigma * scale * 0.5**self.sampling.halvings)


def read_recipe(path: Path) -> dict[str, Any]:
    """A recipe's tables, from TOML or from an artefact's manifest."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.name == MANIFEST:
            return dict(json.loads(text)["recipe"])
        return tomllib.loads(text)
    except FileNotFoundError:
        raise RecipeError(f"There is no recipe at {path}.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(f"{path} is not a readable recipe: {error}.") from None


def find_recipe(name: str) -> Path | None:
    """A recipe's path from what a person types: a .toml file, a shipped recipe's name, or a
    model's folder, whose manifest keeps the recipe that made it."""
    if name.endswith(".toml"):
        return Path(name)
    if (Path(name) / MANIFEST).exists():
        return Path(name) / MANIFEST
    shipped = RECIPES / f"{name}.toml"
    return shipped if NAME.fullmatch(name) and shipped.exists() else None


def with_settings(body: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A copy of the recipe's tables with `table.key=value` laid over them."""
    laid: dict[str, Any] = deepcopy(dict(body))
    for setting in settings:
        key, equals, text = setting.partition("=")
        *tables, last = key.strip().split(".")
        if not equals or not last:
            raise RecipeError(f"--set {setting!r} is not of the form key=value.")
        table = laid
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise RecipeError(f"--set {setting!r}: {name} is a value, not a table.")
        table[last] = _literal(text)
    return laid


def _literal(text: str) -> Any:
    """A TOML value, or the text itself, so that names need no quotes in a shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def make_recipe(body: Mapping[str, Any]) -> Recipe:
    """Check every key and value, and say which one is wrong."""
    recipe = build(Recipe, body, "")
    _check(recipe)
    return recipe


def _check(recipe: Recipe) -> None:
    c, t, s = recipe.criterion, recipe.training, recipe.sampling
    low, high = c.levels
    quiet, loud = c.hidden_levels
    rules = [
        (
            bool(NAME.fullmatch(recipe.name)),
            f"name {recipe.name!r} must be 1 to 64 of a-z 0-9 _ . "
            "- and begin with a letter or digit",
        ),
        (0 < low <= high < math.inf, "criterion.sigma must be positive, and a range must rise"),
        (0 < c.alpha < math.inf, "criterion.alpha must be positive"),
        (0 <= c.amount < 1, "criterion.amount must be a part from 0 to below 1"),
        (c.walkback >= 1, "criterion.walkback must be 1 or more"),
        (c.probes >= 0, "criterion.probes must be 0 (exact) or more"),
        (
            quiet == loud == 0 or 0 < quiet <= loud < math.inf,
            "criterion.hidden_noise must be 0 (none) or positive, and a range must rise",
        ),
        (loud == 0 or c.kind == "cae", "criterion.hidden_noise is for the cae"),
        (0 <= c.hidden_floor < math.inf, "criterion.hidden_floor must be 0 (none) or more"),
        (0 <= c.hidden_return < math.inf, "criterion.hidden_return must be 0 (none) or more"),
        (loud > 0 or c.hidden_floor == 0, "criterion.hidden_floor needs criterion.hidden_noise"),
        (loud > 0 or c.hidden_return == 0, "criterion.hidden_return needs criterion.hidden_noise"),
        (loud == 0 or not c.stacked, "criterion.hidden_noise and stacked exclude each other"),
        (0 <= c.input_noise < math.inf, "criterion.input_noise must be 0 (none) or more"),
        (c.input_noise == 0 or c.kind == "rcae", "criterion.input_noise is for the rcae"),
        (not c.stacked or c.kind == "cae", "criterion.stacked is for the cae"),
        (not c.stacked or recipe.model.blocks == 0, "criterion.stacked needs model.blocks = 0"),
        (
            not c.stacked or not recipe.model.conditioned,
            "criterion.stacked needs model.conditioned = false",
        ),
        (
            c.loss == "squared" or recipe.model.decoder != "linear",
            "criterion.loss = cross-entropy needs a sigmoid decoder",
        ),
        (
            not recipe.model.conditioned or (c.kind == "dae" and c.corruption == "gaussian"),
            "model.conditioned is for a dae with Gaussian corruption",
        ),
        (t.epochs >= 1 and t.batch >= 1, "training.epochs and training.batch must be 1 or more"),
        (0 < t.learning_rate < math.inf, "training.learning_rate must be positive"),
        (0 <= t.weight_decay < math.inf, "training.weight_decay must be 0 or more"),
        (0 <= t.average < 1, "training.average must be from 0 to below 1"),
        (t.seed >= 0, "training.seed must be 0 or more"),
        (t.threads >= 0, "training.threads must be 0 (automatic) or more"),
        (t.checkpoint_seconds > 0, "training.checkpoint_seconds must be positive"),
        (s.sigma is None or s.sigma > 0, "sampling.sigma must be positive"),
        (s.root_degree >= 2, "sampling.root_degree must be 2 or more"),
        (0 < s.gain < math.inf, "sampling.gain must be positive"),
        (s.halvings >= 0, "sampling.halvings must be 0 or more"),
        (
            s.halvings == 0 or (recipe.model.conditioned and recipe.smallest_level > 0.999 * low),
            "sampling.halvings needs a conditioned model, and levels that it was trained for",
        ),
        (
            set(s.scales) <= set(get_args(KernelName)),
            f"sampling.scales knows {', '.join(get_args(KernelName))}",
        ),
        (all(0 < v < math.inf for v in s.scales.values()), "sampling.scales must be positive"),
        (s.start_points >= 1, "sampling.start_points must be 1 or more"),
    ]
    for holds, sentence in rules:
        if not holds:
            raise RecipeError(f"{sentence}.")
