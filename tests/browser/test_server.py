"""The page on the real server with the built-in model: click, track, take away."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samgraph
from samgraph.media.mask import rle as run_lengths
from samgraph.media.video.writer import VideoWriter
from samgraph.serve.app import make_app
from samgraph.serve.options import ServeOptions
from samgraph.serve.samples import clip_frame
from tests.browser.double import Double
from tests.browser.opened import Opened
from tests.browser.serving import serving

pytest.importorskip("av")

CUP = (110, 150)  # on the first frames of the clip
FRAMES = 5


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on the built-in model."""
    options = ServeOptions(folder=tmp_path_factory.mktemp("sessions"))
    with serving(make_app(samgraph.load(), options)) as found:
        yield found


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Opened]:
    """The page in an ordinary window, with its sample picture."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = Opened(context, address, Double())
    opened.open()
    yield opened
    opened.check()
    context.close()


def test_a_click_on_the_sample_gives_a_mask_to_take_away(page: Opened) -> None:
    grid = [(x, y) for x in range(20, 440, 60) for y in range(20, 290, 60)]
    before = {at: page.pixel(*at) for at in grid}
    page.click(225, 150)
    page.page.mouse.move(2, 2)
    page.until(lambda: not page.state()["hover"])
    page.quiet()
    page.page.keyboard.press("Control+s")
    page.page.check("input[value=coco]")
    with page.page.expect_download() as download:
        page.page.click("#do-export")
    (annotation,) = json.loads(download.value.path().read_bytes())["annotations"]

    encoded = annotation["segmentation"]
    mask = run_lengths.decode({"size": encoded["size"], "counts": encoded["counts"].encode()})
    assert mask[150, 225]
    tinted = {at for at in grid if page.pixel(*at) != before[at]}
    inside = {(x, y) for x, y in grid if mask[y, x]}
    assert len(tinted ^ inside) <= 2  # on the outline
    assert len(inside) >= 5


def test_a_clip_is_tracked_corrected_and_taken_away(page: Opened, tmp_path: Path) -> None:
    file = tmp_path / "cup.mp4"
    with VideoWriter(file, clip_frame(0).shape[:2], rate=12, quality=23) as video:
        for number in range(FRAMES):
            video.write(clip_frame(number))
    page.drop(("cup.mp4", "video/mp4", file.read_bytes()))
    page.page.locator("#timeline").wait_for(state="visible")
    page.until(lambda: page.pixel(20, 20)[3] == 255)
    page.click(*CUP)
    page.page.click("#track")
    tracked = page.page.locator(f".lane-names button[aria-label*=' {FRAMES} tracked']")
    page.until(lambda: page.state()["tracking"] is None and tracked.count() == 1)
    page.page.focus("#strip")
    page.page.keyboard.press("End")
    page.until(lambda: page.state()["frame"] == FRAMES - 1)
    page.page.locator("#view").focus()
    page.until(lambda: page.page.locator(".object .score").inner_text() not in ("", "absent"))
    page.click(CUP[0] + 20, 110)
    page.page.locator(".stale").wait_for(state="visible")
    page.page.click("#track")
    page.until(lambda: page.state()["tracking"] is None and page.state()["stale"] is None)
    page.page.keyboard.press("Control+s")
    page.page.check("input[value=davis]")
    with page.page.expect_download() as download:
        page.page.click("#do-export")

    assert download.value.suggested_filename.endswith(".zip")
    assert np.frombuffer(download.value.path().read_bytes()[:2], np.uint8).tobytes() == b"PK"
