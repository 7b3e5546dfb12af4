"""Recipes: everything that determines a training run.

A recipe is read from a TOML file, from an artefact's manifest or from `--set table.key=value`, and
checked by pydantic. Data without a recipe gets one from `default_recipe`.
"""

import json
import math
import re
import tomllib
import types
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from localmoments.artefact import MANIFEST, NAME
from trainer.data import DataOptions
from trainer.errors import RecipeError

Kind = Literal["cae", "dae", "rcae"]
Loss = Literal["squared", "cross-entropy"]
Corruption = Literal["gaussian", "salt-and-pepper", "masking"]
KernelName = Literal["hidden", "input", "moment", "gibbs", "walkjump"]

# A description completes the sentence "`table.key` must be ...".
ModelName = Annotated[
    str,
    Field(
        pattern=f"^{NAME.pattern}$",
        description="1 to 64 of the characters a-z 0-9 _ . - and start with a letter or digit",
    ),
]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, description="a positive number")]
NotNegative = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="a number of at least 0")
]
Fraction = Annotated[float, Field(ge=0, lt=1, description="a number from 0 to below 1")]
Count = Annotated[int, Field(ge=1, description="a whole number of at least 1")]
CountOrZero = Annotated[int, Field(ge=0, description="a whole number of at least 0")]

Widths = Annotated[tuple[Count, ...], Field(min_length=1)]

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class ModelOptions:
    """[model]: the shape of the auto-encoder."""

    dims: Count | None = None  # refuse data with another number of columns
    hidden: Widths = (256,)
    unit: Literal["sigmoid", "tanh", "softplus", "silu", "linear"] = "silu"
    decoder: Literal["auto", "sigmoid", "linear"] = "auto"  # auto: from the range of the data
    tied: bool = False
    blocks: CountOrZero = 0  # residual blocks after each layer
    conditioned: bool = False  # the noise level is an input of the network


@dataclass(frozen=True)
class CriterionOptions:
    """[criterion]: what training minimises."""

    kind: Kind = "dae"
    loss: Loss = "squared"
    alpha: Positive = 0.1  # weight of the contraction (cae, rcae)
    sigma: Positive | tuple[Positive, Positive] = 0.5  # a noise level, or the ends of a range
    corruption: Corruption = "gaussian"
    amount: Fraction = 0.25  # fraction of the entries that masking and salt-and-pepper change
    walkback: Count = 1  # chain steps whose reconstructions are all compared with x
    probes: CountOrZero = 1  # Hutchinson probes; 0 computes the contraction exactly
    hidden_noise: NotNegative | tuple[Positive, Positive] = (
        0.0  # noise of the kernel `hidden` (cae)
    )
    hidden_floor: NotNegative = 0.0  # upper limit of the white noise added to it
    hidden_return: NotNegative = 0.0  # weight of the loss after the sample is encoded once more
    input_noise: NotNegative = 0.0  # noise level at which the rcae is evaluated; 0 is eq. L_global
    stacked: bool = False  # train layer by layer, each on the output of the one below (cae)

    @property
    def levels(self) -> tuple[float, float]:
        """The lowest and the highest noise level."""
        return self.sigma if isinstance(self.sigma, tuple) else (self.sigma, self.sigma)

    @property
    def hidden_levels(self) -> tuple[float, float]:
        """The lowest and the highest level of hidden noise."""
        rho = self.hidden_noise
        return rho if isinstance(rho, tuple) else (rho, rho)


@dataclass(frozen=True)
class TrainingOptions:
    """[training]: how the criterion is minimised."""

    epochs: Count = 100
    batch: Count = 128
    learning_rate: Positive = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: NotNegative = 0.0
    average: Fraction = 0.999  # decay of the moving average of the weights, which is kept
    keep: Literal["best", "last"] = "best"  # best: lowest loss on held-out rows
    seed: CountOrZero = 0
    precision: Literal["single", "bfloat16"] = "single"  # of the matrix products
    checkpoint_seconds: Positive = 30.0
    threads: CountOrZero = 0  # 0: all CPUs, or one if a step is too small to share


