"""Looking at a data file starts fast: the data package does not load the training stack."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
HEAVY = {"torch", "onnx", "onnxscript", "onnxruntime", "sklearn", "arviz_stats", "matplotlib"}


def loaded_by(program: str, *arguments: str) -> set[str]:
    """Return the top-level modules in a new interpreter after it has run `program`."""
    report = "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    program = f"import json, sys\n{program}\n{report}"
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_importing_the_package_does_not_load_the_training_stack() -> None:
    loaded = loaded_by("import trainer.data")
    assert "trainer" in loaded and not loaded & (HEAVY | {"scipy"})


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_describing_a_file_does_not_load_the_training_stack(tmp_path: Path, suffix: str) -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    path = tmp_path / f"x.{suffix}"
    if suffix == "csv":
        np.savetxt(path, x, delimiter=",")
    else:
        np.savez(path, x=x)
    program = """
import sys
from trainer.data import DataOptions, describe, inspect_rows, load, split
options = DataOptions(sys.argv[1])
dataset = load(options)
print(describe(dataset, inspect_rows(dataset, options, split(dataset, options).train)))
"""
    assert not loaded_by(program, str(path)) & HEAVY
