"""What fixes a chain for good: everything about it but its state. Kept beside the state as JSON."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import orjson

from localmoments.arrays import Floats
from localmoments.artefact import WEIGHTS, Manifest
from localmoments.transition import Clamp, Transition

FORMAT = 1


@dataclass(frozen=True)
class Plan:
    """Model, kernel and numbers, and the defaults of calls that do not say otherwise."""

    model: str  # name@version
    fingerprint: str  # of the files that compute
    kernel: str
    scale: tuple[float, ...]
    floor: float
    seed: int
    walkers: int
    burn_in: int
    thin: int
    emit: str  # "mean" or "noisy"
    start: str  # "data", "noise", or what the points were, in short
    clamp: Clamp | None = None
    metropolis: bool = False
    request: str = ""  # digest of an idempotent request that opened the chain

    @property
    def walk(self) -> Transition:
        return Transition(
            self.kernel, self.seed, self.scale, self.floor, self.clamp, self.metropolis
        )


def fingerprint(manifest: Manifest) -> str:
    """Changes when a weight or a graph does, but not with the card or the figures."""
    names = {WEIGHTS, *(graph.file for graph in manifest.graphs.values())}
    return digest([manifest.files[name] for name in sorted(names)])


def digest(value: Any) -> str:
    """A short name for a value that JSON can hold."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    return hashlib.sha256(text).hexdigest()[:32]


def dumps(plan: Plan) -> bytes:
    fields = {"format": FORMAT, **asdict(replace(plan, clamp=None))}
    if not plan.metropolis:
        del fields["metropolis"]  # so that replicas of the version before can read the plan
    clamp = plan.clamp and {
        "mask": _packed(np.packbits(plan.clamp.mask)),
        "values": _packed(plan.clamp.values.astype("<f4")),
        "std": _packed(plan.clamp.std.astype("<f4")),
        "shapes": [plan.clamp.mask.shape, plan.clamp.values.shape, plan.clamp.std.shape],
    }
    return orjson.dumps({**fields, "clamp": clamp})


def loads(body: bytes) -> Plan:
    fields = orjson.loads(body)
    if fields.pop("format") != FORMAT:
        raise ValueError("the plan was written by another version of this software")
    clamp = fields.pop("clamp")
    if clamp is not None and "std" not in clamp:
        raise ValueError(
            "it has a clamp of an earlier version, which did not sample the other columns given "
            "the known ones; start a new chain"
        )
    scale = tuple(fields.pop("scale"))
    return Plan(**fields, scale=scale, clamp=clamp and _clamp(**clamp))


def _clamp(mask: str, values: str, std: str, shapes: Sequence[tuple[int, int]]) -> Clamp:
    bits = np.frombuffer(base64.b64decode(mask), np.uint8)
    known = np.unpackbits(bits, count=shapes[0][0] * shapes[0][1]).astype(bool)
    return Clamp(known.reshape(shapes[0]), _floats(values, shapes[1]), _floats(std, shapes[2]))


def _floats(text: str, shape: tuple[int, int]) -> Floats:
    array = np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)
    return array.astype(np.float32)


def _packed(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