@dataclass(frozen=True)
class SamplingOptions:
    """[sampling]: the chains of the artefact."""

    kernel: Literal["auto"] | KernelName = "auto"
    sigma: Positive | None = None  # noise level of chains, for a model of a range of levels
    root: Literal["auto", "exact", "matrix", "polynomial", "jacobian"] = "auto"
    root_degree: Annotated[int, Field(ge=2, description="a whole number of at least 2")] = (
        6  # of the root `polynomial`
    )
    gain: Positive = 1.0  # γ of the root γ J ε
    halvings: CountOrZero = 0  # of the noise, while gibbs moves a corrupted point back to the data
    emit: Literal["auto", "mean", "noisy"] = "auto"  # auto: mean for images, noisy for tables
    scales: Mapping[KernelName, Positive] = field(default_factory=dict)  # override the defaults
    starts: Literal["synthetic", "data"] = "synthetic"  # start points: samples, or real rows
    start_points: Count = 256


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a run. Two runs of one recipe give the same weights."""

    # Strict: true is not a number and "8" is not 8. The nested tables inherit this.
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True)

    name: ModelName
    data: DataOptions
    model: ModelOptions = ModelOptions()
    criterion: CriterionOptions = CriterionOptions()
    training: TrainingOptions = TrainingOptions()
    sampling: SamplingOptions = field(default_factory=SamplingOptions)

    def as_dict(self) -> dict[str, Any]:
        """The recipe as plain tables, which `make_recipe` accepts."""
        return asdict(self)

    @property
    def sigma(self) -> float:
        """The noise level σ of the chains; α = σ².

        A dae uses sampling.sigma, or else the geometric middle of its range. The other criteria
        have σ² = α + input_noise².
        """
        low, high = self.criterion.levels
        if self.criterion.kind != "dae":
            return float((self.criterion.alpha + self.criterion.input_noise**2) ** 0.5)
        return float(self.sampling.sigma or (low * high) ** 0.5)

    @property
    def smallest_level(self) -> float:
        """The noise level of the last draw of `gibbs`, after all halvings."""
        scale = float(self.sampling.scales.get("gibbs", 1.0))
        return float(self.sigma * scale * 0.5**self.sampling.halvings)


_ADAPTER = TypeAdapter(Recipe)


def make_recipe(body: Mapping[str, Any]) -> Recipe:
    """Check the tables of a recipe.

    Args:
        body: plain tables, as TOML or JSON gives them.

    Raises:
        RecipeError: with one sentence about the first key or value that is wrong.
    """
    try:
        # As JSON, because strict mode then accepts a list for a tuple and 1 for 1.0.
        recipe = _ADAPTER.validate_json(json.dumps(body, default=str))
    except ValidationError as error:
        raise RecipeError(_explain(error, body)) from None
    _check_combinations(recipe)
    return recipe


def _explain(error: ValidationError, body: Any) -> str:
    """One sentence about the first error. Unknown keys come first: they explain missing ones."""
    errors = sorted(error.errors(), key=lambda e: e["type"] != "unexpected_keyword_argument")
    kind, where = errors[0]["type"], [str(part) for part in errors[0]["loc"]]
    if not where:
        return "The recipe must be a table of settings."
    table = Recipe
    keys: list[str] = []
    annotation: Any = Recipe
    value = body
    for part in where:  # down to the setting; the rest of the path is inside its value
        if not is_dataclass(annotation):
            break
        table = annotation  # type: ignore[assignment]
        keys.append(part)
        annotation = get_type_hints(annotation, include_extras=True).get(part)
        value = value.get(part)
    key = ".".join(keys)
    if kind == "unexpected_keyword_argument":
        known = [f.name for f in fields(table)]
        near = get_close_matches(keys[-1], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(known)}."
        return f"There is no setting `{key}`; {hint}"
    if kind == "missing" and len(keys) == len(where):
        return f"The setting `{key}` is missing."
    if is_dataclass(annotation):
        return f"`{key}` must be a table of settings; got {value!r}."
    return f"`{key}` must be {_EXAMPLES.get(key) or _describe(annotation)}; got {value!r}."


_COLUMNS = 'a list of column names, for example ["age", "income"]'
_EXAMPLES = {
    "data.columns": _COLUMNS,
    "data.drop": _COLUMNS,
    "data.image": "the height and width of the images, for example [28, 28]",
    "model.hidden": "a list of layer widths (whole numbers), for example [256, 128]",
}
_TYPES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _describe(annotation: Any) -> str:
    """The values that a setting accepts, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        info = next((a for a in arguments[1:] if getattr(a, "description", None)), None)
        return info.description if info else _describe(arguments[0])
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        kinds = [a for a in arguments if a is not type(None)]
        if all(get_origin(a) is Literal for a in kinds):
            return "one of " + ", ".join(str(v) for a in kinds for v in get_args(a))
        return " or ".join(map(_describe, kinds))
    if origin is tuple:
        size = "" if arguments[-1] is Ellipsis else f" {len(arguments)}"
        return f"a list of{size} values, each {_describe(arguments[0])}"
    if origin is not None:  # a mapping
        return f"a table from {_describe(arguments[0])} to {_describe(arguments[1])}"
    return _TYPES.get(annotation, str(annotation))


