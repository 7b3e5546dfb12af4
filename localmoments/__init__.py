"""Samples and local moments of your data, from trained auto-encoders.

>>> import localmoments
>>> model = localmoments.load("models/digits-dae")
>>> x = model.sample(4, seed=1)
>>> x.shape
(4, 64)
>>> model.moments(x[0], rank=2).eigenvalues.shape
(2,)

The public names are those in `__all__`. They are imported when they are first used, so that
`import localmoments` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localmoments.chain_state import Clamp
    from localmoments.errors import (
        ArtefactError,
        DivergedError,
        InputError,
        LocalMomentsError,
        UnusableAnswerError,
    )
    from localmoments.model import Model, Reconstruction, load
    from localmoments.moments import Moments
    from localmoments.trust import Trust

__all__ = [
    "ArtefactError",
    "Clamp",
    "DivergedError",
    "InputError",
    "LocalMomentsError",
    "Model",
    "Moments",
    "Reconstruction",
    "Trust",
    "UnusableAnswerError",
    "load",
]

_MODULES = {
    "ArtefactError": "errors",
    "Clamp": "chain_state",
    "DivergedError": "errors",
    "InputError": "errors",
    "LocalMomentsError": "errors",
    "Model": "model",
    "Moments": "moments",
    "Reconstruction": "model",
    "Trust": "trust",
    "UnusableAnswerError": "errors",
    "load": "model",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'localmoments' has no attribute {name!r}")
    value = getattr(import_module(f"localmoments.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
