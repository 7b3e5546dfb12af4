"""The page of the API's description: whole, from here, and nowhere else."""

import re
from typing import Any

from service.routes import docs


def test_all_that_the_page_loads_is_served_here(client: Any) -> None:
    page = client.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) == 4
    for address in loaded:
        assert "//" not in address, "relative, so that it works below a path"
        assert client.get(f"/{address}").status_code == 200, address


def test_its_policy_lets_nothing_in_from_elsewhere(client: Any) -> None:
    for path in ("/docs", *(f"/docs/{name}" for name in docs.files() if name != docs.PAGE)):
        policy = client.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'self';") and "http" not in policy
        assert "script-src" not in policy, "so scripts come from here, and none from the markup"


def test_a_file_that_is_not_there_is_a_404(client: Any) -> None:
    assert client.get("/docs/page.html").status_code == 404
    assert client.get("/docs/x.js").status_code == 404


def test_an_unchanged_part_is_not_sent_again(client: Any) -> None:
    first = client.get("/docs/swagger-ui.css")
    again = client.get("/docs/swagger-ui.css", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304 and again.content == b""
