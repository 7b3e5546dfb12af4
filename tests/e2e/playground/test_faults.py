"""What can go wrong does, and the page says so in words, waits, and goes on by itself."""

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
SLOW = {"offline": False, "latency": 200, "downloadThroughput": 60_000, "uploadThroughput": 60_000}


@pytest.fixture
def restartable(start: Callable[..., Any], shown: Path) -> Iterator[Callable[[], Any]]:
    """A service that begins again on the same port, with the same store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = Path(tempfile.mkdtemp(prefix="lm-"))  # short: sockets' names must be
    how = {"port": port, "store_folder": store / "s", "drain_seconds": 0, "grace_seconds": 1}
    begun: list[Any] = []

    def begin() -> Any:
        begun.append(start(shown, default_model="digits-dae", **how))
        return begun[-1]

    yield begin
    begun[-1].end()
    shutil.rmtree(store)


@pytest.fixture
def watched(visit: Open) -> Open:
    """A visit that remembers the chains it was given."""

    def open_page(**how: Any) -> Any:
        page = visit(**how)
        page.heads = []
        page.page.on(
            "response",
            lambda answer: page.heads.append(answer.headers.get("x-chain-id", "")),
        )
        return page

    return open_page


def last_chain(page: Any) -> str:
    return str([head for head in page.heads if head][-1])


def test_a_slow_network_slows_the_chain_and_nothing_else(
    visit: Open, sampled: Any, digest: Any
) -> None:
    page = visit()
    session = page.page.context.new_cdp_session(page.page)
    session.send("Network.emulateNetworkConditions", SLOW)
    page.go(PLAN)
    page.until(lambda: page.step >= 8, 40)
    frames = page.frames
    assert digest(frames) == digest(sampled(max(frames), model="digits-dae@1", walkers=6, seed=7))


@pytest.fixture
def wire(served: Any) -> Iterator[Any]:
    path = Path(__file__).with_name("wire.py")  # tests are no package, and import by path
    line = runpy.run_path(str(path))["Wire"](served.address, bytes_per_second=400_000)
    yield line
    line.close()


def test_a_line_that_breaks_in_the_middle_of_a_call_loses_and_repeats_nothing(
    visit: Open, wire: Any, sampled: Any, digest: Any
) -> None:
    page = visit()
    page.url = f"http://127.0.0.1:{wire.port}"
    page.go(PLAN)
    page.page.locator("#rate").fill("30")
    page.walked(10)
    wire.cut()
    page.until(lambda: page.state == "away")
    assert "Trying again" in page.notice
    at = page.step
    assert at < 200  # of the 200 steps of a call
    wire.mend()
    page.until(lambda: page.state == "walking" and page.step > at + 30, 30)
    assert page.notice == ""
    frames = page.frames
    assert sorted(frames) == list(range(1, max(frames) + 1))
    assert digest(frames) == digest(sampled(max(frames), model="digits-dae@1", walkers=6, seed=7))


def test_a_restarted_server_is_waited_for_and_the_chain_goes_on(
    visit: Open, restartable: Callable[[], Any], sampled: Any, digest: Any
) -> None:
    service = restartable()
    page = visit(service=service).go(PLAN)
    page.page.locator("#rate").fill("30")
    page.walked(20)
    service.end()
    page.until(lambda: page.state == "away", 30)
    assert "Trying again" in page.notice and "goes on where it stopped" in page.notice
    restartable()
    at = page.step
    page.until(lambda: page.state == "walking" and page.step > at + 20, 30)
    frames = page.frames
    assert digest(frames) == digest(sampled(max(frames), model="digits-dae@1", walkers=6, seed=7))


def test_a_page_that_opens_before_its_server_answers_waits(visit: Open) -> None:
    page = visit()
    page.page.route("**/models", lambda route: route.abort())
    page.go()
    page.until(lambda: page.state == "away")
    page.page.unroute("**/models")
    page.walked(1)


def test_an_expired_chain_can_begin_again_with_its_seed(
    watched: Open, served: Any, sampled: Any, digest: Any
) -> None:
    page = watched().go(PLAN + "&steps=200")  # all that the first call gave
    page.until(lambda: page.state == "paused" and page.step == 200)
    assert served.http.delete(f"/chains/{last_chain(page)}").status_code == 204
    page.click("one-step")
    page.until(lambda: page.state == "lost")
    assert "same seed" in page.notice and page.text("notice-action") == "Begin again"
    page.page.evaluate("window.seen = []")
    page.click("notice-action", "play")
    frames = page.walked(5).frames
    assert digest(frames) == digest(sampled(max(frames), model="digits-dae@1", walkers=6, seed=7))
    assert page.notice == ""


def test_a_chain_that_diverges_says_so(visit: Open) -> None:
    page = visit().go("#model=spiral-dae@1&kernel=walkjump&scale=1000&walkers=3&seed=1")
    page.until(lambda: page.state == "failed")
    assert "Try a smaller `scale`" in page.notice and page.text("notice-action") == "Begin again"


@pytest.fixture(scope="module")
def locked(
    start: Callable[..., Any], shown: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, str]:
    """A service that wants keys; this one may do 18,000 row-steps a minute."""
    secret, entry = new_key("visitor", ["read", "sample"])
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    file.write_text(entry.rstrip() + "\nrow_steps_per_minute = 18000\n")
    return start(shown, default_model="digits-dae", keys_file=file), secret


def test_a_key_is_asked_for_kept_and_sent(visit: Open, locked: tuple[Any, str]) -> None:
    service, secret = locked
    page = visit(service=service).go("#model=spiral-dae@1&walkers=1&seed=1")
    dialog = page.page.locator("#key-dialog")
    page.until(dialog.is_visible)
    page.page.locator("#key-input").fill("wrong")
    page.page.keyboard.press("Enter")
    page.until(lambda: "not known" in page.text("key-reason"))
    page.page.locator("#key-later").click()
    page.until(lambda: page.text("notice-action") == "Enter the key")
    page.click("notice-action")
    page.page.locator("#key-input").fill(secret)
    page.page.keyboard.press("Enter")
    page.walked(2)
    assert not dialog.is_visible() and "Authorization: Bearer $" in page.text("curl")
    assert secret not in page.text("curl") and secret not in page.link()
    page.page.reload()
    page.walked(2)
    assert page.page.evaluate("Object.keys(localStorage).length") == 0


def test_overload_is_waited_out(visit: Open, locked: tuple[Any, str]) -> None:
    """The key's minute is used up by another: the page says for how long it waits."""
    service, secret = locked
    spent = {"model": "spiral-dae", "walkers": 10, "steps": 100, "thin": 100}
    say = {"authorization": f"Bearer {secret}"}
    while service.http.post("/sample", json=spent, headers=say).status_code == 200:
        pass
    page = visit(service=service)
    keep = f"sessionStorage.setItem('localmoments.key', '{secret}')"
    page.page.add_init_script(f"if (location.protocol === 'http:') {keep}")
    page.go("#model=spiral-dae@1&walkers=6&seed=1")
    page.until(lambda: page.state == "busy")
    assert "Trying again in" in page.notice
    page.walked(1)
    assert page.notice == ""


