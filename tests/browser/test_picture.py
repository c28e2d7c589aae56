"""A picture on the page: hover, click, box, brush, undo, objects, everything, effects, export."""

import json

import numpy as np

from samgraph.media.mask import rle as run_lengths
from tests.browser.opened import Opened
from tests.browser.scene import BACKGROUND, BLUE, HEIGHT, RED, WIDTH, disc, picture, square
from tests.tolerances import COLOUR_STEPS

THERE_AND_BACK = """async ([rles, masks, width, height]) => {
  const { bitmap, encode, measure } = await import('/static/js/rle.js');
  return rles.map((rle, i) => {
    const bits = bitmap(rle), full = new Uint8Array(width * height);
    for (let y = 0; bits && y < bits.height; y++) {
      const row = bits.data.subarray(y * bits.width, (y + 1) * bits.width);
      full.set(row, (bits.y + y) * width + bits.x);
    }
    const same = full.every((bit, at) => bit === masks[i][at]);
    const again = encode(full, width, height, 1, [height, width]).counts;
    return { same, again, area: measure(rle).area };
  });
}"""
FIRST, SECOND = "#2e90fa", "#f97316"  # the colours of the first two objects


def test_the_sample_is_ready_and_a_click_shows_its_mask(page: Opened) -> None:
    assert page.double.uploads == [("scene.png", 0)]
    page.click(110, 160)

    page.until(lambda: page.is_like(150, 190, color=FIRST, of=RED))
    assert page.is_like(360, 150, color=FIRST, share=0, of=BLUE)
    assert page.is_like(30, 30, color=FIRST, share=0, of=BACKGROUND)
    assert page.page.locator(".object .score").inner_text() == "0.95"
    page.until(lambda: "Mask found" in page.page.locator("#live").inner_text())


def test_a_dropped_picture_is_opened(page: Opened) -> None:
    page.drop(("holiday é.jpg", "image/jpeg", picture([(square(), BLUE)])))

    page.until(lambda: page.page.locator("#name").inner_text().startswith("holiday"))
    name, size = page.double.uploads[-1]
    assert name == "holiday%20%C3%A9.jpg"
    assert size > 1000


def test_a_file_over_the_limit_is_refused_before_it_is_sent(page: Opened) -> None:
    page.drop(("large.jpg", "image/jpeg", bytes(120_000)))

    notice = page.page.locator("#stage-notice")
    page.until(lambda: "120 kB" in notice.inner_text())
    assert "larger limit" in notice.inner_text()
    assert len(page.double.uploads) == 1


def test_a_file_without_anything_in_it_is_refused_by_name(page: Opened) -> None:
    page.drop(("nothing.jpg", "image/jpeg", b""))

    notice = page.page.locator("#stage-notice [role=alert]")
    page.until(lambda: "nothing.jpg is empty" in notice.inner_text())
    with page.page.expect_file_chooser():
        notice.get_by_role("button", name="Choose another file").click()
    assert len(page.double.uploads) == 1


def test_a_sample_clip_is_a_click_away(page: Opened) -> None:
    page.page.click("[data-clip=clip]")

    page.page.locator("#timeline").wait_for(state="visible")
    page.until(lambda: page.page.locator("#name").inner_text() == "A clip")


def test_hovering_shows_the_mask_before_a_click(page: Opened) -> None:
    page.page.mouse.move(*page.at(130, 150))

    page.until(lambda: page.is_like(150, 190, color=FIRST, share=0.3, of=RED))
    assert not page.state()["objects"]
    page.page.mouse.move(*page.at(360, 150))
    page.until(lambda: page.is_like(330, 190, color=FIRST, share=0.3, of=BLUE))
    page.page.mouse.move(*page.at(WIDTH + 5, 150))
    page.until(lambda: not page.state()["hover"])


def test_hovering_can_be_switched_off(page: Opened) -> None:
    page.page.keyboard.press("v")
    page.page.mouse.move(*page.at(130, 150))
    page.painted()
    page.quiet()

    assert page.double.asked("POST", "/predict") == 0
    assert not page.page.locator("#hover").is_checked()


