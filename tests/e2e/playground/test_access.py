"""For everyone: axe finds nothing serious, a phone needs no sideways scrolling, motion can rest."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

Open = Callable[..., Any]
DESK, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
LOOKS = [
    ("", "light", DESK),
    ("", "dark", PHONE),
    ("#model=spiral-dae@1", "dark", DESK),
    ("#model=gaussian@1", "light", PHONE),
]


def seen(page: Any) -> Any:
    page.page.locator("#rate").fill("30")
    page.until(lambda: page.page.locator("#tangents li").count())
    return page


@pytest.mark.parametrize(("fragment", "scheme", "size"), LOOKS)
def test_axe_finds_nothing_serious(
    visit: Open, fragment: str, scheme: str, size: dict[str, int]
) -> None:
    page = seen(visit(color_scheme=scheme, viewport=size).go(fragment))
    page.page.locator("#file").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"words"}
    )
    page.until(lambda: page.notice)  # so that a notice is looked at as well
    found = Axe().run(page.page).response
    assert len(found["passes"]) > 30
    serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    assert not [(v["id"], [node["html"] for node in v["nodes"]]) for v in serious]


@pytest.mark.parametrize("fragment", ["", "#model=spiral-dae@1", "#model=gaussian@1"])
def test_a_phone_shows_everything_in_its_width(visit: Open, fragment: str) -> None:
    page = seen(visit(viewport=PHONE, has_touch=True, is_mobile=True).go(fragment))
    assert page.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    stage = page.page.locator("#walkers-view").bounding_box()
    assert stage["y"] + stage["height"] < PHONE["height"]


def test_the_whole_page_works_without_a_pointer(visit: Open) -> None:
    page = visit().go().walked(1)
    names: list[str] = []
    for _ in range(60):
        page.page.keyboard.press("Tab")
        names.append(page.page.evaluate("document.activeElement.id"))
    wanted = ["play", "one-step", "fork", "restart", "rate", "model", "kernel", "scale", "walkers",
              "thin", "seed", "pad", "reconstruct", "fill-in", "share", "copy-curl"]  # fmt: skip
    assert [name for name in dict.fromkeys(names) if name in wanted] == wanted


def test_who_wants_less_motion_sees_one_sample_and_starts_the_rest(visit: Open) -> None:
    page = visit(reduced_motion="reduce").go().walked(1)
    page.page.wait_for_timeout(500)
    assert page.step == 1 and page.state == "paused"
    page.click("play")
    page.walked(4)


def test_head_has_no_body_on_the_wire(served: Any) -> None:
    with socket.create_connection(served.address, timeout=5) as line:
        line.sendall(b"HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and b"content-length: " in head and body == b""


def test_nothing_comes_from_anywhere_else(visit: Open) -> None:
    page = seen(visit().go())
    assert all(url.startswith(page.url) for url in page.asked if url != "about:blank")
    assert len(page.asked) > 30