def _check_combinations(recipe: Recipe) -> None:
    """Refuse settings that are valid one by one but not together."""
    c, m, s = recipe.criterion, recipe.model, recipe.sampling
    low, high = c.levels
    low_rho, high_rho = c.hidden_levels
    rules = [
        (low <= high, "criterion.sigma is a range, so its first value must be the smaller one"),
        (
            low_rho <= high_rho,
            "criterion.hidden_noise is a range, so its first value must be the smaller one",
        ),
        (high_rho == 0 or c.kind == "cae", "criterion.hidden_noise requires criterion.kind = cae"),
        (
            high_rho > 0 or c.hidden_floor == 0,
            "criterion.hidden_floor needs criterion.hidden_noise",
        ),
        (
            high_rho > 0 or c.hidden_return == 0,
            "criterion.hidden_return needs criterion.hidden_noise",
        ),
        (
            high_rho == 0 or not c.stacked,
            "criterion.hidden_noise and criterion.stacked exclude each other",
        ),
        (
            c.input_noise == 0 or c.kind == "rcae",
            "criterion.input_noise requires criterion.kind = rcae",
        ),
        (not c.stacked or c.kind == "cae", "criterion.stacked requires criterion.kind = cae"),
        (not c.stacked or m.blocks == 0, "criterion.stacked requires model.blocks = 0"),
        (
            not c.stacked or not m.conditioned,
            "criterion.stacked requires model.conditioned = false",
        ),
        (
            c.loss == "squared" or m.decoder != "linear",
            "criterion.loss = cross-entropy requires model.decoder = sigmoid or auto",
        ),
        (
            not m.conditioned or (c.kind == "dae" and c.corruption == "gaussian"),
            "model.conditioned requires criterion.kind = dae and criterion.corruption = gaussian",
        ),
        (
            s.halvings == 0 or (m.conditioned and recipe.smallest_level > 0.999 * low),
            "sampling.halvings requires model.conditioned = true, and every halved noise level "
            "must be within criterion.sigma",
        ),
    ]
    for is_met, sentence in rules:
        if not is_met:
            raise RecipeError(f"{sentence}.")


def read_recipe(path: Path) -> dict[str, Any]:
    """Read the tables of a recipe from a TOML file or from an artefact's manifest.

    Raises:
        RecipeError: if the file does not exist or cannot be parsed.
    """
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
    """The path of a recipe: `name` is a .toml file, a shipped recipe, or a model's folder.

    The manifest in a model's folder contains the recipe that made the model. Returns None if
    `name` is none of these; it may then be a data file.
    """
    if name.endswith(".toml"):
        return Path(name)
    if (Path(name) / MANIFEST).exists():
        return Path(name) / MANIFEST
    shipped = RECIPES / f"{name}.toml"
    return shipped if NAME.fullmatch(name) and shipped.exists() else None


def apply_settings(body: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A copy of a recipe's tables with `table.key=value` settings applied, in order.

    Raises:
        RecipeError: if a setting does not have this form.
    """
    tables: dict[str, Any] = deepcopy(dict(body))
    for setting in settings:
        path, equals, text = setting.partition("=")
        *parents, key = path.strip().split(".")
        if not equals or not key:
            raise RecipeError(f"--set {setting!r} does not have the form key=value.")
        table = tables
        for name in parents:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise RecipeError(f"--set {setting!r}: {name} is a value, not a table.")
        table[key] = _parse_value(text)
    return tables


def _parse_value(text: str) -> Any:
    """A TOML value, or the text itself, so that words need no quotes in a shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


DEFAULT_NOISE_RANGE = (0.1, 1.0)  # in standard deviations, or fractions of the grey range
DEFAULT_SIGMA = 0.5  # large enough for chains to cross between clusters, small enough for tangents
DEFAULT_STEPS = 12_000


def default_recipe(name: str, rows: int, dims: int) -> dict[str, Any]:
    """A recipe for data of this size, without its [data] table.

    Tables get a small residual network and images a wide one. Both learn a range of noise levels
    and take the level as an input, so that one model serves near and far neighbourhoods. Training
    takes enough steps to learn a small table well within minutes, and at least one pass over large
    data.
    """
    batch = 128 if rows >= 1_000 else 32
    steps_per_epoch = math.ceil(0.9 * rows / batch)
    return {
        "name": name,
        "model": {
            "hidden": [128] if dims <= 64 else [1024],
            "unit": "silu",
            "blocks": 1,
            "conditioned": True,
        },
        "criterion": {"kind": "dae", "loss": "squared", "sigma": list(DEFAULT_NOISE_RANGE)},
        "training": {
            "epochs": max(1, round(DEFAULT_STEPS / steps_per_epoch)),
            "batch": batch,
        },
        "sampling": {"sigma": DEFAULT_SIGMA},
    }


def name_from_path(path: str) -> str:
    """A model's name from a file name: `My Data (2).csv` becomes `my-data-2`."""
    stem = Path(path).name.split(".")[0].lower()
    return re.sub(r"[^a-z0-9_]+", "-", stem).strip("-_")[:64] or "model"
