"""Measure the service next to its peers, on this machine, in one run.

    python benchmarks/serving/run.py [--only NAME ...] [--quick] [--peers NAME ...]
                                     [--previous CHECKOUT] [--models FOLDER] [--venvs FOLDER]

Results go to benchmarks/results: serving.json, serving.md and two plots. Scenarios that are left
out by --only keep their earlier results. --quick runs one round of one second, to see that
everything works; its results go to a separate folder. docs/benchmarks.md describes the scenarios.
"""

import argparse
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy has one thread, as in the service
sys.path[0] = str(Path(__file__).resolve().parents[1])  # for `serving`, `measure` and `report`
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # for `localmoments` and the others

from measure import Figure, describe_machine  # noqa: E402

from localmoments.cpus import available_cpus  # noqa: E402
from serving import artefacts, report  # noqa: E402
from serving.chains import measure_chains, measure_first_sample, measure_walkers  # noqa: E402
from serving.infer import compare_infer_with_npy  # noqa: E402
from serving.many_chains import measure_idle_chains, measure_streams  # noqa: E402
from serving.overload import measure_overload  # noqa: E402
from serving.roster import PREVIOUS, ROSTER, Setup  # noqa: E402
from serving.rows import compare_servers, measure_generator, measure_limits  # noqa: E402
from serving.servers import ROOT, read_all_versions  # noqa: E402
from serving.stan import compare_with_stan  # noqa: E402
from serving.tangents import measure_tangents  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
Scenario = Callable[[Setup, int, float], Iterator[Figure]]
SCENARIOS: dict[str, Scenario] = {
    "generator": measure_generator, "limits": measure_limits, "overload": measure_overload,
    "chains": measure_chains, "walkers": measure_walkers, "first": measure_first_sample,
    "tangents": measure_tangents, "infer": compare_infer_with_npy,
    "streams": measure_streams, "idle": measure_idle_chains, "stan": compare_with_stan,
}  # fmt: skip
NAMES = ["rows", *SCENARIOS]


def main() -> None:
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are stopped
    with tempfile.TemporaryDirectory(prefix="lm-bench-models-") as folder:
        setup = make_setup(args, Path(folder))
        body = report.read_results(args.out / "serving.json")
        chosen = args.only or NAMES
        for name in chosen:
            print(f"== {name}", flush=True)
            body[name] = measure(name, setup, args) | describe_run(setup, args)
            body["versions"] = read_all_versions(args.venvs)
            report.write_results(args.out, body, NAMES)
    print(report.format_markdown({name: body[name] for name in chosen}))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the service next to its peers.")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME",
                        help="scenarios: " + ", ".join(NAMES))  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="one round of one second")
    parser.add_argument("--peers", nargs="+", choices=[p.name for p in ROSTER], metavar="NAME",
                        help="servers of `rows`: " + ", ".join(p.name for p in ROSTER))  # fmt: skip
    parser.add_argument("--previous", type=Path, metavar="CHECKOUT",
                        help="also measure the service of this checkout")  # fmt: skip
    parser.add_argument("--models", type=Path, help="folder with one model (default: train one)")
    parser.add_argument("--venvs", type=Path, default=ROOT / ".venv-bench",
                        help="virtual environments of the peers")  # fmt: skip
    parser.add_argument("--threads", type=int, default=available_cpus(),
                        help="threads of onnxruntime in every server (default: CPUs)")  # fmt: skip
    parser.add_argument("--wait-ms", type=float, default=2.0, help="batching timeout of the peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a measurement")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE",
                        help="settings of our service, such as max_rows=256")  # fmt: skip
    parser.add_argument("--out", type=Path, help="folder for the results")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds = 1, 1.0
    args.out = args.out or (args.venvs / "quick" if args.quick else RESULTS)
    return args


def make_setup(args: argparse.Namespace, folder: Path) -> Setup:
    """Train the model, unless there is one, and collect what all servers share."""
    models = args.models or folder
    if args.models is None:
        artefacts.make_deep(models)
    [artefact] = [path.parent for path in sorted(models.glob("*/*/manifest.json"))][-1:]
    return Setup(
        models=models,
        artefact=artefact,
        venvs=args.venvs,
        threads=args.threads,
        wait_seconds=args.wait_ms / 1e3,
        settings=dict(each.split("=", 1) for each in args.set),
        previous=args.previous and args.previous.absolute(),
    )


def measure(name: str, setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    """Measure a scenario; if it fails, report why and go on with the others."""
    try:
        if name == "rows":
            participants = [
                p for p in ROSTER
                if (not args.peers or p.name in args.peers)
                and (p.name != PREVIOUS or setup.previous is not None)
            ]  # fmt: skip
            return compare_servers(setup, participants, args.rounds, args.seconds)
        figures = []
        for figure in SCENARIOS[name](setup, args.rounds, args.seconds):
            print(f"{figure.name}: {figure.median:.4g} {figure.unit} {figure.target}", flush=True)
            figures.append(figure.to_dict())
        return {"figures": figures}
    except Exception as error:
        traceback.print_exc()
        return {"unavailable": f"{type(error).__name__}: {error}", "figures": []}


def describe_run(setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    """Return the options and the machine, to be stored with each scenario."""
    options = {"rounds": args.rounds, "seconds": args.seconds, "threads": setup.threads,
               "max_batch": setup.max_batch, "wait_seconds": setup.wait_seconds,
               "settings": dict(setup.settings), "model": setup.artefact.parent.name}  # fmt: skip
    return {"how": options, "machine": describe_machine()}


if __name__ == "__main__":
    main()
