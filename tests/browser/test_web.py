"""The page without a server, in chromium: the built-in model's masks, with and without a network.

Needs ONNX Runtime for browsers in `node_modules` (`npm install --no-save onnxruntime-web`).
"""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

import samgraph
from samgraph.exporters import ExportOptions
from samgraph.exporters.web.runtime import FILES, PACKAGE, VERSION
from samgraph.media.mask import rle as run_lengths
from samgraph.models.exporting import export_model
from samgraph.serve.samples import MEDIA, clip_frame
from tests.browser.double import Double
from tests.browser.opened import Opened
from tests.browser.serving import serving
from tests.tolerances import WEB_MASKS

pytest.importorskip("onnx")

ROOT = Path(__file__).resolve().parents[2]
CUP = (55, 75)  # on the first frames of the clip, at half its size
FRAMES = 10
IMAGE_SIZE = 256
SEARCH = {  # no mask of the picture is near these limits
    "points_per_side": 4, "pred_iou_thresh": 0.6, "stability_score_thresh": 0.78,
    "box_nms_thresh": 0.8, "min_mask_region_area": 50,
}  # fmt: skip
SECONDS = 240.0  # on a slow machine
ASK = """async ([method, path, body]) => {
  const { ask } = await import('/static/js/transport.js');
  const response = await ask(path, { method, body: body && JSON.stringify(body) });
  return response.status === 204 ? null : response.json();
}"""

FILE = """async ([method, path, body]) => {
  const { ask } = await import('/static/js/transport.js');
  const response = await ask(path, { method, body: body && JSON.stringify(body) });
  return [response.status, Array.from(new Uint8Array(await response.arrayBuffer()))];
}"""


@pytest.fixture(scope="module")
def model() -> Any:
    """The built-in model on small inputs: a browser on a slow machine takes a second for 512."""
    return samgraph.load(image_size=IMAGE_SIZE)


