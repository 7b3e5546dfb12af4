"""What can go wrong in the trainer, and who is told.

    Exception
    └── TrainerError          one clear sentence for the person at the terminal
        ├── RecipeError       a setting that does not exist or cannot be
        ├── DataError         the data cannot be read, or cannot be learnt from
        ├── TrainingError     the fit itself failed: the loss turned NaN ...
        ├── ExportError       the artefact could not be made or verified
        └── RunFolderError    the output: unwritable, disk full, already exists

The command line prints the sentence and exits with 2. Anything outside this tree is a
bug of ours and keeps its traceback.
"""


class TrainerError(Exception):
    """A failure with one sentence that says what is wrong and how to go on."""


class RecipeError(TrainerError):
    """A setting that does not exist, or a value it cannot have."""


class DataError(TrainerError):
    """Data that cannot be read, or cannot be learnt from."""


class TrainingError(TrainerError):
    """A fit that cannot go on."""


class ExportError(TrainerError):
    """An artefact that could not be made or verified."""


class RunFolderError(TrainerError):
    """A folder that cannot be written: no permission, no space, already there."""
