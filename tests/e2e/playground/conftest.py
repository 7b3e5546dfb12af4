"""Tests of the playground: a real Chromium on the page of a real service.

The browser is closed after each module of tests: Playwright keeps an event loop running in the
thread, and other tests start their own. The page's content security policy stays in force, so
conditions are polled from here instead of being evaluated by the page.
"""

import functools
import hashlib
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

MODELS = Path(__file__).parents[3] / "models"
FLAGS = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]  # fmt: skip
LISTEN = """window.seen = [];
document.addEventListener("localmoments:frame",
  ({ detail }) => window.seen.push([detail.step, Array.from(detail.x)]));"""
# Chromium's messages about responses with an error status, and about tests that read a canvas.
HARMLESS = ("Failed to load resource", "willReadFrequently")


@pytest.fixture(scope="module")
def browser(needs: Callable[[str], str]) -> Iterator[Browser]:
    binary = needs("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def shown_models(put: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three models: images, points in the plane, and a Gaussian of four columns."""
    folder = tmp_path_factory.mktemp("shown")
    for name in ("digits-dae", "spiral-dae"):
        (folder / name).symlink_to(MODELS / name)
    put(folder, 1)
    return folder


@pytest.fixture(scope="session")
def server(start: Callable[..., Any], shown_models: Path) -> Any:
    return start(shown_models, default_model="digits-dae", threads=0, drain_seconds=0)


class Visit:
    """An open page, with all errors and warnings of its console and all its requests."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.page: Page = context.new_page()
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.page.add_init_script(LISTEN)
        self.page.on("pageerror", lambda error: self.faults.append(error.message))
        self.page.on("console", self._collect_message)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _collect_message(self, message: Any) -> None:
        is_harmless = any(words in message.text for words in HARMLESS)
        if message.type in ("error", "warning") and not is_harmless:
            self.faults.append(message.text)

    def go(self, fragment: str = "") -> "Visit":
        self.page.goto(fragment if fragment.startswith("http") else f"{self.url}/{fragment}")
        return self

    def until(self, condition: Callable[[], Any], seconds: float = 15) -> Any:
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, f"timeout: {self.state}, {self.notice!r}"
            self.page.wait_for_timeout(40)  # handles events of the browser
        return found

    def text(self, name: str) -> str:
        return self.page.locator(f"#{name}").text_content() or ""

    def click(self, *names: str) -> None:
        for name in names:
            self.page.locator(f"#{name}").click()

    @property
    def state(self) -> str:
        return str(self.page.locator("body").get_attribute("data-state"))

    @property
    def notice(self) -> str:
        return self.text("notice-text")

    @property
    def step(self) -> int:
        return int(self.text("step").replace(",", ""))

    @property
    def frames(self) -> dict[int, tuple[float, ...]]:
        """The samples shown so far, by step."""
        return {step: tuple(x) for step, x in self.page.evaluate("window.seen")}

    def wait_for_step(self, steps: int) -> "Visit":
        self.until(lambda: self.step >= steps)
        return self

    def pause_at(self, steps: int) -> "Visit":
        """Play at full rate up to a step, then pause."""
        self.page.locator("#rate").fill("30")
        self.wait_for_step(steps).click("play")
        self.until(lambda: self.state == "paused")
        return self

    def link(self) -> str:
        self.click("share")
        return self.page.locator("#link").input_value()


@pytest.fixture
def visit(browser: Browser, server: Any) -> Iterator[Callable[..., Visit]]:
    """A function that opens a page in a new browser context. No page may report an error."""
    opened: list[tuple[BrowserContext, Visit]] = []

    def open_page(service: Any = server, **how: Any) -> Visit:
        how = {"viewport": {"width": 1280, "height": 860}, **how}
        context = browser.new_context(**how)
        context.set_default_timeout(15_000)
        opened.append((context, Visit(context, str(service.http.base_url).rstrip("/"))))
        return opened[-1][1]

    yield open_page
    faults = [fault for _, each in opened for fault in each.faults]
    for context, _ in opened:
        context.close()
    assert not faults


@pytest.fixture(scope="session")
def digest() -> Callable[[dict[int, tuple[float, ...]]], str]:
    """A function that hashes all bits of the frames, in the order of their steps."""

    def digest(frames: dict[int, tuple[float, ...]]) -> str:
        hash_ = hashlib.sha256()
        for step, x in sorted(frames.items()):
            hash_.update(struct.pack(f"<q{len(x)}d", step, *x))
        return hash_.hexdigest()

    return digest


@pytest.fixture(scope="session")
def sample_frames(server: Any) -> Callable[..., dict[int, tuple[float, ...]]]:
    """A function that gets the frames of a chain from the API, by step."""

    @functools.cache
    def ask(steps: int, **plan: Any) -> dict[int, tuple[float, ...]]:
        body = {"thin": 1, "steps": steps, **plan}
        samples = server.http.post("/sample", json=body).raise_for_status().json()["samples"]
        return {t + 1: tuple(v for row in rows for v in row) for t, rows in enumerate(samples)}

    return ask
