"""docs/architecture.md names the files that four calls pass through. This test traces the calls.

The page has one section for each call of CALLS, with the call's name in the heading, and may have
one headed "Every HTTP call" for the files that all of them share. The files named in a section and
the files that really run must be the same. A file counts when one of its functions is called; code
that runs at import does not count.

    python tests/test_architecture.py

prints the files of each call, in the order in which they are first called.
"""

import asyncio
import importlib
import inspect
import pkgutil
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest
import torch

import localmoments
import trainer
from localmoments import cli
from service.app import create_app
from service.settings import Settings
from service.store.embedded import EmbeddedValkey

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/architecture.md"
PACKAGES = ("localmoments", "service", "trainer")
FILE = re.compile(rf"\b((?:{'|'.join(PACKAGES)})/[\w/]+\.py)\b")
SHARED = "Every HTTP call"

HTTP_CALLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "POST /sample": ("POST", "/sample", {"json": {"steps": 20, "seed": 1, "stream": True}}),
    "GET /moments": ("GET", f"/moments?rank=2&x={','.join(['0.5'] * 64)}", {}),
    "POST /reconstruct": ("POST", "/reconstruct", {"json": {"x": [[0.5] * 64]}}),
}
FIT = "localmoments fit"
CALLS = (*HTTP_CALLS, FIT)
QUICK = ("training.epochs=2", "sampling.start_points=9")  # settings of the traced `fit`


class Tracer:
    """Records the files of our packages whose functions are called, in the order of first call.

    Tracing works in threads that are started while it is installed. It uses `sys.settrace`, which
    reports Python calls alone; `sys.setprofile` would report every call of a C function as well.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}  # an ordered set
        self.is_recording = False
        self._foreign: set[str] = set()  # file names outside our packages

    @contextmanager
    def install(self) -> Iterator[None]:
        before = sys.gettrace()
        threading.settrace(self._handle)
        sys.settrace(self._handle)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)  # type: ignore[arg-type]

    def record(self, call: Callable[[], Any]) -> list[str]:
        """Return the files that `call` passes through."""
        self.files, self.is_recording = {}, True
        try:
            call()
        finally:
            self.is_recording = False
        return list(self.files)

    def pause(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` without tracing."""

        def run(*arguments: Any, **options: Any) -> Any:
            sys.settrace(None)
            try:
                return function(*arguments, **options)
            finally:
                sys.settrace(self._handle)

        return run

    def _handle(self, frame: FrameType, event: str, argument: object) -> None:
        """Note the file of a call. Returning None turns off the tracing of its lines."""
        name = frame.f_code.co_filename
        if name in self._foreign or not self.is_recording:
            return
        path = Path(name)
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in PACKAGES:
            self._foreign.add(name)
        elif frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # not the body of a module or class
            self.files.setdefault(path.relative_to(ROOT).as_posix())


def trace_http_calls(folder: Path) -> dict[str, list[str]]:
    """Trace each HTTP call against the application in this process, with an embedded store."""
    (folder / "models").mkdir()
    (folder / "models/digits-dae").symlink_to(ROOT / "models/digits-dae")
    settings = Settings(_env_file=None, models=folder / "models", threads=1, reload_seconds=0)
    valkey, tracer = EmbeddedValkey(folder / "store"), Tracer()
    url = valkey.start()
    try:
        with tracer.install(), asyncio.Runner() as runner:
            app = create_app(settings, url)
            lifespan = app.router.lifespan_context(app)
            runner.run(lifespan.__aenter__())
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(app=app), base_url="http://test", timeout=60
            )

            def send(method: str, path: str, body: dict[str, Any]) -> None:
                runner.run(client.request(method, path, **body)).raise_for_status()

            calls = {}
            for name, request in HTTP_CALLS.items():
                send(*request)  # what is imported or loaded by the first call does not count
                calls[name] = tracer.record(lambda request=request: send(*request))
            runner.run(client.aclose())
            runner.run(lifespan.__aexit__(None, None, None))
            return calls
    finally:
        valkey.stop()


def trace_fit(folder: Path) -> list[str]:
    """Trace `localmoments fit` on a small table, in this process."""
    for package in (localmoments, trainer):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    rows = "".join(f"{i % 7},{i * i % 11},{i % 5}\n" for i in range(200))
    (folder / "table.csv").write_text("a,b,c\n" + rows)
    arguments = ["fit", str(folder / "table.csv"), "--runs", str(folder / "runs")]
    arguments += ["--models", str(folder / "fitted")]
    arguments += [word for setting in QUICK for word in ("--set", setting)]
    tracer = Tracer()

    def fit() -> None:
        assert cli.main(arguments) == 0

    # Export makes millions of calls inside torch, and only calls code of ours that training has
    # called before.
    export, torch.onnx.export = torch.onnx.export, tracer.pause(torch.onnx.export)
    try:
        with tracer.install():
            return tracer.record(fit)
    finally:
        torch.onnx.export = export


def trace_calls(folder: Path) -> dict[str, list[str]]:
    """Return the files of each call of CALLS, in the order of first call."""
    return {**trace_http_calls(folder), FIT: trace_fit(folder)}


def read_page() -> dict[str, set[str]]:
    """Return the files that the page names for each call, and for SHARED if it has the section."""
    sections = re.split(r"^#+ ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    named: dict[str, set[str]] = {}
    for section in sections:
        heading, _, text = section.partition("\n")
        for name in (*CALLS, SHARED):
            if name.lower() in heading.lower().replace("`", ""):
                named[name] = set(FILE.findall(text))
    return named


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return trace_calls(tmp_path_factory.mktemp("a"))  # short: a socket's path has 108 characters


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_the_page_names_the_files_of_a_call(name: str, traced: dict[str, list[str]]) -> None:
    named = read_page()
    expected = named[name] | (named.get(SHARED, set()) if name != FIT else set())
    passed = set(traced[name])
    assert sorted(passed - expected) == [], f"{PAGE.name} does not name these files of {name}"
    assert sorted(expected - passed) == [], f"{name} does not pass through these files"


@pytest.mark.slow
def test_a_trace_sees_other_threads_and_leaves_out_other_routes(
    traced: dict[str, list[str]],
) -> None:
    files = traced["POST /reconstruct"]
    assert "service/routes/reconstruct.py" in files  # on the event loop
    assert "localmoments/model.py" in files  # on the compute thread
    assert "service/settings.py" not in files  # only at start-up
    assert "service/routes/moments.py" not in files


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lm-") as folder:
        for name, files in trace_calls(Path(folder)).items():
            print(f"\n{name}: {len(files)} files")
            print("\n".join(f"  {file}" for file in files))


if __name__ == "__main__":
    main()
