"""Which requests are in a hurry: those for rows to be reconstructed, in either protocol, and those
for samples, whose first one should soon be there.

Graphs and chains of the inference protocol, which have a colon in their names, may take their time.
Samples count by their rows in the engine, not at the gate.
"""

import re

from starlette.types import Scope

from service.http.middleware import Hurry
from service.oip import infer
from service.routes import reconstruct, sample

EXACT = {("POST", "/reconstruct"): Hurry("/reconstruct", reconstruct.at_once)}
SAMPLE = Hurry("/sample", sample.at_once, gated=False)
INFER = re.compile(r"/v2/models/(?P<model>[^/]+)(/versions/(?P<version>[^/]+))?/infer")
NEWEST, VERSION = (Hurry(path, infer.run) for path in (infer.PATH, infer.PATH_OF_VERSION))


def hurried(scope: Scope) -> Hurry | None:
    method, path = scope["method"], scope["path"]
    if path == "/sample":
        return SAMPLE if method == "POST" and not _has_key(scope) else None
    found = EXACT.get((method, path))
    if found is not None or method != "POST" or not path.endswith("/infer"):
        return found
    match = INFER.fullmatch(path)
    if match is None or ":" in match["model"]:
        return None
    named = {name: value for name, value in match.groupdict().items() if value is not None}
    scope["path_params"] = named
    return VERSION if "version" in named else NEWEST


def _has_key(scope: Scope) -> bool:
    """A header that FastAPI checks."""
    return any(name == b"idempotency-key" for name, _ in scope["headers"])