FILES: list[tuple[str, str, bytes, str]] = [
    ("notes.txt", "text/plain", b"Hello there.\nNo numbers.\n", "no row of numbers"),
    ("broken.png", "image/png", b"\x89PNG no more", "cannot be read as an image"),
    ("row.csv", "text/csv", b"1,2,3\n", "3 numbers in a row, but this model's rows have 64"),
    ("odd.npy", "", b"\x93NUMPY\x01\x00\x02\x00{}", "is not read here"),
    ("empty.csv", "text/csv", b"", "no row of numbers"),
]


def test_a_file_that_cannot_be_used_is_refused_in_words(visit: Open) -> None:
    page = visit().go(PLAN).walked(1)
    for name, kind, content, words in FILES:
        sent = {"name": name, "mimeType": kind, "buffer": content}
        page.page.locator("#file").set_input_files(sent)
        page.until(lambda name=name, words=words: name in page.notice and words in page.notice)
    page.walked(page.step + 1)


DROP = """(text) => {
  const carried = new DataTransfer();
  if (text) carried.items.add(new File([text], "dropped.txt", { type: "text/plain" }));
  for (const kind of ["dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: carried, bubbles: true }));
  }
}"""


def test_what_is_dropped_on_the_page_is_read_or_refused(visit: Open) -> None:
    page = visit().go("#model=gaussian@1&walkers=3&seed=1").walked(1)
    page.page.evaluate(DROP, "some words")
    page.until(lambda: "dropped.txt has no row of numbers" in page.notice)
    page.page.evaluate(DROP, "")
    page.until(lambda: page.notice == "What was dropped is not a file.")
    page.page.evaluate(DROP, "a,b,c,d\n0.5,7,1,3\n")
    first = page.page.locator("#fields input[type=number]").first
    page.until(lambda: first.input_value() == "0.5")
