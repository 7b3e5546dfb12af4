"""A virtual environment for each peer, made once and kept.

Peers pin versions that exclude each other, and none of them belongs into the service's own
environment. A peer that does not install is reported with pip's last words.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGES: dict[str, tuple[str, ...]] = {
    "asgi": ("uvicorn", "httptools", "uvloop", "orjson", "onnxruntime", "numpy"),
    "plain": ("fastapi", "uvicorn[standard]", "pydantic", "onnxruntime", "numpy"),
    "litserve": ("litserve", "onnxruntime", "numpy"),
    "bentoml": ("bentoml", "onnxruntime", "numpy"),
    "mlserver": ("mlserver", "onnxruntime", "numpy"),
    "ray": ("ray[serve]", "onnxruntime", "numpy"),
    "httpstan": ("httpstan",),
}
STAMP = ".installed"


class PeerError(Exception):
    """A peer that cannot be installed, started or trusted here, and why."""


@dataclass(frozen=True)
class Venv:
    folder: Path

    def tool(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def versions(self, packages: tuple[str, ...]) -> dict[str, str]:
        names = [package.partition("[")[0] for package in packages]
        asks = "import json, sys, importlib.metadata as m; "
        asks += "print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
        found: dict[str, str] = json.loads(_run([self.tool("python"), "-c", asks, *names]))
        return found


def venv_of(peer: str, venvs: Path) -> Venv:
    """The peer's environment, made if it is not there; PeerError where that fails."""
    venv, wanted = Venv((venvs / peer).absolute()), " ".join(PACKAGES[peer])
    stamp = venv.folder / STAMP
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"Installing {wanted} into {venv.folder}, once ...", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(venv.folder)])
        pip = [venv.tool("python"), "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        _run([*pip, *PACKAGES[peer]])
        stamp.write_text(wanted)
    return venv


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        lines = lines or done.stderr.strip().splitlines()
        raise PeerError(f"{' '.join(command[-4:])}: {' '.join(lines[-3:])[-500:]}")
    return done.stdout
