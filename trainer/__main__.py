"""The commands fit, evaluate, export and data, as `localmoments fit` or `python -m trainer fit`.

This module parses the command line. It imports neither torch nor onnxruntime, so that --help and a
mistake on the command line are answered at once.
"""

import argparse
import os
import sys
from pathlib import Path

from localmoments.cpus import available_cpus
from localmoments.errors import LocalMomentsError
from trainer.errors import TrainerError
from trainer.interrupts import Interrupted, install_interrupt_handler

EXAMPLES = {
    "fit": """examples:
  {prog} measurements.csv                       choose settings for the data, train, export
  {prog} mnist-dae --data mnist.npz             use a shipped recipe
  {prog} my.toml --set training.epochs=50 --name wider
  {prog} --resume runs/my/1                     continue after an interruption

A data set that is known by name (mnist, frey, olivetti, tfd) is not part of the package: give its
file with --data, or its folder in LOCALMOMENTS_DATA.
""",
    "evaluate": """examples:
  {prog} measurements                           the newest version in models/
  {prog} models/mnist-dae/1 --test t10k.npz     with an official test set
  {prog} measurements --quick
""",
    "export": """examples:
  {prog} runs/measurements/1                    the weights of a run
  {prog} models/measurements/1                  the weights of an artefact, as a new version
""",
    "data": """examples:
  {prog} measurements.csv
  {prog} measurements.csv --set data.missing=drop
""",
}

DESCRIPTIONS = {
    "fit": "Train a model on your data and export it to MODELS/NAME/VERSION.",
    "evaluate": "Measure a model on held-out rows and write the results to its manifest and card.",
    "export": "Export the weights of a run, or of an artefact, as a new version of the model.",
    "data": "Show what the trainer reads from a data set: rows, columns, ranges, normalisation.",
}


def make_parser(command: str, prog: str) -> argparse.ArgumentParser:
    """The parser of one command's arguments."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=DESCRIPTIONS[command],
        epilog=EXAMPLES[command].format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ADD_ARGUMENTS[command](parser)
    return parser


def _add_fit_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE",
        help="a data file, a .toml file, the name of a shipped recipe, or a model's folder",
    )
    p.add_argument("--data", metavar="PATH", help="the data, if RECIPE does not name it")
    p.add_argument("--name", help="the name of the model (default: that of RECIPE)")
    _add_settings(p)
    p.add_argument(
        "--resume",
        nargs="?",
        const="",
        default=None,
        metavar="RUN",
        help="continue a run: its folder, or without RUN the newest one with this name",
    )
    p.add_argument("--runs", type=Path, default=Path("runs"), help="folder of runs (%(default)s)")
    _add_models(p)


def _add_evaluate_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("artefact", metavar="MODEL", help="a model's folder, its name, or name@version")
    p.add_argument("--data", metavar="PATH", help="the training data, if it has moved")
    p.add_argument(
        "--test",
        metavar="PATH",
        help="use all rows of this file, such as an official test set, instead of held-out rows",
    )
    p.add_argument(
        "--quick", action="store_true", help="use fewer samples, no scale search and no k-means"
    )
    p.add_argument(
        "--search",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="choose the default scale of each kernel by the distance of its samples to validation "
        "rows, except for the scales in the recipe (default: yes)",
    )
    _add_models(p)


def _add_export_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "run",
        metavar="RUN",
        help="the folder of a run, such as runs/mnist-dae/1, or of an artefact, such as "
        "models/mnist-dae/1",
    )
    p.add_argument("--data", metavar="PATH", help="the data of an artefact, if it has moved")
    _add_models(p)


def _add_data_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("source", metavar="SOURCE", help="a file, a folder, or a known data set")
    p.add_argument("--data", metavar="PATH", help="the file of a known data set")
    _add_settings(p)


def _add_settings(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting of the recipe, such as training.epochs=50; repeatable",
    )


def _add_models(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--models", type=Path, default=Path("models"), help="folder of models (%(default)s)"
    )


ADD_ARGUMENTS = {
    "fit": _add_fit_arguments,
    "evaluate": _add_evaluate_arguments,
    "export": _add_export_arguments,
    "data": _add_data_arguments,
}


def fit(argv: list[str], prog: str) -> int:
    """`localmoments fit`; returns the exit status."""
    return _start("fit", argv, prog)


def evaluate(argv: list[str], prog: str) -> int:
    """`localmoments evaluate`; returns the exit status."""
    return _start("evaluate", argv, prog)


def export(argv: list[str], prog: str) -> int:
    """`localmoments export`; returns the exit status."""
    return _start("export", argv, prog)


def data(argv: list[str], prog: str) -> int:
    """`localmoments data`; returns the exit status."""
    return _start("data", argv, prog)


def _start(command: str, argv: list[str], prog: str) -> int:
    # These are read when the libraries are loaded. Threads that spin while they wait make a step
    # several times slower on a shared machine; onnxruntime otherwise sends telemetry.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # torch and NumPy would otherwise start a thread for every CPU of the machine, in spite of the
    # quota of a container.
    os.environ.setdefault("OMP_NUM_THREADS", str(available_cpus()))
    install_interrupt_handler()
    return run(command, argv, prog)


def run(command: str, argv: list[str], prog: str) -> int:
    """Parse the arguments, run the command, and turn its errors into an exit status."""
    args = make_parser(command, prog).parse_args(argv)
    try:
        from trainer import commands  # after parsing: reading data takes a second to import

        commands.COMMANDS[command](args)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except Interrupted as interrupted:
        print(interrupted, file=sys.stderr)
        return 130
    except (TrainerError, LocalMomentsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def main() -> int:
    """`python -m trainer COMMAND ...`"""
    parser = argparse.ArgumentParser(
        prog="python -m trainer",
        usage="python -m trainer [--help] COMMAND ...",
        description="\n".join(f"{name:<10}{text}" for name, text in DESCRIPTIONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=DESCRIPTIONS, help=argparse.SUPPRESS)
    command = parser.parse_args(sys.argv[1:2]).command
    return _start(command, sys.argv[2:], f"python -m trainer {command}")


if __name__ == "__main__":
    sys.exit(main())
