"""The page on a phone, in the dark, by keyboard alone, and for screen readers."""

import re
from collections.abc import Callable

import pytest

from tests.browser.double import PAGE
from tests.browser.opened import Opened
from tests.browser.scene import BLUE, RED

FIRST = "#2e90fa"
NAMELESS = """() => [...document.querySelectorAll('button, input, select, canvas[tabindex]')]
  .filter((e) => e.checkVisibility() && !e.ariaLabel && !e.innerText?.trim())
  .filter((e) => !e.labels?.length && !e.getAttribute('aria-labelledby'))
  .map((e) => e.outerHTML.slice(0, 120))"""
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}


def test_on_a_phone_taps_select_and_panels_are_sheets(visit: Callable[..., Opened]) -> None:
    page = visit(**PHONE)
    assert page.page.locator("#panel").is_hidden()
    tools = page.page.locator("#tools").bounding_box()
    assert tools["y"] > 700
    assert page.page.evaluate("() => document.documentElement.scrollWidth") == 390
    page.page.touchscreen.tap(*page.at(110, 160))
    page.until(lambda: page.is_like(150, 190, color=FIRST, of=RED))
    page.page.get_by_role("button", name="Exclude").tap()
    page.page.touchscreen.tap(*page.at(170, 190))
    page.until(lambda: page.is_like(160, 205, color=FIRST, share=0, of=RED))
    page.quiet()
    page.page.tap("#panel-toggle")
    page.until(page.page.locator(".object").is_visible)
    panel = page.page.locator("#panel")
    page.until(lambda: page.at(0, 320)[1] <= panel.bounding_box()["y"])  # the picture is above it
    page.page.tap("#panel-close")

    page.until(panel.is_hidden)
    assert page.double.clicked["labels"] == [1, 0]


def test_on_a_phone_two_fingers_zoom(visit: Callable[..., Opened]) -> None:
    page = visit(**PHONE)
    before = page.at(361, 150)[0] - page.at(360, 150)[0]
    (x, y), client = page.at(240, 160), page.page.context.new_cdp_session(page.page)
    for kind, gap in (("touchStart", 30), ("touchMove", 60), ("touchMove", 90), ("touchEnd", None)):
        points = (
            []
            if gap is None
            else [{"x": x - gap, "y": y, "id": 1}, {"x": x + gap, "y": y, "id": 2}]
        )
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    page.until(lambda: page.at(361, 150)[0] - page.at(360, 150)[0] > 2 * before)
    assert not page.state()["objects"]


@pytest.mark.parametrize("size", [(390, 844), (768, 1024), (1440, 900)])
def test_nothing_is_cut_off(visit: Callable[..., Opened], size: tuple[int, int]) -> None:
    page = visit(viewport={"width": size[0], "height": size[1]})
    page.open_clip()
    for name in ("Undo", "Play", "Track", "Export", "Open", "Start a new object", "Zoom in"):
        box = page.page.get_by_role("button", name=name, exact=True).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]
        assert box["y"] + box["height"] <= size[1]


def lightness(page: Opened) -> float:
    color = page.page.evaluate(
        "() => getComputedStyle(document.getElementById('panel')).backgroundColor"
    )
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 765


def test_dark_when_the_system_is_and_a_switch(visit: Callable[..., Opened]) -> None:
    page = visit(color_scheme="dark")
    assert lightness(page) < 0.2
    page.page.click("#theme")
    page.until(lambda: lightness(page) > 0.9)
    page.page.reload()
    page.until(lambda: lightness(page) > 0.9)  # the choice is kept

    assert lightness(visit(color_scheme="light")) > 0.9


def test_by_keyboard_alone(page: Opened) -> None:
    keys = page.page.keyboard
    reached = []
    for _ in range(40):
        keys.press("Tab")
        reached.append(
            page.page.evaluate(
                "() => document.activeElement.id || document.activeElement.className"
            )
        )
        if reached[-1] == "view":
            break
    assert reached[-1] == "view", reached
    for key in ("ArrowLeft", *["ArrowLeft"] * 20):
        keys.press(key)
    keys.press("Enter")
    page.until(lambda: page.is_like(150, 190, color=FIRST, of=RED))
    keys.press("n")
    keys.press("b")
    for key in (
        *["ArrowRight"] * 28,
        *["ArrowUp"] * 20,
        "Enter",
        *["ArrowDown"] * 40,
        *["ArrowRight"] * 40,
        "Enter",
    ):
        keys.press(key)
    page.until(lambda: page.is_like(330, 190, color="#f97316", of=BLUE))
    keys.press("Control+s")
    keys.press("ArrowDown")
    with page.page.expect_download():
        keys.press("Enter")

    page.until(lambda: page.page.locator("dialog").count() == 0)


