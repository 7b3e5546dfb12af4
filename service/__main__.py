"""`python -m service`: serve models over HTTP, or create an API key.

`localmoments serve` and `localmoments key` call the same functions. Everything slow to import is
imported after the arguments are parsed.
"""

# ruff: noqa: E402
import os

# Libraries read these variables when they are loaded. NumPy's linear algebra has a thread pool of
# its own, which spins on the CPUs that onnxruntime and the event loop need: with it, moments took
# 20 to 60 times as long on a busy machine. onnxruntime sends telemetry by default.
for library in ("OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import argparse
import contextlib
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from localmoments.errors import SettingsError
from localmoments.signals import ENDS, delay_signals
from service import settings as all_settings
from service.http.keys import SCOPES, new_key, read_keys
from service.listening import bind, warn_if_open
from service.settings import Settings

log = logging.getLogger(__name__)

SERVE_EXAMPLES = """examples:
  {prog} --port 8612 --models models
  {prog} --host 0.0.0.0 --keys-file keys.toml --redis-url redis://redis:6379
  LOCALMOMENTS_PORT=8612 {prog}

Each flag is also an environment variable and a line in .env: --log-level is LOCALMOMENTS_LOG_LEVEL.
A flag wins over the environment, and the environment over .env.
See also: {key} --help, which creates API keys.
"""
KEY_EXAMPLES = """examples:
  {prog} alice >> keys.toml
  {prog} prometheus --scopes admin >> keys.toml
"""
# The compute thread waits this long for the GIL. Python's default of 5 ms is longer than a pass.
SWITCH_SECONDS = 0.0001


def main(argv: Sequence[str] | None = None, prog: str = "python -m service") -> int:
    """Run `serve`, which is the default, or `key`; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["key"]:
        return key(words[1:], f"{prog} key")
    return serve(words[1:] if words[:1] == ["serve"] else words, prog)


def serve(argv: Sequence[str], prog: str = "localmoments serve") -> int:
    """Serve models until a signal arrives; return the exit code."""
    flags = vars(_make_serve_parser(prog).parse_args(argv))
    for number in ENDS:
        signal.signal(number, _exit_cleanly)
    try:
        return _serve({name: value for name, value in flags.items() if value is not None})
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def key(argv: Sequence[str], prog: str = "localmoments key") -> int:
    """Print a new entry for the keys file; print its secret, once, on standard error."""
    options = _make_key_parser(prog).parse_args(argv)
    try:
        secret, entry = new_key(options.name, options.scopes)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    words = f"The key of {options.name}. It is not stored, so copy it now:\n{secret}\n"
    print(words, file=sys.stderr, flush=True)
    print(entry)
    return 0


def _make_serve_parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [options]",
        description="Serve the models of a folder over HTTP.",
        epilog=SERVE_EXAMPLES.format(prog=prog, key=f"{prog.removesuffix(' serve')} key"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for title, names in all_settings.list_groups().items():
        group = parser.add_argument_group(title)
        for name in names:
            field = Settings.model_fields[name]
            text = (field.description or "").replace("%", "%%")
            if field.default not in (None, ()):
                text += f" Default: {field.default}."
            metavar = _make_metavar(field.annotation)
            group.add_argument(all_settings.make_flag(name), dest=name, metavar=metavar, help=text)
    return parser


def _make_metavar(annotation: object) -> str:
    """Return the placeholder for the value of a flag, by the type of its setting."""
    if annotation in (int, float):
        return "N"
    return "PATH" if annotation in (Path, Path | None) else "TEXT"


def _make_key_parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Create an API key: its entry for the keys file goes to standard output, the "
        "secret to standard error.",
        epilog=KEY_EXAMPLES.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="name of the key, for the log and the rate limits")
    parser.add_argument(
        "--scopes", nargs="+", choices=SCOPES, default=["read", "sample"],
        help="what the key allows. Default: read sample.",
    )  # fmt: skip
    return parser


def _serve(flags: dict[str, str]) -> int:
    settings = all_settings.load(flags)
    keys = read_keys(settings.keys_file)  # again in `create_app`; here, a fault stops the start
    if not settings.models.is_dir():
        raise SettingsError(
            f"The models folder {settings.models.absolute()} does not exist. Name another with "
            "--models or LOCALMOMENTS_MODELS."
        )
    listener = bind(settings.host, settings.port)
    for warning in all_settings.describe_unknown_variables():
        print(f"warning: {warning}", file=sys.stderr)
    from service.http.logging import configure

    configure(settings.log_level)
    if not keys:
        warn_if_open(listener)
    with _open_store(settings) as store_url:
        with delay_signals():  # an import of onnxruntime must not be interrupted by a signal
            from service.server import Server

        sys.setswitchinterval(SWITCH_SECONDS)
        server = Server(settings, listener, store_url)
        server.run(sockets=[listener])
        return 0 if server.started else 1


@contextlib.contextmanager
def _open_store(settings: Settings) -> Iterator[str]:
    """Yield the URL of the chain store; without a setting, run an embedded Valkey meanwhile."""
    if settings.redis_url is not None:
        yield settings.redis_url.get_secret_value()
        return
    from service.store.embedded import EmbeddedValkey

    valkey = EmbeddedValkey(settings.store_folder)
    url = valkey.start()
    log.info("an embedded Valkey stores chains in %s", settings.store_folder.absolute())
    try:
        yield url
    finally:
        valkey.stop()


def _exit_cleanly(number: int, frame: object) -> None:
    """uvicorn raises the signal again after its clean end; that is not a failure."""
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
