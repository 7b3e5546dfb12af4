"""`fit FILE` reads its data once, although it looks at the data before it chooses a recipe.

So does `fit FILE --resume`, although it compares the recipe with that of the run.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[3]
COUNT = """
import json, sys
from trainer.__main__ import make_parser
from trainer.commands import continue_run, start_run
from trainer.data import DataOptions, load

path, folder = sys.argv[1:]
opened = []
sys.addaudithook(lambda event, args: event == "open" and str(args[0]) == path and opened.append(1))


def parse(*words):
    words = (path, "--runs", folder, "--models", folder, *words)
    return make_parser("fit", "localmoments fit").parse_args(words)


def count(action):
    opened.clear()
    action()
    return len(opened)


once = count(lambda: load(DataOptions(path)))
first = count(lambda: start_run(parse()))
print(json.dumps([once, first, count(lambda: continue_run(parse("--resume")))]))
"""


def test_fit_and_resume_open_their_file_as_often_as_loading_it_does(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(300, 4)))
    run = subprocess.run(
        [sys.executable, "-c", COUNT, str(tmp_path / "rows.npz"), str(tmp_path / "out")],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=200,
    )  # fmt: skip
    once, first, resumed = json.loads(run.stdout.splitlines()[-1])
    assert once > 0 and first == resumed == once
