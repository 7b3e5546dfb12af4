"""What fixes a chain for good: everything about it but its state. Kept beside the state as JSON."""

import base64
import hashlib
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import orjson

from service.core.manifest import WEIGHTS, Manifest
from service.engine.chain import Clamp, Walk

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
    request: str = ""  # digest of an idempotent request that opened the chain

    @property
    def walk(self) -> Walk:
        return Walk(self.kernel, self.seed, self.scale, self.floor, self.clamp)


def fingerprint(manifest: Manifest) -> str:
    """Changes when a weight or a graph does, but not with the card or the figures."""
    names = {WEIGHTS, *(graph.file for graph in manifest.graphs.values())}
    return digest([manifest.files[name] for name in sorted(names)])


def digest(value: Any) -> str:
    """A short name for a value that JSON can hold."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    return hashlib.sha256(text).hexdigest()[:32]


def dumps(plan: Plan) -> bytes:
    clamp = plan.clamp and {
        "mask": _packed(np.packbits(plan.clamp.mask)),
        "values": _packed(plan.clamp.values.astype("<f4")),
        "shape": plan.clamp.values.shape,
    }
    return orjson.dumps({"format": FORMAT, **asdict(replace(plan, clamp=None)), "clamp": clamp})


def loads(body: bytes) -> Plan:
    fields = orjson.loads(body)
    if fields.pop("format") != FORMAT:
        raise ValueError("the plan was written by another version of this software")
    clamp = fields.pop("clamp")
    scale = tuple(fields.pop("scale"))
    return Plan(**fields, scale=scale, clamp=clamp and _clamp(**clamp))


def _clamp(mask: str, values: str, shape: tuple[int, int]) -> Clamp:
    bits = np.frombuffer(base64.b64decode(mask), np.uint8)
    known = np.unpackbits(bits, count=shape[1]).astype(bool)
    array = np.frombuffer(base64.b64decode(values), "<f4").reshape(shape)
    return Clamp(known, array.astype(np.float32))


def _packed(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