def test_a_toolbar_is_one_tab_stop_with_arrows(page: Opened) -> None:
    page.page.focus("[data-tool=point]")
    page.page.keyboard.press("ArrowDown")
    assert page.page.evaluate("() => document.activeElement.dataset.tool") == "box"
    page.page.keyboard.press("Enter")
    page.until(lambda: page.state()["tool"] == "box")
    page.page.keyboard.press("Tab")

    assert page.page.evaluate("() => document.activeElement.dataset.tool") is None
    assert page.page.locator("#tools [tabindex='0']").count() == 1


def test_focus_can_be_seen(page: Opened) -> None:
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Tab")
    style = "() => getComputedStyle(document.activeElement).outlineStyle"

    assert page.page.evaluate(style) == "solid"


def test_question_mark_lists_the_keys(page: Opened) -> None:
    page.page.keyboard.press("?")
    help_text = page.page.locator("dialog").inner_text()
    assert "New object" in help_text
    page.page.get_by_label("Keys without Ctrl").uncheck()
    page.page.keyboard.press("Escape")
    page.page.locator("#view").focus()
    page.page.keyboard.press("b")

    assert page.state()["tool"] == "point"  # single keys are off


def test_hovering_a_button_says_what_it_does(page: Opened) -> None:
    page.page.hover("[data-tool=box]")

    page.until(lambda: page.page.locator("#hint").is_visible())
    assert "drag" in page.page.locator("#hint").inner_text()


def test_a_phone_says_how_far_a_track_is(visit: Callable[..., Opened]) -> None:
    page = visit(**PHONE)
    page.double.holds_at = 9
    page.open_clip()
    page.page.touchscreen.tap(*page.at(80, 160))
    page.until(lambda: page.double.clip.prompts)
    page.page.tap("#track")
    words = page.page.locator(".progress span")
    page.until(lambda: words.inner_text().startswith("9 of 40"))

    bar = page.page.locator(".transport progress").bounding_box()
    assert bar["width"] >= 40
    cancel = page.page.locator("#cancel-track").bounding_box()
    assert cancel["x"] + cancel["width"] <= 390
    page.page.tap("#cancel-track")
    page.until(lambda: page.state()["tracking"] is None)


def test_a_button_that_is_hidden_meanwhile_says_nothing(page: Opened) -> None:
    page.page.hover("[data-tool=box]")
    page.page.evaluate("document.querySelector('.tools').style.display = 'none'")
    page.page.wait_for_timeout(600)  # longer than the rest after which a hint is shown

    assert not page.page.locator("#hint").is_visible()


def test_every_control_has_a_name(page: Opened) -> None:
    page.click(110, 160)
    page.open_clip()
    page.click(80, 160)
    assert page.page.evaluate(NAMELESS) == []


def test_nothing_moves_where_that_is_asked_for(visit: Callable[..., Opened]) -> None:
    page = visit(reduced_motion="reduce")
    moving = "() => document.getAnimations().length"
    page.open_clip()
    page.click(80, 160)

    assert page.page.evaluate(moving) == 0


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG defines it."""

    def light(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_text_can_be_read(theme: int) -> None:
    rules = re.findall(r":root[^{]*\{([^}]*)\}", (PAGE / "css" / "base.css").read_text())
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", rules[theme]))
    for text in ("text", "quiet", "good", "warn", "bad"):
        for ground in ("panel", "raised", "soft", "back"):
            assert contrast(colors[text], colors[ground]) >= 4.5, (text, ground)
    assert contrast(colors["accent"], colors["accent-text"]) >= 4.5
    assert contrast(colors["line-strong"], colors["panel"]) >= 3


def test_no_part_is_too_long_and_none_names_an_address() -> None:
    files = [path for path in PAGE.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    assert len(files) > 30
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 400, path.name
        plain = text.replace("http://www.w3.org/", "")
        assert "http:" not in plain, path.name
        assert "https:" not in plain, path.name
