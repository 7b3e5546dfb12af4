"""From anyone's data to rows of float32: read, split, look at the values, normalise."""

from trainer.data.dataset import Dataset
from trainer.data.describe import describe
from trainer.data.inspection import Examination, examine
from trainer.data.known_laws import GaussianMixture, Spiral, Truth
from trainer.data.load import load
from trainer.data.options import DataOptions
from trainer.data.source import ArraySource, NpySource, Source
from trainer.data.split import Split, record_split, split

__all__ = [
    "ArraySource",
    "DataOptions",
    "Dataset",
    "Examination",
    "GaussianMixture",
    "NpySource",
    "Source",
    "Spiral",
    "Split",
    "Truth",
    "describe",
    "examine",
    "load",
    "record_split",
    "split",
]
