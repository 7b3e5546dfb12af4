"""Details of a walker equal the API; your own input is drawn, read, reconstructed, filled in."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

Open = Callable[..., Any]
PLAN = "#model=digits-dae@1&walkers=6&seed=7&kernel=gibbs&thin=1&emit=mean"
SPIRAL = "#model=spiral-dae@1&walkers=6&seed=7"
PIXELS = """(canvas) => Array.from(canvas.getContext("2d")
    .getImageData(0, 0, canvas.width, canvas.height).data).filter((_, i) => i % 4 === 0)"""


CELLS = """(canvas) => Array.from({ length: 64 }, (_, i) => canvas.getContext("2d")
    .getImageData(17 + 35 * (i % 8), 17 + 35 * Math.floor(i / 8), 1, 1).data[0])"""


def pad_of(page: Any) -> Any:
    """The red value of each cell of the drawing pad: (8, 8)."""
    return np.array(page.page.locator("#pad").evaluate(CELLS)).reshape(8, 8)


def pixels(page: Any, selector: str, index: int = 0) -> Any:
    """The red value of each pixel of a canvas."""
    return np.array(page.page.locator(selector).nth(index).evaluate(PIXELS))


def wait_for_details(page: Any, walker: int) -> None:
    page.until(lambda: page.text("closer-name").startswith(f"Walker {walker} "))
    page.until(lambda: page.page.locator("#tangents li").count())


def test_walkers_are_selected_with_the_keyboard(visit: Open) -> None:
    page = visit().go(PLAN).pause_at(8)
    wait_for_details(page, 1)
    page.page.locator(".walker").first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home", "ArrowRight"):
        page.page.keyboard.press(key)
    page.page.keyboard.press("Enter")
    wait_for_details(page, 2)
    assert page.page.locator(".walker[aria-pressed=true]").get_attribute("aria-label") == "Walker 2"


def test_the_details_of_a_walker_equal_the_api(visit: Open, server: Any) -> None:
    page = visit().go(SPIRAL).pause_at(4)
    page.page.locator(".walker").nth(3).focus()
    page.page.keyboard.press("Enter")
    wait_for_details(page, 4)
    level = float(page.page.locator("#level").input_value())
    row = page.frames[page.step][6:8]
    about = {"model": "spiral-dae@1", "x": [row], "sigma": level}
    for estimator in ("asymptotic", "inverted"):
        page.page.locator("#estimator").select_option(estimator)
        body = {**about, "rank": 2, "estimator": estimator}
        moments = server.http.post("/moments", json=body).json()
        rebuilt = server.http.post("/reconstruct", json=about).json()["reconstruction"][0]
        expected = np.array([row, rebuilt, moments["mean"][0], row]).T
        page.until(lambda e=expected: np.allclose(table(page), e, rtol=6e-3, atol=1e-9))
        values = page.page.locator("#spectrum li > span:last-child").all_text_contents()
        assert np.allclose([float(v) for v in values], moments["eigenvalues"][0], rtol=6e-3)


def test_the_details_of_a_walker_show_how_far_to_trust_it(visit: Open, server: Any) -> None:
    """At the noise level for clean rows, which is the default."""
    page = visit().go(SPIRAL).pause_at(4)
    page.page.locator(".walker").nth(3).focus()
    page.page.keyboard.press("Enter")
    wait_for_details(page, 4)
    detail = server.http.get("/models/spiral-dae").json()
    assert float(page.page.locator("#level").input_value()) == detail["moments_sigma"]
    body = {"model": "spiral-dae@1", "x": [page.frames[page.step][6:8]]}
    body |= {"include": ["trust", "dimension"], "estimator": "inverted"}
    page.page.locator("#estimator").select_option("inverted")
    moments = server.http.post("/moments", json=body).json()
    [trust], [dimension] = moments["trust"], moments["dimension"]
    shown = page.page.locator("#trust-warnings li")
    page.until(lambda: shown.all_text_contents() == trust["warnings"])
    figures = page.page.locator("#trust dd").all_text_contents()
    names = page.page.locator("#trust dt").all_text_contents()
    found = dict(zip(names, figures, strict=True))
    assert float(found["Local dimension"]) == pytest.approx(dimension, rel=6e-3)
    assert float(found["Typicality"].split()[0]) == pytest.approx(trust["typicality"], rel=6e-3)
    assert found["Clipped"] == str(trust["clipped"])


def table(page: Any) -> Any:
    cells = page.page.locator("#portraits td").all_text_contents()
    return np.array([float(cell) for cell in cells]).reshape(2, 4)


def test_sliders_move_by_standard_deviations_along_tangents(visit: Open, server: Any) -> None:
    page = visit().go(SPIRAL).pause_at(4)
    page.page.locator(".walker").nth(2).focus()
    page.page.keyboard.press("Enter")
    wait_for_details(page, 3)
    row = page.frames[page.step][4:6]
    level = float(page.page.locator("#level").input_value())
    body = {"model": "spiral-dae@1", "x": [row], "rank": 2, "sigma": level}
    moments = server.http.post("/moments", json=body).json()
    deviations = np.sqrt(np.maximum(0, moments["eigenvalues"][0]))
    sliders = page.page.locator("#tangents input")
    for k, t in enumerate((1.5, -0.5)):
        sliders.nth(k).fill(str(t))
    expected = np.array(row) + np.array([1.5, -0.5]) * deviations @ np.array(moments["tangents"][0])
    page.until(lambda: np.allclose(table(page)[:, 3], expected, rtol=6e-3, atol=1e-9))
    page.click("walk-from")
    page.until(lambda: "points=" in page.page.evaluate("location.hash"))
    page.wait_for_step(2)
    page.click("back")
    page.until(lambda: np.allclose(table(page)[:, 3], row, rtol=6e-3))


def red(x: Any, detail: dict[str, Any]) -> Any:
    """The red value that shows x, from the smallest to the largest value of the data."""
    low, high = min(detail["low"]), max(detail["high"])
    return np.clip(17 + (250 - 17) * (x - low) / (high - low), 17, 250)


@pytest.fixture(scope="module")
def digits(server: Any) -> dict[str, Any]:
    detail: dict[str, Any] = server.http.get("/models/digits-dae").json()
    return detail


def test_images_are_drawn_in_the_shape_and_range_of_the_data(visit: Open, digits: Any) -> None:
    page = visit().go(PLAN).pause_at(5)
    x = np.array(page.frames[page.step]).reshape(6, 64)
    page.page.wait_for_timeout(100)
    for walker in range(6):
        drawn = pixels(page, ".walker canvas", walker)
        assert np.abs(drawn - red(x[walker], digits)).max() <= 1


def test_a_drawing_is_painted_with_pointer_and_keyboard(visit: Open) -> None:
    page = visit().go(PLAN).wait_for_step(1)
    pad = page.page.locator("#pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 10, steps=4)
    page.page.mouse.up()
    assert pad_of(page)[4, 3] > 100 and pad_of(page)[4, 0] < 30
    pad.focus()
    for key in (*["ArrowLeft"] * 4, " "):
        page.page.keyboard.press(key)
    assert pad_of(page)[4, 0] == 250
    assert page.text("pad-said") == "row 5, column 1 painted"
    page.click("reconstruct")
    page.until(lambda: page.page.locator("#rebuilt canvas").count())
    assert "off by" in page.text("rebuilt-words")


def test_hidden_pixels_are_those_that_were_painted(visit: Open) -> None:
    page = visit().go(PLAN).pause_at(2)
    page.page.get_by_text("Hide", exact=True).click()
    pad = page.page.locator("#pad")
    for column in (1, 4):  # of eight; the brush is wider than a pixel
        box = pad.bounding_box()
        pad.click(position={"x": box["width"] * (column + 0.5) / 8, "y": box["height"] * 2.5 / 8})
    page.click("fill-in")
    page.until(lambda: page.text("clamped-words"))
    mask = json.loads(page.text("curl").partition('"mask":')[2].partition("]")[0] + "]")
    hidden = {i for i, known in enumerate(mask) if not known}
    assert {2 * 8 + 1, 2 * 8 + 4} <= hidden and len(hidden) < 20
    assert page.text("clamped-words").startswith(f"{64 - len(hidden)} of 64")


def test_hidden_pixels_are_filled_in_and_the_others_stay_fixed(visit: Open) -> None:
    page = visit().go(PLAN).pause_at(8)
    page.click("use-sample", "half")
    known = np.float32(page.frames[page.step][:32])
    page.page.evaluate("window.seen = []")
    page.page.locator("#emit").select_option("noisy")
    page.click("fill-in")
    page.wait_for_step(6).click("play")
    assert page.text("clamped-words") == "32 of 64 values are known, the rest is drawn given them."
    x = np.array(page.frames[6]).reshape(6, 64)
    assert np.abs(x[:, :32] - known).max() < 1e-6 and x[:, 32:].std(axis=0).min() > 0
    page.click("release")
    page.until(lambda: not page.page.locator("#clamped").is_visible())


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


RAMP = np.arange(64) / 63
ROWS: list[tuple[str, str, bytes, str]] = [
    ("a.npy", "", npy(RAMP.reshape(8, 8)), ""),
    ("b.npy", "", npy(np.stack([RAMP, RAMP[::-1]]).astype(">f4")), "2 rows; the first is used"),
    ("c.csv", "text/csv", ",".join(map(str, RAMP)).encode(), ""),
]


def test_a_row_is_read_from_a_file_unchanged(visit: Open, digits: Any) -> None:
    page = visit().go(PLAN).wait_for_step(1)
    for name, kind, content, words in ROWS:
        page.click("clear")
        sent = {"name": name, "mimeType": kind, "buffer": content}
        page.page.locator("#file").set_input_files(sent)
        page.until(lambda: pad_of(page).max() == 250)
        assert np.abs(pad_of(page).ravel() - red(RAMP, digits)).max() <= 1, name
        assert words in page.notice


def test_an_image_of_another_size_is_resized_and_said(visit: Open) -> None:
    page = visit().go(PLAN).wait_for_step(1)
    stream = io.BytesIO()
    Image.fromarray(np.repeat(np.repeat(np.eye(8), 5, 0), 5, 1).astype(np.uint8) * 255).save(
        stream, "png"
    )
    sent = {"name": "big.png", "mimeType": "image/png", "buffer": stream.getvalue()}
    page.page.locator("#file").set_input_files(sent)
    page.until(lambda: "resized from 40 × 40 to 8 × 8" in page.notice)
    drawn = pad_of(page)
    assert (drawn.argmax(axis=0) == np.arange(8)).all() and drawn[0, 7] < 30


def test_typed_columns_stay_fixed_and_the_others_are_filled_in(visit: Open) -> None:
    page = visit().go("#model=gaussian@1&walkers=5&seed=1").wait_for_step(1)
    fields = page.page.locator("#fields input[type=number]")
    for j, value in enumerate((0.5, 12, 1, 3)):
        fields.nth(j).fill(str(value))
    page.page.locator("#fields input[type=checkbox]").nth(3).uncheck()
    page.page.evaluate("window.seen = []")
    page.click("fill-in")
    page.wait_for_step(4)
    x = np.array(page.frames[4]).reshape(5, 4)
    assert np.allclose(x[:, :3], [0.5, 12, 1], atol=1e-4) and x[:, 3].std() > 0
    fields.nth(0).fill("")
    page.click("reconstruct")
    page.until(lambda: "is empty" in page.notice)


def test_mixing_figures_equal_their_definitions(visit: Open) -> None:
    """The figures of the page equal NumPy's on an autoregression with a known correlation."""
    rng = np.random.default_rng(1)
    T, W, d = 300, 7, 3
    x = np.zeros((T, W, d))
    for t in range(1, T):
        x[t] = 0.8 * x[t - 1] + 0.6 * rng.standard_normal((W, d))
    page = visit().go(PLAN).wait_for_step(1)
    found = page.page.evaluate(MEASURE, [x.reshape(T, -1).tolist(), W, d])
    norm = (x**2).sum(axis=2)  # (T, W)
    c = norm - norm.mean()
    rho = [(c[: T - k] * c[k:]).mean() / (c**2).mean() for k in range(61)]
    assert np.allclose(found["autocorrelation"][0], rho)
    assert abs(found["autocorrelation"][1][1] - 0.8) < 0.08
    halves = np.concatenate([norm[:150], norm[150:]], axis=1)  # (n, 2W)
    within, between = halves.var(axis=0, ddof=1).mean(), halves.mean(axis=0).var(ddof=1)
    assert found["rhat"] >= np.sqrt((149 / 150 * within + between) / within) - 1e-12
    jumps = ((x[1:] - x[:-1]) ** 2).sum(axis=2).mean()
    assert np.isclose(found["jump"], jumps / (2 * x.var(axis=1, ddof=1).sum(axis=1).mean()))


MEASURE = """async ([frames, walkers, dims]) => {
  const { Diagnostics } = await import("/web/diagnostics.js");
  const diagnostics = new Diagnostics(walkers, dims);
  for (const frame of frames) diagnostics.add(Float64Array.from(frame));
  return diagnostics.summary();
}"""


def test_diagnostics_grow_with_the_chain(visit: Open) -> None:
    page = visit().go(PLAN)
    page.page.locator("#rate").fill("30")
    page.wait_for_step(40)
    page.until(lambda: int(page.text("kept").split()[0]) >= 40)
    assert float(page.text("rhat")) > 0.9 and float(page.text("jump")) > 0
    assert page.page.locator("#curves polyline").count() == 4
