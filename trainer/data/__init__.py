"""Data for training: read any file into rows of numbers, split them, inspect their values.

`load(options)` returns a `Dataset`, `split` chooses its validation rows, and `inspect_rows`
computes statistics and chooses the normaliser. Importing this package does not import torch.
"""

from trainer.data.dataset import DataOptions, Dataset
from trainer.data.inspection import Inspection, describe, inspect_rows
from trainer.data.readers import load
from trainer.data.sources import ArraySource, NpySource, Source
from trainer.data.split import Split, record_split, split
from trainer.data.synthetic import GaussianMixture, KnownLaw, Spiral

__all__ = [
    "ArraySource",
    "DataOptions",
    "Dataset",
    "GaussianMixture",
    "Inspection",
    "KnownLaw",
    "NpySource",
    "Source",
    "Spiral",
    "Split",
    "describe",
    "inspect_rows",
    "load",
    "record_split",
    "split",
]
