"""The trainer as a person meets it: commands typed in a folder, in processes that can be killed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from localmoments import artefact as manifests
from localmoments.artefact import START_POINTS, Manifest
from trainer import checkpoint
from trainer.__main__ import make_parser, run
from trainer.commands import start_run
from trainer.fit import fit
from trainer.prepare import prepare
from trainer.run_folder import RunFolder

TINY = (
    "training.epochs=4", "training.batch=64", "model.hidden=[16]", "sampling.start_points=9",
    "sampling.root=jacobian",  # a matrix root takes many times longer to export
)  # fmt: skip


@dataclass
class Shell:
    """Runs `localmoments ...` in a folder; kills at the end whatever is still running."""

    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, folder: Path, *words: object, stderr: int = subprocess.PIPE):
        process = subprocess.Popen(
            [sys.executable, "-m", "localmoments.cli", *map(str, words)],
            cwd=folder, text=True, stdout=subprocess.PIPE, stderr=stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # processes beside each other wait less
        )  # fmt: skip
        self.running.append(process)
        return process

    def run(self, folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
        process = self.start(folder, *words)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def kill(self, process: subprocess.Popen[str], number: int = signal.SIGKILL) -> str:
        """The signal, and what the process said by its end."""
        process.send_signal(number)
        return process.communicate(timeout=60)[1]


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    shell = Shell()
    yield shell
    for process in shell.running:
        process.kill()
        process.communicate()


def settings(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Settings that train in a moment."""
    return settings(*TINY)


@pytest.fixture(scope="session")
def setting() -> Callable[..., list[str]]:
    return settings


def wait_until(condition: Callable[[], object], process=None, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.005)


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    return wait_until


def write_table(path: Path, rows: int = 600, seed: int = 0) -> Path:
    x = np.random.default_rng(seed).normal(size=(rows, 3)) * [1, 2, 30] + [0, 5, -500]
    np.savetxt(path, x, delimiter=",", header="height,width,depth", comments="", fmt="%.9g")
    return path


@pytest.fixture(scope="session")
def table() -> Callable[..., Path]:
    return write_table


@dataclass(frozen=True)
class Fitted:
    """A folder in which `fit table.csv` ran to its end, never disturbed."""

    folder: Path
    stderr: str

    @property
    def artefact(self) -> Path:
        return self.folder / "models/table/1"

    @property
    def run(self) -> Path:
        return self.folder / "runs/table/1"


@pytest.fixture(scope="session")
def fitted(shell: Shell, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("fitted")
    write_table(folder / "table.csv")
    done = shell.run(folder, "fit", "table.csv", *tiny)
    assert done.returncode == 0, done.stderr
    return Fitted(folder, done.stderr)


def read_checkpoint(run: Path):
    """(state, {group/name: bytes}) of a run's folder."""
    with tempfile.TemporaryDirectory() as folder:  # the run may replace its own meanwhile
        copy = shutil.copy(run / "checkpoint.safetensors", folder)
        state, groups = checkpoint.load(Path(copy))
    return state, {f"{g}/{k}": v.numpy().tobytes() for g, w in groups.items() for k, v in w.items()}


@pytest.fixture(scope="session")
def saved() -> Callable[..., object]:
    return read_checkpoint


def go_on(run: Path) -> None:
    """Train to the end in this process, without the export that would follow."""
    recipe = RunFolder(run).read_recipe()
    fit(recipe, prepare(recipe), RunFolder(run))


@pytest.fixture(scope="session")
def resume() -> Callable[[Path], None]:
    return go_on


@pytest.fixture(scope="session")
def train() -> Callable[..., Path]:
    """`fit` in this process and without an export; the run's folder."""

    def begin(folder: Path, *words: str) -> Path:
        with contextlib.chdir(folder):
            args = make_parser("fit", "localmoments fit").parse_args(list(words))
            folder = folder / start_run(args)[2].path
            go_on(folder)
        return folder

    return begin


def is_finished(run: Path) -> bool:
    try:
        with safe_open(run / "checkpoint.safetensors", framework="np") as file:
            return '"finished": true' in file.metadata()["state"]
    except FileNotFoundError:
        return False


@pytest.fixture(scope="session")
def finished() -> Callable[[Path], bool]:
    return is_finished


@pytest.fixture(scope="session")
def verified() -> Callable[[Path], Manifest]:
    """The manifest of a whole artefact; raises where anything is missing or altered."""

    def read(folder: Path) -> Manifest:
        manifest = manifests.read(folder)
        manifests.verify(folder, manifest)
        return manifest

    return read


@pytest.fixture(scope="session")
def weights() -> Callable[[Path], dict[str, bytes]]:
    """An artefact's weights, without the start points."""

    def read(folder: Path) -> dict[str, bytes]:
        with safe_open(folder / "weights.safetensors", framework="np") as file:
            names = [name for name in file.keys() if name != START_POINTS]  # noqa: SIM118
            return {name: file.get_tensor(name).tobytes() for name in names}

    return read


@pytest.fixture
def typed(tmp_path, monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    """A command in this process, in tmp_path: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def type_in(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        command, *rest = [str(word) for word in words]
        code = run(command, rest, f"localmoments {command}")
        return (code, *capfd.readouterr())

    return type_in


@pytest.fixture
def refused(typed) -> Callable[..., str]:
    """What a command says that must end with exit code 2, one sentence and no litter."""

    def run(*words: object, folder: Path | None = None) -> str:
        code, _, err = typed(*words)
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert (code, len(lines)) == (2, 1), err
        assert err.splitlines()[-1] == lines[0] and lines[0][-1] in ".?", err
        assert litter(folder or Path.cwd()) == []
        return lines[0]

    return run


def litter(folder: Path) -> list[Path]:
    """Half-written files, and anything that looks like a model's version."""
    hidden = [p for p in folder.rglob(".*") if p.name != ".lock"]
    return hidden + list((folder / "models").rglob("*"))


@pytest.fixture
def disk(tmp_path) -> Iterator[Callable[..., Path]]:
    """A small file system of its own: `disk("64k")`, and `disk("remount,ro")` closes it."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def mount(options: str) -> Path:
        nonlocal mounted
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if os.geteuid() != 0 or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("only root may mount a small file system to fill")
        mounted = True
        return place

    yield mount
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
