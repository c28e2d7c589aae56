"""The pictures of the page in the README: a browser on a server with the built-in model.

    .venv/bin/python docs/page_pictures.py    # needs `samgraph[serve,video,browser]` and chromium

They are written to `media/page-*.webp`.
"""

import io
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright

import samgraph
from samgraph.serve.app import make_app
from samgraph.serve.options import ServeOptions

MEDIA = Path(__file__).resolve().parent / "media"
DESK = {"viewport": {"width": 1440, "height": 900}}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}
VIEW = "async () => ({ ...(await import('/static/js/view.js')).view })"
IS_TRACKING = "async () => (await import('/static/js/state.js')).state.tracking !== null"


def at(page: Page, x: float, y: float) -> tuple[float, float]:
    """A position of the picture, in pixels of the window."""
    view, box = page.evaluate(VIEW), page.locator("#view").bounding_box()
    if box is None:
        raise SystemExit("the page shows no picture")
    return box["x"] + view["x"] + x * view["scale"], box["y"] + view["y"] + y * view["scale"]


def open_sample(page: Page, name: str) -> None:
    """Open a sample and wait for it."""
    page.click("#open")
    title = page.locator(f"[data-sample={name}]").inner_text()
    page.click(f"[data-sample={name}]")
    page.locator("#name", has_text=title).wait_for(state="attached")
    page.wait_for_timeout(1500)


def click(page: Page, x: float, y: float, **options: Any) -> None:
    """Click on the picture and wait for the mask."""
    page.mouse.click(*at(page, x, y), **options)
    page.wait_for_timeout(1200)


def name_object(page: Page, number: int, name: str) -> None:
    """Call an object by its name."""
    field = page.locator(".object .name").nth(number)
    field.fill(name)
    field.press("Enter")


def keep(page: Page, name: str, width: int | None = None) -> None:
    """Write what the window shows."""
    page.mouse.move(5, 600)
    page.wait_for_timeout(800)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    if width is not None:
        image = image.resize((width, image.height * width // image.width), Image.Resampling.LANCZOS)
    image.save(MEDIA / f"page-{name}.webp", quality=82, method=6)


def picture(page: Page) -> None:
    """Two objects of a photograph."""
    open_sample(page, "coffee")
    page.mouse.move(*at(page, 165, 8))
    page.mouse.down()
    page.mouse.move(*at(page, 425, 312), steps=8)
    page.mouse.up()
    page.wait_for_timeout(1000)
    click(page, 255, 112)
    name_object(page, 0, "cup")
    page.click("#next-object")
    click(page, 368, 282)
    name_object(page, 1, "spoon")
    keep(page, "picture")


def video(page: Page) -> None:
    """A tracked clip with an effect, in the dark."""
    open_sample(page, "cup")
    click(page, 115, 150)
    name_object(page, 0, "cup")
    page.click("#track")
    page.wait_for_timeout(1000)
    while page.evaluate(IS_TRACKING):
        page.wait_for_timeout(500)
    page.get_by_label("Frame", exact=True).fill("8")
    page.keyboard.press("Enter")
    page.click("#tab-effects")
    page.click("[data-effect=grey]")
    keep(page, "video-dark")


def phone(page: Page) -> None:
    """The same page on a phone."""
    open_sample(page, "coffee")
    page.touchscreen.tap(*at(page, 368, 282))
    page.wait_for_timeout(1500)
    page.tap("#panel-toggle")
    keep(page, "phone", width=520)


def main() -> None:
    """Serve, look, write."""
    options = ServeOptions(folder=Path(tempfile.mkdtemp()))
    config = uvicorn.Config(make_app(samgraph.load(), options), port=0, log_level="error")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for make, look in (
            (picture, DESK),
            (video, {**DESK, "color_scheme": "dark"}),
            (phone, PHONE),
        ):
            page = browser.new_context(**look).new_page()
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_timeout(2500)
            make(page)
        browser.close()
    server.should_exit = True
    shutil.rmtree(options.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
