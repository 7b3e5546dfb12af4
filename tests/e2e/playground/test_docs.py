"""The description of the API in a real Chromium that reaches nothing but the service."""

from collections.abc import Callable
from typing import Any


def test_a_route_is_read_and_tried(visit: Callable[..., Any]) -> None:
    v = visit()
    v.page.goto(f"{v.url}/docs")
    v.page.locator("[id$='sample_sample_post']").click()
    v.page.get_by_role("button", name="Execute").first.click()
    answer = v.page.locator(".live-responses-table tr.response .response-col_status").first
    answer.wait_for()
    assert "200" in (answer.text_content() or "")
    assert v.asked and all(url.startswith((v.url, "data:", "blob:")) for url in v.asked)