def test_of_a_quick_pointer_the_newest_position_wins(page: Opened) -> None:
    page.double.holds_predictions = True
    (left, y), (right, _) = page.at(20, 150), page.at(360, 150)
    page.page.mouse.move(left, y)
    page.until(lambda: page.double.asked("POST", "/predict") == 1)
    page.page.mouse.move(right, y, steps=120)
    page.painted()
    page.double.holds_predictions = False
    page.until(lambda: page.is_like(330, 190, color=FIRST, share=0.3, of=BLUE))

    assert page.double.most_at_once == 1
    assert page.double.asked("POST", "/predict") == 2


def test_right_click_and_minus_exclude(page: Opened) -> None:
    page.click(110, 160)
    page.click(170, 190, button="right")

    assert page.double.clicked["labels"] == [1, 0]
    page.until(lambda: page.is_like(175, 185, color=FIRST, share=0, of=RED))
    page.page.keyboard.press("-")
    page.click(120, 120)
    assert page.double.clicked["labels"] == [1, 0, 0]
    assert page.double.clicked["refine"] == "t"


def test_clicking_a_point_again_removes_it(page: Opened) -> None:
    page.click(110, 160)
    page.click(360, 150)
    page.until(lambda: page.is_like(330, 190, color=FIRST, of=BLUE))
    page.click(360, 150)

    assert len(page.double.clicked["points"]) == 1
    page.until(lambda: page.is_like(330, 190, color=FIRST, share=0, of=BLUE))


def test_dragging_draws_a_box(page: Opened) -> None:
    page.drag((290, 80), (430, 220))

    page.until(lambda: page.is_like(330, 190, color=FIRST, of=BLUE))
    box = page.double.clicked["box"]
    assert np.allclose(box, (290, 80, 430, 220), atol=1)
    assert page.double.clicked["points"] is None


def test_undo_and_redo(page: Opened) -> None:
    page.page.keyboard.press("v")  # no previews: predictions are counted
    page.click(110, 160)
    page.until(lambda: page.is_like(150, 190, color=FIRST, of=RED))
    page.click(360, 150)
    page.until(lambda: page.is_like(330, 190, color=FIRST, of=BLUE))
    asked = page.double.asked("POST", "/predict")
    page.page.keyboard.press("Control+z")
    page.until(lambda: page.is_like(330, 190, color=FIRST, share=0, of=BLUE))
    assert page.is_like(150, 190, color=FIRST, of=RED)
    page.page.click("#undo")
    page.until(lambda: page.is_like(150, 190, color=FIRST, share=0, of=RED))
    page.until(page.page.locator("#undo").is_disabled)
    page.page.keyboard.press("Control+Shift+z")
    page.page.keyboard.press("Control+y")

    page.until(lambda: page.is_like(330, 190, color=FIRST, of=BLUE))
    assert page.double.asked("POST", "/predict") == asked  # results were kept


def test_the_three_candidates_can_be_chosen(page: Opened) -> None:
    page.click(110, 160)
    tiles = page.page.locator(".candidate")
    page.until(lambda: tiles.count() == 3)
    page.page.keyboard.press("1")  # the left half

    page.until(lambda: page.is_like(180, 160, color=FIRST, share=0, of=RED))
    assert page.is_like(100, 180, color=FIRST, of=RED)
    assert tiles.nth(0).get_attribute("aria-checked") == "true"
    tiles.nth(1).click()
    page.until(lambda: page.is_like(180, 160, color=FIRST, of=RED))
    page.page.keyboard.press("1")
    page.click(110, 200)
    assert page.double.clicked["refine"] == "t.0"  # the chosen mask is refined


def test_painting_and_erasing_by_hand(page: Opened) -> None:
    page.page.keyboard.press("d")
    page.drag((40, 280), (200, 280))
    page.until(lambda: page.is_like(120, 280, color=FIRST, of=BACKGROUND))
    assert page.double.asked("POST", "/predict") == 0
    page.page.keyboard.press("x")
    page.drag((120, 260), (120, 300))

    page.until(lambda: page.is_like(120, 280, color=FIRST, share=0, of=BACKGROUND))
    assert page.is_like(60, 280, color=FIRST, of=BACKGROUND)
    page.page.keyboard.press("p")
    page.click(110, 160)
    sent = page.double.clicked
    mask = run_lengths.decode(
        {"size": sent["mask"]["size"], "counts": sent["mask"]["counts"].encode()}
    )
    assert mask.shape == (HEIGHT, WIDTH)
    assert mask[280, 60]
    assert not mask[280, 120]


