"""The `localmoments` command.

Each command names the function that runs it. The function is imported when the command is called,
so `localmoments --help` loads neither onnxruntime nor torch, and an installation without the
`serve` or `train` extra can still run the other commands.
"""

import argparse
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

Run = Callable[[list[str], str], int]  # (arguments, program name for usage messages) -> exit status


@dataclass(frozen=True)
class Command:
    """A command: what runs it, what it does, and the extras that it needs."""

    target: str  # "module:function" of another package, as text: the library imports neither
    summary: str
    purpose: str  # what the extras are for, in the message when they are missing
    extras: str


COMMANDS = {
    "serve": Command(
        "service.__main__:serve", "serve the models of a folder over HTTP", "serving", "serve,cpu"
    ),
    "fit": Command(
        "trainer.__main__:fit", "train a model on a file and export it", "training", "train,cpu"
    ),
    "evaluate": Command(
        "trainer.__main__:evaluate", "measure a model on held-out rows", "training", "train,cpu"
    ),
    "export": Command(
        "trainer.__main__:export", "export a trained model again", "training", "train,cpu"
    ),
    "data": Command(
        "trainer.__main__:data", "show what the trainer reads from a file", "training", "train,cpu"
    ),
    "key": Command("service.__main__:key", "create an API key", "serving", "serve,cpu"),
}

EXAMPLES = """examples:
  localmoments serve --port 8612 --models models
  localmoments fit measurements.csv
  localmoments evaluate measurements --quick
  localmoments data measurements.csv
  localmoments key alice >> keys.toml

`localmoments COMMAND --help` describes a command.
"""

OUR_PACKAGES = ("localmoments", "service", "trainer")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the words before the command; the command parses the rest itself."""
    width = max(map(len, COMMANDS))
    commands = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog="localmoments",
        usage="localmoments [--help] [--version] COMMAND ...",
        description="\n".join(
            ["Sample from your data and measure its local moments.", "", "commands:", *commands]
        ),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=version("localmoments"))
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the words after `localmoments`; those of this process by default.

    Returns:
        The exit status: 0 on success, 2 if the command line or the input is wrong.
    """
    words = sys.argv[1:] if arguments is None else arguments
    name = make_parser().parse_args(words[:1]).command
    try:
        return load(name)(words[1:], f"localmoments {name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in OUR_PACKAGES:
            raise  # a bug, not a missing extra
        print(f"error: {explain_missing(name, error)}", file=sys.stderr)
        return 2


def load(name: str) -> Run:
    """Import the function that runs a command."""
    module, _, function = COMMANDS[name].target.partition(":")
    run: Run = getattr(importlib.import_module(module), function)
    return run


def explain_missing(name: str, error: ModuleNotFoundError) -> str:
    """The sentence for a package that is not installed."""
    command = COMMANDS[name]
    return (
        f"`localmoments {name}` needs the {command.purpose} extra: "
        f"pip install 'localmoments[{command.extras}]' ({error.name} is not installed)."
    )


if __name__ == "__main__":
    sys.exit(main())
