"""The [data] table of a recipe: which rows to learn from, and how to look at them."""

from dataclasses import dataclass

from trainer.errors import RecipeError

MISSING = ("refuse", "drop", "mean")
NORMALISERS = ("auto", "none", "unit", "standard")


@dataclass(frozen=True)
class DataOptions:
    source: str  # a built-in name, or a path
    path: str | None = None  # where a named data set lies on disk
    columns: tuple[str, ...] = ()  # keep only these table columns, in this order
    drop: tuple[str, ...] = ()  # leave these table columns out
    missing: str = "refuse"  # refuse | drop | mean
    key: str | None = None  # which array of an .npz
    image: tuple[int, ...] | None = None  # the picture behind a flat row: (H, W) or (H, W, C)
    rows: int | None = None  # synthetic: how many to make; files: only the first so many
    fold: int | None = None  # tfd: 1 to 5
    seed: int = 0  # synthetic data
    holdout: float | int = 0.1  # part (below 1) or number of rows kept for validation
    memory_limit: int = 512 * 2**20  # bytes; larger data is read from disk in blocks
    normalise: str = "auto"  # auto | none | unit | standard

    def __post_init__(self) -> None:
        _one_of("missing", self.missing, MISSING)
        _one_of("normalise", self.normalise, NORMALISERS)
        if self.rows is not None and self.rows < 2:
            raise RecipeError(f"data.rows is {self.rows}; at least 2 rows are needed.")
        if self.memory_limit < 1:
            raise RecipeError(f"data.memory_limit is {self.memory_limit}; it counts bytes.")
        if self.seed < 0:
            raise RecipeError(f"data.seed is {self.seed}; a seed is 0 or more.")
        if self.image is not None and (len(self.image) not in (2, 3) or min(self.image) < 1):
            raise RecipeError(f"data.image is {list(self.image)}; it is [H, W] or [H, W, C].")
        _check_holdout(self.holdout)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise RecipeError(f"data.{name} is {value!r}; it may be one of {', '.join(allowed)}.")


def _check_holdout(holdout: float | int) -> None:
    whole = isinstance(holdout, int)
    if (whole and holdout < 1) or (not whole and not 0 < holdout < 1):
        raise RecipeError(
            f"data.holdout is {holdout}; it is a part between 0 and 1 (0.1) "
            "or a whole number of rows (500)."
        )
