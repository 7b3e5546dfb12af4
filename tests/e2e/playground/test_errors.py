"""Errors: the page explains them, waits where that helps, and continues by itself."""

import runpy
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.http.keys import new_key

Open = Callable[..., Any]
PLAN = "#model=digits-dae@1&walkers=6&seed=7&kernel=gibbs&thin=1&emit=mean"
CHAIN: dict[str, Any] = {"model": "digits-dae@1", "walkers": 6, "seed": 7}  # of PLAN
SLOW = {"offline": False, "latency": 200, "downloadThroughput": 60_000, "uploadThroughput": 60_000}


@pytest.fixture
def start_again(start: Callable[..., Any], shown_models: Path) -> Iterator[Callable[[], Any]]:
    """A function that starts a service, each time on the same port and with the same store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = Path(tempfile.mkdtemp(prefix="lm-"))  # short: the path of a socket is limited
    how = {"port": port, "store_folder": store / "s", "drain_seconds": 0, "grace_seconds": 1}
    started: list[Any] = []

    def start_service() -> Any:
        started.append(start(shown_models, default_model="digits-dae", **how))
        return started[-1]

    yield start_service
    started[-1].end()
    shutil.rmtree(store)


@pytest.fixture
def open_recorded_page(visit: Open) -> Open:
    """A function that opens a page and records the chain ids of its responses."""

    def open_page(**how: Any) -> Any:
        page = visit(**how)
        page.chain_ids = []
        page.page.on(
            "response",
            lambda response: page.chain_ids.append(response.headers.get("x-chain-id", "")),
        )
        return page

    return open_page


def last_chain(page: Any) -> str:
    return str([chain_id for chain_id in page.chain_ids if chain_id][-1])


def test_a_slow_network_only_slows_the_chain(visit: Open, sample_frames: Any, digest: Any) -> None:
    page = visit()
    session = page.page.context.new_cdp_session(page.page)
    session.send("Network.emulateNetworkConditions", SLOW)
    page.go(PLAN)
    page.until(lambda: page.step >= 8, 40)
    frames = page.frames
    assert digest(frames) == digest(sample_frames(max(frames), **CHAIN))


@pytest.fixture
def proxy(server: Any) -> Iterator[Any]:
    path = Path(__file__).with_name("slow_proxy.py")  # tests are not a package
    slow = runpy.run_path(str(path))["SlowProxy"](server.address, bytes_per_second=400_000)
    yield slow
    slow.close()


def test_a_broken_connection_loses_and_repeats_no_step(
    visit: Open, proxy: Any, sample_frames: Any, digest: Any
) -> None:
    page = visit()
    page.url = f"http://127.0.0.1:{proxy.port}"
    page.go(PLAN)
    page.page.locator("#rate").fill("30")
    page.wait_for_step(10)
    proxy.cut()
    page.until(lambda: page.state == "away")
    assert "Trying again" in page.notice
    at = page.step
    assert at < 200  # of the 200 steps of a call
    proxy.repair()
    page.until(lambda: page.state == "walking" and page.step > at + 30, 30)
    assert page.notice == ""
    frames = page.frames
    assert sorted(frames) == list(range(1, max(frames) + 1))
    assert digest(frames) == digest(sample_frames(max(frames), **CHAIN))


def test_the_chain_continues_after_a_server_restart(
    visit: Open, start_again: Callable[[], Any], sample_frames: Any, digest: Any
) -> None:
    service = start_again()
    page = visit(service=service).go(PLAN)
    page.page.locator("#rate").fill("30")
    page.wait_for_step(20)
    service.end()
    page.until(lambda: page.state == "away", 30)
    assert "Trying again" in page.notice and "goes on where it stopped" in page.notice
    start_again()
    at = page.step
    page.until(lambda: page.state == "walking" and page.step > at + 20, 30)
    frames = page.frames
    assert digest(frames) == digest(sample_frames(max(frames), **CHAIN))


def test_a_page_opened_before_the_server_answers_waits(visit: Open) -> None:
    page = visit()
    page.page.route("**/models", lambda route: route.abort())
    page.go()
    page.until(lambda: page.state == "away")
    page.page.unroute("**/models")
    page.wait_for_step(1)


def test_an_expired_chain_can_be_started_again_with_its_seed(
    open_recorded_page: Open, server: Any, sample_frames: Any, digest: Any
) -> None:
    page = open_recorded_page().go(PLAN + "&steps=200")  # all steps of the first call
    page.until(lambda: page.state == "paused" and page.step == 200)
    assert server.http.delete(f"/chains/{last_chain(page)}").status_code == 204
    page.click("one-step")
    page.until(lambda: page.state == "lost")
    assert "same seed" in page.notice and page.text("notice-action") == "Begin again"
    page.page.evaluate("window.seen = []")
    page.click("notice-action", "play")
    frames = page.wait_for_step(5).frames
    assert digest(frames) == digest(sample_frames(max(frames), **CHAIN))
    assert page.notice == ""


def test_a_diverging_chain_is_reported(visit: Open) -> None:
    page = visit().go("#model=spiral-dae@1&kernel=walkjump&scale=1000&walkers=3&seed=1")
    page.until(lambda: page.state == "failed")
    assert "Try a smaller `scale`" in page.notice and page.text("notice-action") == "Begin again"


@pytest.fixture(scope="module")
def keyed_service(
    start: Callable[..., Any], shown_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, str]:
    """A service that requires a key, and a key for 18,000 row-steps per minute."""
    secret, entry = new_key("visitor", ["read", "sample"])
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    file.write_text(entry.rstrip() + "\nrow_steps_per_minute = 18000\n")
    return start(shown_models, default_model="digits-dae", keys_file=file), secret


def test_the_page_asks_for_a_key_keeps_it_and_sends_it(
    visit: Open, keyed_service: tuple[Any, str]
) -> None:
    service, secret = keyed_service
    page = visit(service=service).go("#model=spiral-dae@1&walkers=1&seed=1")
    dialog = page.page.locator("#key-dialog")
    page.until(dialog.is_visible)
    page.page.locator("#key-input").fill("wrong")
    page.page.keyboard.press("Enter")
    page.until(lambda: "is unknown" in page.text("key-reason"))
    page.page.locator("#key-later").click()
    page.until(lambda: page.text("notice-action") == "Enter the key")
    page.click("notice-action")
    page.page.locator("#key-input").fill(secret)
    page.page.keyboard.press("Enter")
    page.wait_for_step(2)
    assert not dialog.is_visible() and "Authorization: Bearer $" in page.text("curl")
    assert secret not in page.text("curl") and secret not in page.link()
    page.page.reload()
    page.wait_for_step(2)
    assert page.page.evaluate("Object.keys(localStorage).length") == 0


def test_the_page_waits_while_the_rate_limit_is_exceeded(
    visit: Open, keyed_service: tuple[Any, str]
) -> None:
    """Another client has used up the limit of the key; the page says how long it waits."""
    service, secret = keyed_service
    body = {"model": "spiral-dae", "walkers": 10, "steps": 100, "thin": 100}
    headers = {"authorization": f"Bearer {secret}"}
    statuses = [
        service.http.post("/sample", json=body, headers=headers).status_code for _ in range(40)
    ]
    assert statuses[0] == 200 and statuses[-1] == 429
    page = visit(service=service)
    store_key = f"sessionStorage.setItem('localmoments.key', '{secret}')"
    page.page.add_init_script(f"if (location.protocol === 'http:') {store_key}")
    page.go("#model=spiral-dae@1&walkers=6&seed=1")
    page.until(lambda: page.state == "busy")
    assert "Trying again in" in page.notice
    page.wait_for_step(1)
    assert page.notice == ""


FILES: list[tuple[str, str, bytes, str]] = [
    ("notes.txt", "text/plain", b"Hello there.\nNo numbers.\n", "no row of numbers"),
    ("broken.png", "image/png", b"\x89PNG no more", "cannot be read as an image"),
    ("row.csv", "text/csv", b"1,2,3\n", "3 numbers in a row, but this model's rows have 64"),
    ("odd.npy", "", b"\x93NUMPY\x01\x00\x02\x00{}", "is not read here"),
    ("empty.csv", "text/csv", b"", "no row of numbers"),
]


def test_an_unusable_file_is_refused_with_a_reason(visit: Open) -> None:
    page = visit().go(PLAN).wait_for_step(1)
    for name, kind, content, words in FILES:
        sent = {"name": name, "mimeType": kind, "buffer": content}
        page.page.locator("#file").set_input_files(sent)
        page.until(lambda name=name, words=words: name in page.notice and words in page.notice)
    page.wait_for_step(page.step + 1)


DROP = """(text) => {
  const transfer = new DataTransfer();
  if (text) transfer.items.add(new File([text], "dropped.txt", { type: "text/plain" }));
  for (const kind of ["dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true }));
  }
}"""


def test_a_file_dropped_on_the_page_is_read_or_refused(visit: Open) -> None:
    page = visit().go("#model=gaussian@1&walkers=3&seed=1").wait_for_step(1)
    page.page.evaluate(DROP, "some words")
    page.until(lambda: "dropped.txt has no row of numbers" in page.notice)
    page.page.evaluate(DROP, "")
    page.until(lambda: page.notice == "What was dropped is not a file.")
    page.page.evaluate(DROP, "a,b,c,d\n0.5,7,1,3\n")
    first = page.page.locator("#fields input[type=number]").first
    page.until(lambda: first.input_value() == "0.5")
