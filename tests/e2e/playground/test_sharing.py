"""A link reproduces a chain in another browser; the curl command next to it does so in a shell."""

import json
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Open = Callable[..., Any]
SAME = "the same bit for bit"
POINT = "&points=AAAAPwAAgD4"  # (0.5, 0.25)
CHAINS = [
    "#model=digits-dae@1&walkers=5&seed=3",
    "#model=digits-dae@1&walkers=5&seed=3&kernel=hidden&emit=noisy&start=noise&thin=4",
    "#model=spiral-dae@1&walkers=9&seed=4&scale=0.7",
    "#model=spiral-dae@1&walkers=9&seed=4&kernel=moment" + POINT,
]


@pytest.mark.parametrize("fragment", CHAINS)
def test_a_link_gives_the_same_bits_in_a_new_browser(
    visit: Open, digest: Any, fragment: str
) -> None:
    first = visit().go(fragment).pause_at(12)
    second = visit().go(first.link())
    second.until(lambda: second.notice)
    assert SAME in second.notice and second.state == "paused" and second.step == first.step
    assert digest(second.frames) == digest(first.frames)


def test_a_link_to_a_fork_includes_its_past(visit: Open, digest: Any) -> None:
    first = visit().go(CHAINS[0]).pause_at(8)
    for _ in range(2):
        at = first.step
        first.click("fork")
        first.until(lambda at=at: f"step {at}:" in first.notice)
        first.click("play")
        first.wait_for_step(at + 6).click("play")
    second = visit().go(first.link())
    second.until(lambda: second.notice)
    assert SAME in second.notice and digest(second.frames) == digest(first.frames)


def test_a_link_to_a_clamped_chain_includes_the_clamp(visit: Open, digest: Any) -> None:
    first = visit().go(CHAINS[0]).pause_at(3)
    first.page.evaluate("window.seen = []")
    first.click("use-sample", "half", "fill-in")
    first.until(lambda: first.text("clamped-words").startswith("32 of 64"))
    first.wait_for_step(8).click("play")
    second = visit().go(first.link())
    second.until(lambda: second.notice)
    assert SAME in second.notice and digest(second.frames) == digest(first.frames)


def test_a_link_whose_samples_differ_is_reported(visit: Open) -> None:
    link = visit().go(CHAINS[0]).pause_at(6).link()
    page = visit().go(link.rpartition("print=")[0] + "print=0123456789abcdef")
    page.until(lambda: "not those of the link" in page.notice)


def test_a_link_to_a_missing_version_is_reported(visit: Open) -> None:
    page = visit().go("#model=digits-dae@99&seed=1")
    page.until(lambda: "99" in page.notice)
    assert page.state == "failed"
    page.click("notice-action")
    page.wait_for_step(2)


def test_a_link_pasted_into_an_open_page_is_followed(visit: Open, digest: Any) -> None:
    first = visit().go(CHAINS[0]).pause_at(6)
    second = visit().go(CHAINS[2]).wait_for_step(2)
    link = first.link()
    second.page.evaluate("window.seen = []")
    second.page.evaluate("(link) => (location.href = link)", link)
    second.until(lambda: SAME in second.notice)
    assert second.step == first.step and digest(second.frames) == digest(first.frames)


def test_a_malformed_link_starts_a_default_chain(visit: Open) -> None:
    page = visit().go("#model=digits-dae&walkers=x&seed=-1&kernel=none&thin=0&scale=0&forks=a.b")
    page.wait_for_step(2)


def test_the_curl_command_gives_the_same_samples(visit: Open, digest: Any) -> None:
    page = visit().go(CHAINS[0]).pause_at(12)
    words = shlex.split(page.text("curl").replace("\\\n", " "))
    assert words[0] == "curl"
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    parts = [json.loads(each.removeprefix("data: ")) for each in output.split("\n\n")[1:-3]]
    flat = {part["step"]: tuple(v for row in part["x"] for v in row) for part in parts}
    frames = page.frames
    assert digest({step: flat[step] for step in frames}) == digest(frames)


def test_the_curl_command_of_a_fork_names_its_chain(visit: Open) -> None:
    page = visit().go(CHAINS[0]).pause_at(6)
    page.click("fork")
    page.until(lambda: '"chain"' in page.text("curl"))
