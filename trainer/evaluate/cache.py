"""What `evaluate` makes of the data alone is kept, so that the next model need not wait for it.

Files are safetensors in `$XDG_CACHE_HOME/localmoments` (else `~/.cache/localmoments`), named after
the data's fingerprint and all that shaped them; deleting them costs time and nothing else.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainer.atomic_files import replace_file

Tensors = dict[str, Tensor]


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "localmoments"


def cached(kind: str, key: object, make: Callable[[], Tensors]) -> Tensors:
    """What `make` gives, or gave before for the same kind and key."""
    name = hashlib.sha256(repr((kind, key)).encode()).hexdigest()[:24]
    path = folder() / f"{kind}-{name}.safetensors"
    try:
        return load_file(path)
    except (OSError, SafetensorError):  # not there, or not whole: made anew
        made = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            save_file({k: v.contiguous() for k, v in made.items()}, temporary)
    except OSError:  # a cache that cannot be written is no reason to stop
        pass
    return made
