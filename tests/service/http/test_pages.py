"""The playground and /docs over HTTP: types, ETags, policies, and nothing from elsewhere."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from service.routes import pages

SOURCES = {path.name: path.read_text(encoding="utf-8") for path in pages.FOLDER.glob("*.*")}
MODULES = sorted(name for name in SOURCES if name.endswith(".js"))
IMPORT = re.compile(r'^(?:import|export)\b[^;]*?\bfrom "([^"]+)";|^import "([^"]+)";', re.M)


class Links(HTMLParser):
    """What a page loads, and whether anything in its markup is code or style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: dict[str, list[str]] = {}
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        self.inline += [name for name in said if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in said):
            self.inline.append(tag)
        address = said.get("src") if tag in ("script", "img") else said.get("href")
        if tag in ("script", "img", "link") and address:
            self.loaded.setdefault(said.get("rel") or tag, []).append(address)


PAGE = Links(SOURCES[pages.PAGE])


def check_headers(answer: Any) -> None:
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';") and "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["/", *(f"/web/{name}" for name in SOURCES if name != pages.PAGE)])
def test_every_file_is_served_with_its_type_and_policy(client: Any, path: str) -> None:
    answer = client.get(path)
    name = path.rpartition("/")[2] or pages.PAGE
    kinds = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg"}
    assert answer.status_code == 200 and answer.text == SOURCES[name]
    assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
    check_headers(answer)


def test_an_unchanged_file_is_not_sent_again(client: Any) -> None:
    first = client.get("/")
    for said in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = client.get("/", headers={"if-none-match": said})
        assert again.status_code == 304 and again.content == b""
        assert again.headers["etag"] == first.headers["etag"]
        check_headers(again)
    assert client.get("/", headers={"if-none-match": '"other"'}).status_code == 200


def test_different_files_have_different_etags(client: Any) -> None:
    tags = {client.get(f"/web/{name}").headers["etag"] for name in MODULES}
    assert len(tags) == len(MODULES)


@pytest.mark.parametrize("path", ["/", "/web/main.js"])
def test_head_says_what_get_would_send(client: Any, path: str) -> None:
    head, whole = client.request("HEAD", path), client.get(path)
    assert head.status_code == 200 and head.content == b""
    told = [{k: v for k, v in a.headers.items() if k != "x-request-id"} for a in (head, whole)]
    assert told[0] == told[1] and int(told[0]["content-length"]) == len(whole.content)


@pytest.mark.parametrize("path", ["/web/nothing.js", "/web/..%2fapp.py", "/web/", "/docs/x.js"])
def test_nothing_else_is_served(client: Any, problem: Any, path: str) -> None:
    problem(client.get(path), 404, "Nothing is at")


def test_pages_take_no_other_method(client: Any, problem: Any) -> None:
    answer = client.post("/")
    problem(answer, 405, "does not support POST")
    assert "GET" in answer.headers["allow"] and "HEAD" in answer.headers["allow"]


def test_pages_are_no_part_of_the_api(client: Any) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert "/" not in paths and not [path for path in paths if path.startswith("/web")]


def test_pages_need_no_key(make_client: Any, tmp_path: Any) -> None:
    digest = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"
    entry = f'[[key]]\nname = "a"\nsha256 = "{digest}"\nscopes = ["read"]\n'
    (tmp_path / "keys.toml").write_text(entry)
    locked = make_client(keys_file=tmp_path / "keys.toml")
    assert locked.get("/models").status_code == 401
    assert locked.get("/").status_code == locked.get("/web/main.js").status_code == 200


def test_the_markup_holds_neither_code_nor_style() -> None:
    assert PAGE.inline == []


def test_every_module_is_loaded_at_once_and_nothing_is_missing() -> None:
    assert PAGE.loaded["script"] == ["web/main.js"]
    preloaded = {address.removeprefix("web/") for address in PAGE.loaded["modulepreload"]}
    assert preloaded == {*MODULES} - {"main.js"}
    styles = {address.removeprefix("web/") for address in PAGE.loaded["stylesheet"]}
    assert styles == {name for name in SOURCES if name.endswith(".css")}
    for name in MODULES:
        for found in IMPORT.findall(SOURCES[name]):
            assert "".join(found).removeprefix("./") in MODULES, f"{name} imports {found}"


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_file_is_short_and_names_no_other_place(name: str) -> None:
    places = set(re.findall(r"https?://[^\s\"'`]+", SOURCES[name]))
    assert places <= {"http://www.w3.org/2000/svg"}
    assert len(SOURCES[name].splitlines()) < (250 if name.endswith(".js") else 500)


def test_everything_that_the_docs_page_loads_is_served_here(client: Any) -> None:
    page = client.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) == 3
    for address in loaded:
        assert "//" not in address, "relative, so that the page works below a path"
        assert client.get(f"/{address}").status_code == 200, address


def test_the_docs_page_allows_its_own_script_and_no_other(client: Any) -> None:
    page = client.get("/docs")
    [script] = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = page.headers["content-security-policy"]
    assert f"script-src 'self' 'sha256-{digest}'" in policy and "http" not in policy
    files = client.get("/docs/swagger-ui.css").headers["content-security-policy"]
    assert files.startswith("default-src 'self';") and "script-src" not in files
