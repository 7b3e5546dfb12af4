"""`fit FILE` reads its data once, although it looks at the data before it chooses a recipe."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[3]
COUNT = """
import json, sys
from localmoments.cli import main
from trainer.data import DataOptions, load

path, folder = sys.argv[1:]
opened = []
sys.addaudithook(lambda event, args: event == "open" and str(args[0]) == path and opened.append(1))
load(DataOptions(path))
once = len(opened)
# The wrong number of columns ends `fit` when it has prepared the data.
status = main(["fit", path, "--runs", folder, "--models", folder, "--set", "model.dims=99"])
print(json.dumps([status, once, len(opened) - once]))
"""


def test_fit_opens_its_file_as_often_as_loading_it_does(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(300, 4)))
    run = subprocess.run(
        [sys.executable, "-c", COUNT, str(tmp_path / "rows.npz"), str(tmp_path / "out")],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=200,
    )  # fmt: skip
    status, once, during_fit = json.loads(run.stdout.splitlines()[-1])
    assert status == 2 and "model.dims" in run.stderr
    assert once > 0 and during_fit == once
