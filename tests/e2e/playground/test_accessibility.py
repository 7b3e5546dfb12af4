"""Accessibility: axe, the width of a phone, the keyboard, reduced motion."""

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


def wait_for_tangents(page: Any) -> Any:
    page.page.locator("#rate").fill("30")
    page.until(lambda: page.page.locator("#tangents li").count())
    return page


@pytest.mark.parametrize(("fragment", "scheme", "size"), LOOKS)
def test_axe_finds_no_serious_violation(
    visit: Open, fragment: str, scheme: str, size: dict[str, int]
) -> None:
    page = wait_for_tangents(visit(color_scheme=scheme, viewport=size).go(fragment))
    page.page.locator("#file").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"words"}
    )
    page.until(lambda: page.notice)  # so that axe checks a notice too
    report = Axe().run(page.page).response
    assert len(report["passes"]) > 30
    serious = [v for v in report["violations"] if v["impact"] in ("serious", "critical")]
    assert not [(v["id"], [node["html"] for node in v["nodes"]]) for v in serious]


@pytest.mark.parametrize("fragment", ["", "#model=spiral-dae@1", "#model=gaussian@1"])
def test_the_page_fits_the_width_of_a_phone(visit: Open, fragment: str) -> None:
    page = wait_for_tangents(visit(viewport=PHONE, has_touch=True, is_mobile=True).go(fragment))
    assert page.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    stage = page.page.locator("#walkers-view").bounding_box()
    assert stage["y"] + stage["height"] < PHONE["height"]


def test_every_control_is_reached_with_the_tab_key(visit: Open) -> None:
    page = visit().go().wait_for_step(1)
    names: list[str] = []
    for _ in range(60):
        page.page.keyboard.press("Tab")
        names.append(page.page.evaluate("document.activeElement.id"))
    expected = ["play", "one-step", "fork", "restart", "rate", "model", "kernel", "scale",
                "walkers", "thin", "seed", "pad", "reconstruct", "fill-in", "share",
                "copy-curl"]  # fmt: skip
    assert [name for name in dict.fromkeys(names) if name in expected] == expected


def test_reduced_motion_shows_one_sample_and_waits_for_play(visit: Open) -> None:
    page = visit(reduced_motion="reduce").go().wait_for_step(1)
    page.page.wait_for_timeout(500)
    assert page.step == 1 and page.state == "paused"
    page.click("play")
    page.wait_for_step(4)


def test_a_head_response_has_no_body(server: Any) -> None:
    with socket.create_connection(server.address, timeout=5) as connection:
        connection.sendall(b"HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and b"content-length: " in head and body == b""


def test_the_page_loads_nothing_from_other_hosts(visit: Open) -> None:
    page = wait_for_tangents(visit().go())
    assert all(url.startswith(page.url) for url in page.requests if url != "about:blank")
    assert len(page.requests) > 30
