"""The API documentation works in a browser that reaches only the service."""

from collections.abc import Callable
from typing import Any


def test_a_route_can_be_executed_in_the_docs(visit: Callable[..., Any]) -> None:
    v = visit()
    v.page.goto(f"{v.url}/docs")
    v.page.locator("[id$='sample_sample_post']").click()
    v.page.get_by_role("button", name="Execute").first.click()
    answer = v.page.locator(".live-responses-table tr.response .response-col_status").first
    answer.wait_for()
    assert "200" in (answer.text_content() or "")
    assert v.requests and all(url.startswith((v.url, "data:", "blob:")) for url in v.requests)