@pytest.fixture(scope="module")
def address(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The exported folder on a plain static host."""
    installed = ROOT / "node_modules" / PACKAGE / "dist"
    if not all((installed / name).is_file() for name in FILES):
        pytest.skip(f"npm install --no-save {PACKAGE}@{VERSION} has not been done")
    folder = tmp_path_factory.mktemp("site")
    export_model(model.core, "web", folder, ExportOptions(runtime=ROOT))
    files = StaticFiles(directory=folder, html=True)
    with serving(Starlette(routes=[Mount("/", files)])) as found:
        yield found


@pytest.fixture(scope="module")
def window(browser: Any, address: str) -> Iterator[Opened]:
    """The page with its sample picture, after its first visit."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = Opened(context, address, Double())
    opened.page.goto(address)
    shown(opened)
    yield opened
    context.close()


@pytest.fixture
def page(window: Opened) -> Iterator[Opened]:
    window.wrong.clear()
    yield window
    window.check()


def shown(opened: Opened) -> None:
    """Wait for the picture; the page loads itself once more when its service worker has begun."""
    opened.page.locator("#facts", has_text="×").wait_for(timeout=SECONDS * 1000)
    opened.until(lambda: opened.pixel(20, 20) != [0, 0, 0, 0], SECONDS)


def iou(rle: dict[str, Any], mask: Any) -> float:
    found = run_lengths.decode({"size": rle["size"], "counts": rle["counts"].encode()})
    return float((found & mask).sum() / max((found | mask).sum(), 1))


def mask_clicked(opened: Opened) -> dict[str, Any]:
    """The mask that the page shows for its object."""
    script = """async () => {
      const { shown } = await import('/static/js/masks.js');
      const { state } = await import('/static/js/state.js');
      return shown(state.objects.at(-1));
    }"""
    found: dict[str, Any] = opened.page.evaluate(script)
    return found


def click(opened: Opened, x: float, y: float) -> None:
    results = opened.state()["results"]
    opened.page.mouse.click(*opened.at(x, y))
    opened.until(lambda: opened.state()["results"] > results, SECONDS)


def test_a_click_gives_the_masks_of_the_package(page: Opened, model: Any) -> None:
    assert page.page.evaluate("crossOriginIsolated")  # threads, though the host sends no headers
    click(page, 225, 150)

    found = mask_clicked(page)
    wanted = model.image(MEDIA / "cat.jpg").predict(points=[(225, 150)])
    assert iou(found["rle"], wanted.mask) >= WEB_MASKS
    assert found["score"] == pytest.approx(float(wanted.scores.max()), abs=0.02)


def test_objects_of_a_picture_are_written_in_every_format(page: Opened) -> None:
    image = page.page.evaluate(ASK, ["POST", "images?sample=cat", {}])
    mask = np.zeros((300, 451), np.bool_)
    mask[40:200, 100:350] = True
    encoded = run_lengths.encode(mask)
    sent = {"size": [300, 451], "counts": encoded["counts"].decode()}
    effect = {"name": "spotlight", "target": "background"}
    body = {
        "objects": [{"id": 1, "name": "cat", "color": "#ff0000", "mask": sent}],
        "effect": effect,
    }

    written = {}
    for format in ("png", "davis", "cutout", "overlay", "effect", "nonsense"):
        path = f"images/{image['id']}/export"
        status, data = page.page.evaluate(FILE, ["POST", path, {**body, "format": format}])
        written[format] = status if status != 200 else Image.open(io.BytesIO(bytes(data)))

    assert written.pop("nonsense") == 400
    assert {picture.size for picture in written.values()} == {(451, 300)}
    assert np.array_equal(np.array(written["png"]) == 255, mask)
    assert np.array_equal(np.array(written["davis"]) == 1, mask)
    assert np.array_equal(np.array(written["cutout"])[:, :, 3] > 127, mask)
    cat = np.array(Image.open(MEDIA / "cat.jpg").convert("RGB"), np.float32)
    for name, where in (("overlay", mask), ("effect", ~mask)):
        changed = np.abs(np.array(written[name].convert("RGB")) - cat).mean(axis=2)
        assert changed[where].mean() > 20 > 8 > changed[~where].mean()


def test_everything_finds_the_objects_of_the_package(page: Opened, model: Any) -> None:
    image = page.page.evaluate(ASK, ["POST", "images?sample=coffee", {}])
    found = page.page.evaluate(ASK, ["POST", f"images/{image['id']}/everything", SEARCH])["masks"]

    wanted = model.everything(MEDIA / "coffee.jpg", progress=False, **SEARCH)
    assert len(found) == len(wanted) > 1
    for segment in wanted:
        assert max(iou(mask["rle"], segment.mask) for mask in found) >= WEB_MASKS


def test_ten_frames_are_tracked_and_corrected_as_by_the_package(
    page: Opened, model: Any, tmp_path: Path
) -> None:
    files = []
    for number in range(FRAMES):
        picture = io.BytesIO()
        frame = Image.fromarray(clip_frame(number)).reduce(2)
        frame.save(picture, "PNG")
        (tmp_path / f"{number:05}.png").write_bytes(picture.getvalue())
        files.append((f"{number:05}.png", "image/png", picture.getvalue()))
    page.drop(*files)
    page.page.locator("#timeline").wait_for(state="visible", timeout=SECONDS * 1000)
    page.until(lambda: page.pixel(20, 20)[3] == 255, SECONDS)
    click(page, *CUP)
    tracked = page.page.locator(f".lane-names button[aria-label*=' {FRAMES} tracked']")
    page.page.click("#track")
    page.until(lambda: page.state()["tracking"] is None and tracked.count() == 1, SECONDS)
    medium = page.page.evaluate("async () => (await import('/static/js/state.js')).state.medium.id")
    masks = page.page.evaluate(ASK, ["GET", f"videos/{medium}/masks?from=0&to={FRAMES}", None])
    job = page.page.evaluate(ASK, ["POST", f"videos/{medium}/export", {"format": "davis"}])["job"]
    written_yet = ["GET", f"jobs/{job}", None]
    page.until(lambda: page.page.evaluate(ASK, written_yet)["state"] == "done", SECONDS)
    _, archive = page.page.evaluate(FILE, ["GET", f"jobs/{job}/file", None])
    click(page, CUP[0] + 15, 95)  # a correction of the first frame

    video = model.video(tmp_path)
    video.add(frame=0, object=1, points=[CUP])
    results = {result.index: result.masks[0] for result in video.track()}
    assert [entry["frame"] for entry in masks["frames"]] == list(range(FRAMES))
    for entry in masks["frames"]:
        assert iou(entry["objects"][0]["rle"], results[entry["frame"]]) >= WEB_MASKS
    with zipfile.ZipFile(io.BytesIO(bytes(archive))) as written:
        assert written.namelist() == [f"{number:05}.png" for number in range(FRAMES)]
        last = np.array(Image.open(io.BytesIO(written.read(written.namelist()[-1]))))
    assert iou(masks["frames"][-1]["objects"][0]["rle"], last == 1) == 1
    again = video.add(frame=0, object=1, points=[CUP, (CUP[0] + 15, 95)], replace=True)
    assert iou(mask_clicked(page)["rle"], again.masks[0]) >= WEB_MASKS


def test_the_page_works_without_a_network_after_the_first_visit(page: Opened) -> None:
    missing = """async () => {
      const text = await (await fetch('/sw.js')).text();
      const listed = (name) => JSON.parse(new RegExp(`${name} = (.*);`).exec(text)[1]);
      const found = await Promise.all([...listed('PAGE'), ...listed('REST')].map(
        async (file) => Boolean(await caches.match(new URL(file, location.origin)))));
      return found.filter((isThere) => !isThere).length;
    }"""
    page.until(lambda: page.page.evaluate(missing) == 0, SECONDS)
    page.page.context.set_offline(True)
    try:
        page.page.goto(page.address)
        shown(page)
        click(page, 225, 150)
        assert mask_clicked(page)["area"] > 0
    finally:
        page.page.context.set_offline(False)


def test_what_cannot_be_read_is_said_in_a_sentence(page: Opened) -> None:
    page.drop(("broken.jpg", "image/jpeg", b"not a picture"))
    notice = page.page.locator("#stage-notice .notice")
    notice.wait_for(timeout=SECONDS * 1000)

    assert "broken.jpg is not a picture that this browser can read" in notice.inner_text()