def test_several_objects_with_names_and_colours(page: Opened) -> None:
    page.click(110, 160)
    page.page.keyboard.press("n")
    page.click(360, 150)
    page.until(lambda: page.is_like(330, 190, color=SECOND, of=BLUE))
    assert page.is_like(150, 190, color=FIRST, of=RED)
    names = page.page.locator(".object .name")
    names.nth(1).fill("sail")
    names.nth(1).press("Enter")
    page.page.locator(".object").nth(0).get_by_role("button", name="Hide").click()
    page.until(lambda: page.is_like(150, 190, color=FIRST, share=0, of=RED))
    page.page.locator(".object input[type=color]").nth(1).fill("#00ff00")

    page.until(lambda: page.is_like(330, 190, color="#00ff00", of=BLUE))
    page.until(lambda: "i1" in page.double.documents)
    page.until(
        lambda: [o["name"] for o in page.double.documents["i1"]["objects"]] == ["Object 1", "sail"]
    )
    page.page.locator(".object").nth(1).get_by_role("button", name="Remove").click()
    page.until(lambda: page.is_like(330, 190, color=SECOND, share=0, of=BLUE))
    page.until(lambda: names.count() == 1)


def test_everything_lights_up_and_can_be_picked(page: Opened) -> None:
    page.page.keyboard.press("e")
    page.until(lambda: page.state()["found"] == 3)
    page.page.mouse.move(*page.at(140, 162))
    page.until(lambda: page.state()["lit"] == 2)  # the smallest under the pointer
    page.page.mouse.move(*page.at(360, 150))
    page.until(lambda: page.state()["lit"] == 0)
    page.page.mouse.click(*page.at(360, 150))
    page.page.keyboard.press("p")

    page.until(lambda: page.is_like(330, 190, color=FIRST, of=BLUE))
    assert page.page.locator(".object").count() == 1


def is_grey(page: Opened, x: float, y: float) -> bool:
    return int(np.ptp(page.pixel(x, y)[:3])) < COLOUR_STEPS


def test_an_effect_is_live_and_in_the_export(page: Opened) -> None:
    page.click(110, 160)
    page.page.click("#tab-effects")
    page.page.click("[data-effect=grey]")
    page.until(lambda: is_grey(page, 360, 150))
    assert not is_grey(page, 150, 190)
    page.page.keyboard.press("Control+s")
    with page.page.expect_download() as download:
        page.page.click("#do-export")

    written = json.loads(download.value.path().read_bytes())
    assert written["format"] == "effect"
    assert written["effect"] == {"name": "grey", "target": "background"}


def test_an_export_holds_the_masks(page: Opened) -> None:
    page.click(110, 160)
    page.page.click("#export")
    page.page.check("input[value=coco]")
    with page.page.expect_download() as download:
        page.page.click("#do-export")

    assert download.value.suggested_filename == "scene.coco.json"
    (written,) = json.loads(download.value.path().read_bytes())["objects"]
    rle = {"size": written["mask"]["size"], "counts": written["mask"]["counts"].encode()}
    assert np.array_equal(run_lengths.decode(rle), disc())
    assert written["name"] == "Object 1"


def test_a_session_file_goes_down_and_up(page: Opened) -> None:
    page.click(110, 160)
    page.page.click("#export")
    page.page.check("input[value=session]")
    with page.page.expect_download() as download:
        page.page.click("#do-export")
    saved = download.value.path().read_bytes()
    page.page.keyboard.press("Delete")
    page.until(lambda: not page.state()["objects"])
    page.drop(("scene.session.json", "application/json", saved))

    page.until(lambda: page.is_like(150, 190, color=FIRST, of=RED))
    page.drop(("other.json", "application/json", b'{"width": 5, "height": 5, "objects": []}'))
    page.until(lambda: "5 × 5" in page.page.locator("#stage-notice").inner_text())


