"""python -m trainer: fit, export, evaluate, data."""

import argparse
import os
import sys
from pathlib import Path

from localmoments.errors import LocalMomentsError
from localmoments.signals import held_back
from trainer.errors import TrainerError
from trainer.interrupts import Interrupted, interruptible

EPILOG = """examples:
  python -m trainer fit measurements.csv                 look at the data, choose, train, export
  python -m trainer fit mnist-dae --data mnist.npz       a shipped recipe
  python -m trainer fit my.toml --set training.epochs=50 --name wider
  python -m trainer fit --resume runs/my/1               go on after a kill, bit for bit
  python -m trainer data measurements.csv                what the trainer sees in a file
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m trainer",
        description="Train contractive and denoising auto-encoders and export them for serving.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _fit(commands.add_parser("fit", help="train a model and export it"))
    _export(commands.add_parser("export", help="export a run or an artefact again"))
    _evaluate(commands.add_parser("evaluate", help="judge an artefact on held-out data"))
    _data(commands.add_parser("data", help="describe a data set"))
    return top


def _fit(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE",
        help="a .toml file, the name of a shipped recipe, a model's folder, or a data file",
    )
    p.add_argument("--data", metavar="PATH", help="the data, where the recipe does not say")
    p.add_argument("--name", help="the model's name, instead of the recipe's")
    _settings(p)
    p.add_argument(
        "--resume",
        nargs="?",
        const="",
        default=None,
        metavar="RUN",
        help="go on with a run's folder, or with the newest run of that name",
    )
    p.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    _models(p)  # fmt: skip


def _export(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "run",
        metavar="RUN",
        help="the folder of a run, such as runs/mnist-dae/1, or of an artefact, such as "
        "models/mnist-dae/1, whose weights are then exported as a new version",
    )
    p.add_argument("--data", metavar="PATH", help="an artefact's data, if it has moved")
    _models(p)


def _evaluate(p: argparse.ArgumentParser) -> None:
    p.add_argument("artefact", metavar="ARTEFACT", help="a model's folder, name, or name@version")
    p.add_argument("--data", metavar="PATH", help="the data, where the manifest's path is not here")
    p.add_argument(
        "--test",
        metavar="PATH",
        help="judge by all rows of this file, such as an official test set, instead of by "
        "held-out rows",
    )
    p.add_argument(
        "--quick", action="store_true", help="a fast look: fewer samples, no search, no k-means"
    )
    p.add_argument(
        "--search",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="choose each kernel's default scale by its samples' distance to validation rows "
        "(default: yes; the recipe's sampling.scales are left as they are)",
    )
    _models(p)


def _data(p: argparse.ArgumentParser) -> None:
    p.add_argument("source", metavar="SOURCE", help="a file, a folder, or a built-in name")
    p.add_argument("--data", metavar="PATH", help="where a built-in data set lies on disk")
    _settings(p)


def _settings(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one setting over the recipe's, such as training.epochs=50; repeatable",
    )


def _models(p: argparse.ArgumentParser) -> None:
    p.add_argument("--models", type=Path, default=Path("models"), help="where artefacts are kept")


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        with held_back():  # torch takes a second to import, and --help should not wait
            from trainer import commands

        getattr(commands, f"{args.command}_command")(args)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except Interrupted as saved:
        print(saved, file=sys.stderr)
        return 130
    except (TrainerError, LocalMomentsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    # Threads that spin while they wait make a step several times slower where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reports home otherwise
    interruptible()
    sys.exit(main())
