"""How fast the service is beside its peers, on this machine, in one run.

    python benchmarks/serving/run.py [--only NAME ...] [--quick] [--peers NAME ...]
                                     [--models FOLDER] [--venvs FOLDER] [--threads 2] [--rounds 5]

Every scenario's figures go to benchmarks/results/serving.json, serving.md and two pictures; with
--only the other scenarios' entries stay as they were. --quick is one short round to see that all
runs; its figures go to a folder of their own.
"""

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # for `serving` and what training shares
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # for `service` and `trainer`

from interleave import Figure  # noqa: E402
from machine import machine  # noqa: E402

from localmoments.cpus import available_cpus  # noqa: E402
from serving import (  # noqa: E402
    artefacts,
    ceiling,
    chains,
    first,
    idle,
    limits,
    many,
    overload,
    report,
    results,
    rows,
    stan,
    tangents,
    walkers,
)
from serving.roster import ROSTER, Setup  # noqa: E402
from serving.venvs import PACKAGES, STAMP, Venv  # noqa: E402

RESULTS = Path(__file__).resolve().parents[1] / "results"
ROOT = Path(__file__).resolve().parents[2]
Scenario = Callable[[Setup, int, float], Iterator[Figure]]
SCENARIOS: dict[str, Scenario] = {
    "ceiling": ceiling.figures, "limits": limits.figures, "chains": chains.figures,
    "walkers": walkers.figures, "first": first.figures, "tangents": tangents.figures,
    "many": many.figures, "overload": overload.figures, "idle": idle.figures, "stan": stan.figures,
}  # fmt: skip
NAMES = ("rows", *SCENARIOS)


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="lm-bench-models-") as made:
        setup = _setup(args, Path(made))
        found: dict[str, Any] = {}
        for name in args.only or NAMES:
            print(f"== {name}", flush=True)
            found[name] = _stamped(_measured(name, setup, args), setup, args)
            _write(found, args.out, args.venvs)
    print(report.markdown(found))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the service beside its peers.")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="one round of a second each")
    parser.add_argument("--peers", nargs="+", choices=[c.name for c in ROSTER], metavar="NAME",
                        help="servers of `rows`: " + ", ".join(c.name for c in ROSTER))  # fmt: skip
    parser.add_argument("--models", type=Path, help="folder with one deep model; else one is made")
    parser.add_argument("--venvs", type=Path, default=ROOT / ".venv-bench", help="peers' packages")
    parser.add_argument("--threads", type=int, default=available_cpus(),
                        help="onnxruntime's, for every server; else one a CPU")  # fmt: skip
    parser.add_argument("--wait-ms", type=float, default=2.0, help="batch timeout of the peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE",
                        help="settings of our service, as max_rows=256")  # fmt: skip
    parser.add_argument("--out", type=Path, help="folder for the figures")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds = 1, 1.0
    args.out = args.out or (args.venvs / "quick" if args.quick else RESULTS)
    return args


def _setup(args: argparse.Namespace, made: Path) -> Setup:
    models = args.models or made
    if args.models is None:
        artefacts.deep(models)
    [artefact] = [path.parent for path in sorted(models.glob("*/*/manifest.json"))][-1:]
    settings = tuple(tuple(each.split("=", 1)) for each in args.set)
    return Setup(models, artefact, args.venvs, args.threads, 64, args.wait_ms / 1e3, settings)


def _measured(name: str, setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    try:
        if name == "rows":
            taking = [c for c in ROSTER if not args.peers or c.name in args.peers]
            found = rows.rounds(setup, taking, args.rounds, args.seconds)
            return results.of_rows(taking, found)
        figures = []
        for figure in SCENARIOS[name](setup, args.rounds, args.seconds):
            print(f"{figure.name}: {figure.median:.4g} {figure.unit} {figure.target}", flush=True)
            figures.append(figure.as_dict())
        return {"figures": figures}
    except Exception as error:  # said in the results, and the other scenarios go on
        traceback.print_exc()
        return {"unavailable": f"{type(error).__name__}: {error}", "figures": []}


def _stamped(body: dict[str, Any], setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    """With all that it takes to compare it with another."""
    how = {"rounds": args.rounds, "seconds": args.seconds, "threads": setup.threads,
           "max_batch": setup.max_batch, "wait_seconds": setup.wait_seconds,
           "settings": dict(setup.settings), "model": setup.artefact.parent.name}  # fmt: skip
    return {**body, "how": how, "machine": machine()}


def _write(found: dict[str, Any], out: Path, venvs: Path) -> None:
    body = results.merged(out / "serving.json", found) | {"versions": versions(venvs)}
    results.write(out / "serving.json", body)
    scenarios = {name: body[name] for name in NAMES if name in body}
    (out / "serving.md").write_text(report.markdown(scenarios), encoding="utf-8")
    report.draw(scenarios, out)


def versions(venvs: Path) -> dict[str, dict[str, str]]:
    """The packages that matter, of every peer that is installed."""
    there = {peer: Venv(venvs / peer) for peer in PACKAGES if (venvs / peer / STAMP).exists()}
    return {peer: venv.versions(PACKAGES[peer]) for peer, venv in there.items()}


if __name__ == "__main__":
    main()
