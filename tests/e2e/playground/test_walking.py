"""What is walked on the page is the chain of the API, at the visitor's pace."""

from collections.abc import Callable
from typing import Any

import pytest

Open = Callable[..., Any]
PLAN = "#model=digits-dae@1&kernel=gibbs&walkers=6&seed=7&start=data&thin=1&emit=mean"


def test_a_first_sample_walks_within_a_second(visit: Open) -> None:
    """From navigation to the picture, nothing cached; a busy machine has five attempts."""
    taken: list[float] = []
    while min(taken, default=1000) >= 1000 and len(taken) < 5:
        page = visit().go().walked(1).page
        entry = "performance.getEntriesByName('first-sample')[0].startTime"
        page.wait_for_timeout(100)  # the mark follows the picture
        taken.append(page.evaluate(entry))
        page.context.close()
    print(f"\nfirst samples after {[round(ms) for ms in taken]} ms")
    assert min(taken) < 1000


def test_the_page_shows_the_chain_of_its_link_bit_for_bit(
    visit: Open, sampled: Any, digest: Any
) -> None:
    frames = visit().go(PLAN).paused_at(40).frames
    chain = sampled(max(frames), model="digits-dae@1", walkers=6, seed=7)
    assert len(frames) >= 40 and digest(frames) == digest(chain)


def test_a_chain_goes_on_over_many_calls(visit: Open, sampled: Any, digest: Any) -> None:
    page = visit().go(PLAN.replace("thin=1", "thin=1&steps=405"))
    page.until(lambda: page.state == "paused" and page.step == 405)
    assert digest(page.frames) == digest(sampled(405, model="digits-dae@1", walkers=6, seed=7))
    assert sum(url.endswith("/sample") for url in page.asked) == 3


def test_pause_holds_step_moves_by_one_and_resume_goes_on(
    visit: Open, sampled: Any, digest: Any
) -> None:
    page = visit().go(PLAN).paused_at(10)
    at = page.step
    page.page.wait_for_timeout(300)
    assert page.step == at
    for k in (1, 2):
        page.click("one-step")
        page.until(lambda k=k: page.step == at + k)
    assert page.state == "paused"
    page.click("play")
    page.walked(at + 8)
    frames = page.frames
    assert digest(frames) == digest(sampled(max(frames), model="digits-dae@1", walkers=6, seed=7))


def test_restart_walks_the_same_chain_again(visit: Open, digest: Any) -> None:
    page = visit().go(PLAN).paused_at(6)
    page.click("fork", "play")  # which is a part of it from here on
    page.walked(page.step + 6).click("play")
    before = page.frames
    page.page.evaluate("window.seen = []")
    page.click("restart", "play")
    page.walked(max(before)).click("play")
    again = {step: x for step, x in page.frames.items() if step in before}
    assert digest(again) == digest(before)


def test_a_fork_keeps_the_past_and_leaves_for_another_future(visit: Open, sampled: Any) -> None:
    page = visit().go(PLAN).paused_at(10)
    at = page.step
    page.click("fork")
    page.until(lambda: "Forked" in page.notice)
    page.click("play")
    frames = page.walked(at + 5).frames
    chain = sampled(max(frames), model="digits-dae@1", walkers=6, seed=7)
    assert all(frames[step] == chain[step] for step in frames if step <= at)
    assert all(frames[step] != chain[step] for step in frames if step > at)
    assert sorted(frames) == list(range(1, max(frames) + 1))


def test_a_hidden_page_rests(visit: Open) -> None:
    page = visit().go(PLAN).walked(3)
    hidden = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.page.evaluate(hidden, True)
    page.page.wait_for_timeout(300)
    at, calls = page.step, len(page.asked)
    page.page.wait_for_timeout(500)
    assert page.step == at and len(page.asked) == calls
    page.page.evaluate(hidden, False)
    page.walked(at + 2)


SETTINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("kernel", "walkjump", {"kernel": "walkjump"}),
    ("scale", "0.5", {"scale": 0.5}),
    ("walkers", "3", {"walkers": 3}),
    ("seed", "99", {"seed": 99}),
    ("start", "noise", {"start": "noise"}),
    ("emit", "noisy", {"emit": "noisy"}),
]


def test_a_changed_setting_begins_the_chain_that_has_it(
    visit: Open, sampled: Any, digest: Any
) -> None:
    page = visit().go(PLAN).paused_at(3)
    plan: dict[str, Any] = {"model": "digits-dae@1", "walkers": 6, "seed": 7}
    for name, value, change in SETTINGS:
        page.page.evaluate("window.seen = []")
        field = page.page.locator(f"#{name}")
        if name in ("kernel", "start", "emit"):
            field.select_option(value)
        else:
            field.fill(value)
            field.press("Enter")
        page.until(lambda: page.frames and page.step == 1)
        page.click("one-step")
        page.walked(2)
        plan |= change
        assert digest(page.frames) == digest(sampled(2, **plan)), name


def test_kept_steps_are_as_far_apart_as_it_says(visit: Open, sampled: Any) -> None:
    frames = visit().go(PLAN.replace("thin=1", "thin=5")).paused_at(25).frames
    chain = sampled(max(frames), model="digits-dae@1", walkers=6, seed=7)
    assert sorted(frames)[:5] == [5, 10, 15, 20, 25]
    assert all(x == chain[step] for step, x in frames.items())


@pytest.mark.parametrize(
    ("model", "view", "walkers"),
    [("digits-dae", "tiles", 24), ("spiral-dae", "points", 40), ("gaussian", "lines", 40)],
)
def test_every_kind_of_data_has_its_view(visit: Open, model: str, view: str, walkers: int) -> None:
    page = visit().go().walked(1)
    page.page.locator("#model").select_option(label=model)
    page.until(lambda: page.page.locator(f".walkers.{view}").count())
    assert page.walked(2).page.locator(".walker").count() == walkers
    assert f"model={model}@1" in page.page.evaluate("location.hash")


def test_two_features_of_many_are_a_scatter(visit: Open) -> None:
    page = visit().go("#model=gaussian@1").walked(2)
    page.page.locator("#view").select_option("scatter")
    page.until(lambda: page.page.locator(".walkers.points").count())
    page.page.locator("#up").select_option("3")
    page.walked(page.step + 2)