def test_a_reload_keeps_the_objects(page: Opened) -> None:
    page.click(110, 160)
    page.until(lambda: page.double.documents.get("i1", {}).get("objects"))
    page.page.reload()

    page.until(lambda: page.is_like(150, 190, color=FIRST, of=RED))
    assert len(page.double.uploads) == 1


def test_a_failure_says_what_to_do_and_can_be_tried_again(page: Opened) -> None:
    page.expected.append("422")
    page.page.keyboard.press("v")
    page.double.failures.append(("/predict", 422, "the point is outside", "click inside"))
    page.page.mouse.click(*page.at(110, 160))
    notice = page.page.locator("#stage-notice [role=alert]")
    page.until(lambda: notice.count() == 1)
    assert "The point is outside." in notice.inner_text()
    assert "Click inside." in notice.inner_text()
    notice.get_by_role("button", name="Try again").click()

    page.until(lambda: page.is_like(150, 190, color=FIRST, of=RED))
    page.until(lambda: notice.count() == 0)


def test_a_busy_server_is_asked_again(page: Opened) -> None:
    page.expected.append("503")
    page.page.keyboard.press("v")
    page.double.failures.append(("/predict", 503, "busy", ""))
    page.click(110, 160)

    page.until(lambda: page.is_like(150, 190, color=FIRST, of=RED))


def test_zoom_keeps_what_is_under_the_pointer(page: Opened) -> None:
    def scale() -> float:
        return page.at(361, 150)[0] - page.at(360, 150)[0]

    def is_at(x: float, y: float) -> None:
        page.until(lambda: np.allclose(page.at(360, 150), (x, y), atol=2))

    fit = scale()
    x, y = page.at(360, 150)
    page.page.mouse.move(x, y)
    page.page.mouse.wheel(0, -300)
    page.until(lambda: scale() > 1.2 * fit)
    is_at(x, y)
    page.page.keyboard.press("h")
    page.page.mouse.down()
    page.page.mouse.move(x + 50, y + 20, steps=3)
    page.page.mouse.up()
    is_at(x + 50, y + 20)
    page.page.keyboard.press("p")
    page.page.keyboard.down("Space")
    page.page.mouse.down()
    page.page.mouse.move(x, y, steps=3)
    page.page.mouse.up()
    page.page.keyboard.up("Space")
    is_at(x, y)
    assert not page.state()["objects"]
    page.page.keyboard.press("0")

    page.until(lambda: np.isclose(scale(), fit))


def test_masks_are_encoded_as_the_package_does(page: Opened) -> None:
    """Random masks, there and back."""
    random = np.random.default_rng(5)
    masks = [random.random((23, 17)) < p for p in (0, 0.02, 0.3, 0.9, 1)]
    masks.append(np.pad(np.ones((9, 5), bool), ((7, 7), (6, 6))))
    rles = [run_lengths.encode(mask) for mask in masks]
    texts = [{"size": rle["size"], "counts": rle["counts"].decode()} for rle in rles]
    given = [texts, [mask.ravel().astype(int).tolist() for mask in masks], 17, 23]
    for reply, mask, text in zip(
        page.page.evaluate(THERE_AND_BACK, given), masks, texts, strict=True
    ):
        assert reply["same"]
        assert reply["again"] == text["counts"]
        assert reply["area"] == mask.sum()


def test_a_session_that_the_server_forgot_is_opened_again(page: Opened) -> None:
    page.expected.append("404")
    page.page.keyboard.press("v")
    page.click(110, 160)
    page.double.failures.append(("/predict", 404, "there is no such image", ""))
    page.page.mouse.click(*page.at(360, 150))
    again = page.page.get_by_role("button", name="Open again")
    again.click()

    page.until(lambda: len(page.double.uploads) == 2)
    page.until(lambda: page.is_like(330, 190, color=FIRST, of=BLUE))
    page.until(lambda: page.is_like(150, 190, color=FIRST, of=RED))
    page.until(lambda: "i2" in page.double.documents)
