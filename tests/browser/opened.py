"""The page, opened: where things are on it, what colour its pixels have, what went wrong in it."""

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from tests.browser.double import Double
from tests.tolerances import COLOUR_STEPS

SECONDS = 180.0  # as long as a busy machine may need; nothing is faster for it being short
VIEW = "async () => { const { view } = await import('/static/js/view.js'); return { ...view }; }"
STATE = """async () => {
  const { state } = await import('/static/js/state.js');
  const { objects, activeId, frame, playing, tool, tracking, stale, effect, results } = state;
  return {
    objects, activeId, frame, playing, tool, tracking, stale, effect, results,
    hover: Boolean(state.hover), found: state.found?.masks.length ?? null,
    lit: state.found?.lit ?? null,
  };
}"""
PIXEL = """([x, y]) => {
  const canvas = document.getElementById('view'), ratio = canvas.width / canvas.clientWidth;
  const [column, row] = [Math.round(x * ratio), Math.round(y * ratio)];
  return [...canvas.getContext('2d').getImageData(column, row, 1, 1).data];
}"""
COUNT = """(() => {
  const fetched = window.fetch;
  window.pending = 0;
  window.begun = 0;
  window.fetch = async (...given) => {
    window.pending += 1;
    window.begun += 1;
    try {
      const response = await fetched(...given);
      await response.clone().arrayBuffer();
      return response;
    } finally {
      setTimeout(() => { window.pending -= 1; }, 0);
    }
  };
})()"""
PAINTED = """async (times) => {
  const frame = () => new Promise((next) => requestAnimationFrame(() => setTimeout(next, 0)));
  for (let time = 0; time < times; time += 1) await frame();
}"""
QUIET = """async () => {
  const { settled } = await import('/static/js/video.js');
  const frame = () => new Promise((next) => requestAnimationFrame(() => setTimeout(next, 0)));
  for (let begun = -1; window.pending || begun !== window.begun; await frame()) {
    begun = window.begun;
    await settled();
    await frame();
  }
}"""
WATCH = """async () => {
  const { state, watch } = await import('/static/js/state.js');
  window.seen = [];
  watch(['frame', 'playing', 'tracking'], () => {
    window.seen.push([state.frame, state.playing, state.tracking !== null]);
  });
}"""
FILMSTRIP = (
    """() => [...document.querySelectorAll('#strip img')].every((image) => image.complete)"""
)
DROP = """(files) => {
  const transfer = new DataTransfer();
  for (const [name, type, bytes] of files) {
    transfer.items.add(new File([new Uint8Array(bytes)], name, { type }));
  }
  return transfer;
}"""


class Opened:
    """A window with the page in it."""

    def __init__(self, context: Any, address: str, double: Double) -> None:
        self.page, self.address, self.double = context.new_page(), address, double
        self.wrong: list[str] = []
        self.expected = ["willReadFrequently"]  # said of `pixel` here; a test adds what it provokes
        self.page.set_default_timeout(SECONDS * 1000)
        self.page.add_init_script(COUNT)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._asked)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _asked(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if (
            parts.scheme not in ("data", "blob")
            and f"{parts.scheme}://{parts.netloc}/" != self.address
        ):
            self.wrong.append(f"asked another origin: {request.url}")

    def check(self) -> None:
        """Nothing was said on the console, no other origin was asked."""
        wrong = [text for text in self.wrong if not any(part in text for part in self.expected)]
        assert not wrong, "\n".join(wrong)

    def open(self, path: str = "") -> None:
        """Load the page and wait for its picture."""
        self.page.goto(self.address + path)
        self.until(lambda: self.page.locator("#facts").text_content() != "")
        self.until(lambda: self.pixel(20, 20) != [0, 0, 0, 0])

    def until(self, is_so: Callable[[], object], seconds: float = SECONDS) -> None:
        """Wait until something is so."""
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, "waited in vain"
            self.page.wait_for_timeout(20)

    def quiet(self) -> None:
        """Wait until every request is answered, what follows from it done, and the page painted."""
        self.page.evaluate(QUIET)

    def painted(self, times: int = 2) -> None:
        """Wait until the page was painted, so that it has seen every event sent before."""
        self.page.evaluate(PAINTED, times)

    def watch(self) -> None:
        """From now on, note each (frame, playing, tracking) of the page: see `seen`."""
        self.page.evaluate(WATCH)

    def seen(self) -> list[tuple[int, bool, bool]]:
        """What `watch` has noted, however briefly it was so."""
        return [tuple(entry) for entry in self.page.evaluate("() => window.seen")]

    def state(self) -> dict[str, Any]:
        """What the page knows."""
        known: dict[str, Any] = self.page.evaluate(STATE)
        return known

    def at(self, x: float, y: float) -> tuple[float, float]:
        """A position of the picture, in pixels of the window."""
        view, box = self.page.evaluate(VIEW), self.page.locator("#view").bounding_box()
        return box["x"] + view["x"] + x * view["scale"], box["y"] + view["y"] + y * view["scale"]

    def pixel(self, x: float, y: float) -> list[int]:
        """The colour that the canvas shows at a position of the picture, RGBA."""
        view = self.page.evaluate(VIEW)
        position = [view["x"] + x * view["scale"], view["y"] + y * view["scale"]]
        color: list[int] = self.page.evaluate(PIXEL, position)
        return color

    def is_like(
        self, x: float, y: float, *, color: str, share: float = 0.5, of: tuple[int, int, int]
    ) -> bool:
        """Whether a pixel is `of` with a share of a colour, but for what JPEG does to it."""
        tint = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
        wanted = [share * t + (1 - share) * o for t, o in zip(tint, of, strict=True)]
        return all(
            abs(w - g) < COLOUR_STEPS for w, g in zip(wanted, self.pixel(x, y)[:3], strict=True)
        )

    def click(self, x: float, y: float, **options: Any) -> None:
        """Click on the picture, and wait for the mask."""
        self.quiet()
        results = self.state()["results"]
        self.page.mouse.click(*self.at(x, y), **options)
        self.until(lambda: self.state()["results"] > results)
        self.quiet()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag over the picture with the left button."""
        self.page.mouse.move(*self.at(*start))
        self.page.mouse.down()
        self.page.mouse.move(*self.at(*end), steps=6)
        self.page.mouse.up()

    def drop(self, *files: tuple[str, str, bytes]) -> None:
        """Drop files on the page."""
        transfer = self.page.evaluate_handle(DROP, [[n, t, list(b)] for n, t, b in files])
        self.page.dispatch_event("#stage", "drop", {"dataTransfer": transfer})

    def open_clip(self) -> None:
        """Open the sample clip."""
        self.page.click("#open")
        self.page.click("[data-sample=clip]")
        self.page.locator("#timeline").wait_for(state="visible")
        self.until(lambda: self.pixel(20, 20)[3] == 255)
        self.until(lambda: self.page.evaluate(FILMSTRIP))
        self.quiet()
