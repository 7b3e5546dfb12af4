"""The application in this process, over httpx's ASGI transport, with an embedded store."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.app import create_app
from service.settings import Settings
from service.store.embedded import EmbeddedValkey


class Client:
    """Synchronous words for an application that lives on a loop of its own."""

    def __init__(self, settings: Settings, store_url: str) -> None:
        self.app = create_app(settings, store_url)
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(app=self.app)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://test")
        self._lifespan = self.app.router.lifespan_context(self.app)
        self._runner.run(self._lifespan.__aenter__())

    def request(self, method: str, path: str, **how: Any) -> httpx.Response:
        return self._runner.run(self._http.request(method, path, **how))

    def get(self, path: str, **how: Any) -> httpx.Response:
        return self.request("GET", path, **how)

    def post(self, path: str, **how: Any) -> httpx.Response:
        return self.request("POST", path, **how)

    def run(self, coroutine: Any) -> Any:
        return self._runner.run(coroutine)

    def close(self) -> None:
        self._runner.run(self._http.aclose())
        self._runner.run(self._lifespan.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="session")
def models(tiny_artefact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound model, and one version that is broken."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(tiny_artefact, folder / "tiny/1")
    shutil.copytree(tiny_artefact, folder / "tiny/2")
    (folder / "tiny/2/gibbs.onnx").write_bytes(b"altered")
    body = json.loads((folder / "tiny/2/manifest.json").read_text()) | {"version": "2"}
    (folder / "tiny/2/manifest.json").write_text(json.dumps(body))
    return folder


Maker = Callable[..., Client]


@pytest.fixture(scope="session")
def make_client(models: Path, valkey_url: str) -> Iterator[Maker]:
    """A client of an application with these settings; closed at the end."""
    made: list[Client] = []

    def make(store_url: str = valkey_url, **settings: Any) -> Client:
        chosen = {"models": models, "threads": 1, "reload_seconds": 0, **settings}
        made.append(Client(Settings(_env_file=None, **chosen), store_url))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture(scope="session")
def client(make_client: Maker) -> Client:
    return make_client()


def check_problem(answer: httpx.Response, status: int, words: str = "") -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status and body["error"] == body["detail"]
    assert body["request_id"] == answer.headers["x-request-id"]
    assert words in body["detail"] and body["detail"].endswith(".")
    assert "Traceback" not in answer.text
    return body


@pytest.fixture(scope="session")
def problem() -> Callable[..., dict[str, Any]]:
    """Checks that an answer is a problem of this status that says these words."""
    return check_problem


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An embedded Valkey that nobody stops in between."""
    valkey = EmbeddedValkey(tmp_path_factory.mktemp("valkey"))
    yield valkey.start()
    valkey.stop()
