"""The modules of the page without a server, one by one in a browser: the numbers of the package."""

import base64
import io
import json
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

from samgraph.exporters.web.site import page_files
from samgraph.media.image.preprocess import resize_image, resize_video_frame, upscale_logits
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.geometry import batched_nms, drop_specks, fill_holes
from samgraph.predict.image.mask_prompts import binary_mask_logits
from samgraph.predict.video.corrections import best_mask
from samgraph.predict.video.policy import Position, ReferencePolicy
from samgraph.predict.video.prompts import resize_mask
from samgraph.predict.video.step import Clicks
from samgraph.serve.samples import clip_frame
from tests import tolerances
from tests.browser.opened import SECONDS
from tests.browser.serving import serving

HOW = {"size": 64, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


@pytest.fixture(scope="module")
def engine(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A blank page of the exported folder, from which its modules can be imported."""
    folder = tmp_path_factory.mktemp("site")
    for name, data in page_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "blank.html").write_text("<!doctype html><title>modules</title>")
    with serving(Starlette(routes=[Mount("/", StaticFiles(directory=folder))])) as address:
        page = browser.new_page()
        page.set_default_timeout(SECONDS * 1000)
        page.goto(f"{address}blank.html")
        yield page
        page.close()


def noise(height: int, width: int) -> Any:
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)


def resized(engine: Any, name: str, pixels: Any) -> Any:
    """What a function of `resize.js` makes of RGB bytes, float32 [3, S, S]."""
    height, width = pixels.shape[:2]
    rgba = np.dstack([pixels, np.full((height, width), 255, np.uint8)])
    script = """async ([name, text, width, height, how]) => {
      const module = await import("/engine/resize.js");
      const data = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
      const bytes = new Uint8Array(module[name]({ data, width, height }, how).buffer);
      return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    }"""
    text = engine.evaluate(
        script, [name, base64.b64encode(rgba.tobytes()).decode(), width, height, HOW]
    )
    return np.frombuffer(base64.b64decode(text), np.float32).reshape(3, 64, 64)


@pytest.mark.parametrize("size_hw", [(101, 150), (40, 90), (64, 64), (31, 47), (150, 80)])
def test_images_and_frames_are_resized_as_the_package_does(
    engine: Any, size_hw: tuple[int, int]
) -> None:
    pixels = noise(*size_hw)

    image = resized(engine, "imageTensor", pixels)
    frame = resized(engine, "frameTensor", pixels)

    wanted = resize_image(pixels, 64)
    np.testing.assert_allclose(image, wanted, rtol=0, atol=tolerances.DEVICE_RESIZE)
    wanted = resize_video_frame(pixels, 64)
    assert np.abs(frame - wanted).mean() < 0.02  # a step of a byte is 0.017
    if size_hw[0] <= size_hw[1]:  # which axis of a high frame comes first depends on Pillow
        np.testing.assert_allclose(frame, wanted, rtol=0, atol=1e-6)


def test_masks_are_enlarged_measured_and_encoded_as_the_package_does(engine: Any) -> None:
    low = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32).repeat(2, 0)
    low = np.ascontiguousarray(low.repeat(2, 1))
    script = """async ([low, size]) => {
      const { enlarge } = await import("/engine/masks.js");
      return enlarge(Float32Array.from(low), 16, size, { offset: 0.5 });
    }"""
    for size_hw in ((50, 37), (16, 16), (9, 120)):
        found = engine.evaluate(script, [low.ravel().tolist(), size_hw])

        logits = upscale_logits(low, size_hw)
        encoded = run_lengths.encode(logits > 0)
        left, top, width, height = run_lengths.to_bbox(encoded)
        assert found["rle"] == {"size": list(size_hw), "counts": encoded["counts"].decode()}
        assert found["box"] == [left, top, left + width, top + height]
        assert found["area"] == run_lengths.area(encoded)
        stability = (logits > 0.5).sum() / (logits > -0.5).sum()
        assert found["stability"] == pytest.approx(stability)


def test_masks_given_as_prompts_are_shrunk_as_the_package_does(engine: Any) -> None:
    mask = np.random.default_rng(5).random((7, 9)).repeat(11, 0).repeat(7, 1) > 0.5
    script = """async ([mask, height, width]) => {
      const { maskLogits, resizeMask } = await import("/engine/resize.js");
      const bytes = Uint8Array.from(mask);
      return [[...resizeMask(bytes, height, width, 32)], [...maskLogits(bytes, height, width, 16)]];
    }"""

    binary, logits = engine.evaluate(script, [mask.ravel().astype(int).tolist(), *mask.shape])

    wanted = resize_mask(mask, 32)
    assert np.abs(np.array(binary) - wanted.ravel()).mean() <= 1 / 256  # shares of just one half
    step = 20 / 255  # of a byte; Pillow rounds twice
    np.testing.assert_allclose(
        logits, binary_mask_logits(mask, 16).ravel(), rtol=0, atol=1.01 * step
    )


def test_small_parts_and_duplicates_go_as_in_the_package(engine: Any) -> None:
    rng = np.random.default_rng(7)
    mask = rng.random((40, 50)) > 0.5
    boxes = rng.integers(0, 30, (30, 2)).repeat(2, 1)[:, [0, 2, 1, 3]]
    boxes[:, 2:] += rng.integers(2, 25, (30, 2))
    scores = rng.random(30).astype(np.float32)
    script = """async ([mask, height, width, boxes, scores]) => {
      const { cleaned } = await import("/engine/masks.js");
      const { suppress } = await import("/engine/everything.js");
      const masks = boxes.map((box, index) => ({ box, index, rle: { counts: String(index) } }));
      const kept = suppress(masks, scores, 0.4).map(({ index }) => index);
      return { kept, mask: [...cleaned(Uint8Array.from(mask), height, width, 12)] };
    }"""

    values = [mask.ravel().astype(int).tolist(), *mask.shape, boxes.tolist(), scores.tolist()]
    found = engine.evaluate(script, values)

    wanted = drop_specks(fill_holes(mask, 11), 11)
    assert found["mask"] == wanted.ravel().astype(int).tolist()
    ends = boxes.astype(np.float32) - [0, 0, 1, 1]  # the last pixels
    kept = batched_nms(ends.astype(np.float32), scores, np.zeros(30, np.int64), 0.4)
    assert 1 < len(kept) < 30
    assert found["kept"] == kept.tolist()


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("frame", [1, 3, 9, 25])
@pytest.mark.parametrize("max_prompted", [None, 1])
def test_a_frame_reads_the_memories_that_the_policy_selects(
    engine: Any, max_prompted: int | None, frame: int, is_reverse: bool
) -> None:
    prompted, tracked = [12, 2], [n for n in range(40) if n not in (12, 2, 7)]
    script = """async ([prompted, tracked, position, obeysClicks]) => {
      const { recall } = await import("/engine/memory.js");
      const known = (frames) => new Map(frames.map((n) => [n, { n, mask: 1 }]));
      const bank = { prompted: known(prompted), tracked: known(tracked) };
      const model = { memoryFrames: 7, maxPointers: 16, obeysClicks };
      const { masks, pointers } = recall(bank, position, model);
      const slots = masks.map(({ memory, slot }) => [memory.n, slot]);
      return [slots, pointers.map(({ memory, time }) => [memory.n, time])];
    }"""

    position = {"frame": frame, "isReverse": is_reverse, "length": 40}
    masks, pointers = engine.evaluate(script, [prompted, tracked, position, max_prompted == 1])

    policy = ReferencePolicy(max_prompted=max_prompted)
    wanted = policy.choose(Position(frame, is_reverse, 40), prompted, tracked)
    assert masks == [[n, slot] for n, slot, _ in wanted.masks]
    times = [[n, pytest.approx(distance / wanted.longest)] for n, distance, _ in wanted.pointers]
    assert pointers == times


@pytest.mark.parametrize("seed", range(6))
def test_corrections_take_the_mask_that_the_package_takes(engine: Any, seed: int) -> None:
    random, side, size = np.random.default_rng(seed), 8, 64
    masks = random.normal(size=(8, side, side)).astype(np.float32)
    ious, memory = random.uniform(size=8).astype(np.float32), masks[seed] > 0.3
    count = 1 + seed % 3
    xy = random.uniform(0, size, (count, 2)).astype(np.float32)
    labels = random.integers(0, 2, count)
    script = """async ([masks, ious, xy, labels, memory, maskSide, size]) => {
      const { bestAnswer } = await import("/engine/corrections.js");
      const decode = (features, points, { mask }) => {
        const half = mask ? [0, 4] : [4, 8];
        const logits = Float32Array.from(masks.slice(...half).flat(2));
        return { masks: logits, ious: Float32Array.from(ious.slice(...half)) };
      };
      const points = Float32Array.from(xy.flat()), kinds = BigInt64Array.from(labels, BigInt);
      const clicks = { points, labels: kinds, count: xy.length };
      const model = { decode, maskSide, size };
      const { logits, iou } = await bestAnswer(model, {}, clicks, [1], memory.flat());
      return [Array.from(logits), iou];
    }"""
    remembered = np.where(memory, 1.0, -1.0)
    given = [x.tolist() for x in (masks, ious, xy, labels, remembered)]

    logits, iou = engine.evaluate(script, [*given, side, size])

    best = best_mask(masks, ious, Clicks(xy / np.float32(size), labels), memory)
    np.testing.assert_array_equal(np.array(logits, np.float32), masks[best].ravel())
    assert iou == pytest.approx(float(ious[best]))


def test_memories_are_stored_in_bf16_and_the_farthest_forgotten(engine: Any) -> None:
    script = """async () => {
      const { forget, fromBf16, toBf16 } = await import("/engine/memory.js");
      const values = Float32Array.of(1, -2.5, 3.14159, 1e-20, -1e20, 1.00390625, 1.01171875);
      const back = new Float32Array(values.length);
      fromBf16(toBf16(values), back, 0);
      const frames = [...Array(10).keys()];
      const bank = { tracked: new Map(frames.map((n) => [n, { mask: new Uint16Array(50) }])) };
      forget([{ bank }], 7, 450);
      return [[...back], [...bank.tracked.keys()]];
    }"""

    back, kept = engine.evaluate(script)

    assert back[:3] == [1, -2.5, 3.140625]
    assert back[5:] == [1.0, 1.015625]  # ties go to even
    assert set(kept) == {6, 7, 8} | {n for n in (5, 9) if n in kept}
    assert len(kept) == 4


def test_masks_become_palette_pictures_and_archives(engine: Any) -> None:
    labels = np.random.default_rng(9).integers(0, 5, (21, 34), np.uint8)
    script = """async ([bytes, size]) => {
      const { png, zip } = await import("/engine/files.js");
      const blob = await png(Uint8Array.from(bytes), size, { palette: true });
      const archive = await zip([{ name: "00000.png", blob }, { name: "ü.png", blob }]);
      return Array.from(new Uint8Array(await archive.arrayBuffer()));
    }"""

    data = bytes(engine.evaluate(script, [labels.ravel().tolist(), labels.shape]))

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["00000.png", "ü.png"]
        image = Image.open(io.BytesIO(archive.read("ü.png")))
    assert image.mode == "P"
    assert np.array_equal(np.array(image), labels)
    assert (image.getpalette() or [])[3:9] == [128, 0, 0, 0, 128, 0]


def test_frames_of_an_mp4_are_found_by_number(engine: Any, tmp_path: Path) -> None:
    pytest.importorskip("av")
    from samgraph.media.video.writer import VideoWriter

    file, numbers = tmp_path / "cup.mp4", (0, 5, 6, 2, 9)
    with VideoWriter(file, clip_frame(0).shape[:2], rate=12, quality=20) as video:
        for number in range(10):
            video.write(clip_frame(number * 4))
    script = """async ([text, numbers]) => {
      const { openSource } = await import("/engine/sources.js");
      const { pixelsOf } = await import("/engine/pixels.js");
      const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
      const blob = new Blob([bytes], { type: "video/mp4" });
      const element = () => ({ error: "no element here" });
      const source = await openSource(blob, "cup.mp4", element).catch(() => null);
      if (!source) return null;
      const found = [];
      for (const number of numbers) {
        const small = pixelsOf(await source.draw(number), 45, 30).data;
        found.push([...small]);
      }
      const { width, height, frames, fps } = source;
      return { width, height, frames, fps, found };
    }"""

    text = base64.b64encode(file.read_bytes()).decode()
    found = engine.evaluate(script, [text, numbers])

    if found is None:
        pytest.skip("this chromium does not decode H.264")
    assert (found["width"], found["height"], found["frames"]) == (450, 300, 10)
    assert found["fps"] == pytest.approx(12)
    frames = [np.array(Image.fromarray(clip_frame(n * 4)).resize((45, 30))) for n in range(10)]
    for number, pixels in zip(numbers, found["found"], strict=True):
        shown = np.array(pixels, np.float32).reshape(30, 45, 4)[:, :, :3]
        off = [np.abs(shown - frame).mean() for frame in frames]
        assert int(np.argmin(off)) == number


def test_coco_and_timeline_are_those_of_the_server(engine: Any) -> None:
    from samgraph.formats.coco import coco_document
    from samgraph.formats.segment import Segment, SegmentedImage

    mask = np.zeros((12, 20), np.bool_)
    mask[3:7, 5:15] = True
    encoded = run_lengths.encode(mask)
    sent = {"size": [12, 20], "counts": encoded["counts"].decode()}
    script = """async ([mask]) => {
      const { coco } = await import("/engine/exports.js");
      const objects = [{ id: 3, name: "cat", mask, score: 0.5 }];
      return coco([{ name: "a.jpg", size: [12, 20], objects }]);
    }"""

    found = engine.evaluate(script, [sent])

    segment = Segment(encoded, label="cat", score=0.5, object_id=3)
    wanted = coco_document([SegmentedImage("a.jpg", (12, 20), (segment,))])
    assert found == json.loads(json.dumps(wanted, default=lambda data: data.decode()))


def test_graphs_are_called_with_the_feature_maps_and_memories_of_the_model(engine: Any) -> None:
    """EfficientTAM has one map, and another graph for a single remembered frame."""
    script = """async () => {
      const { Model } = await import("/engine/model.js");
      const map = { name: "embedding", shape: ["B", 8, 4, 4] };
      const graphs = { image_encoder: { outputs: [map] }, memory_attention_one: {} };
      const constants = { image_size: 64, mask_size: 16, channels: 8, memory_tokens: 5,
        memory_channels: 2, memory_frames: 7, max_pointers: 16, absent_pointer: [0] };
      const made = (given) => new Model({}, { constants, preprocessing: {}, graphs: given }, null);
      const asked = [];
      const watched = (model) => Object.assign(model, { run: async (name, inputs) => {
        asked.push([name, Object.entries(inputs).map(([key, [, shape]]) => [key, shape])]);
        const none = new Float32Array(4);
        return { conditioned: none, masks: none, ious: none, stability: none };
      } });
      const read = (frames) => ({ memory: null, frames, slots: Array(frames).fill(0),
        pointers: null, times: [0] });
      const pooled = watched(made(graphs));
      await pooled.attend(null, read(1));
      await pooled.attend(null, read(2));
      await watched(made({ image_encoder: graphs.image_encoder })).attend(null, read(1));
      const prompt = { points: [1, 2], labels: [1n], count: 1 };
      await pooled.decodePoints({ embedding: 1 }, [prompt]);
      return asked;
    }"""

    asked = engine.evaluate(script)

    one, several, plain, points = (name for name, _ in asked)
    assert (one, several, plain) == ("memory_attention_one", "memory_attention", "memory_attention")
    assert points == "decode_points"
    assert dict(asked[0][1])["memory"] == [1, 1, 5, 2]
    assert dict(asked[1][1])["memory"] == [1, 2, 5, 2]
    assert dict(asked[1][1])["embedding"] == [1, 8, 4, 4]
    assert {key for key, _ in asked[3][1]} == {"embedding", "points", "labels"}


# A model that finds the same square on every frame, and tells what it was asked to remember.
STUB = """
  const asked = [], decoded = [];
  const square = Float32Array.from({ length: 16 }, (_, i) => (i % 4 < 2 ? 5 : -5));
  const pointer = Float32Array.of(1, 2);
  const found = () => ({ bestMask: square, objectScore: 3, bestIou: 0.9, pointer });
  const model = { size: 16, maskSide: 4, tokens: 1, channels: 2, memoryChannels: 2,
    memoryFrames: 7, maxPointers: 16, prepareTracking: async () => {},
    encode: async (frame) => ({ embedding: frame }),
    decode: async (features, points, how) => { decoded.push(how); return found(); },
    encodeMemory: async () => Float32Array.of(1, 2),
    attend: async (embedding, read) => { asked.push([embedding, read.slots]); return embedding; } };
  const frames = { width: 8, height: 6, size: [6, 8], frames: 9, fps: 10, close() {},
    frameTensor: async (frame) => frame, imageTensor: async (frame) => frame };
  const { VideoSession } = await import("/engine/video.js");
  const events = [];
  const ended = () => new Promise((resolve) => { const look = () => (
    events.some(([type]) => type !== "progress") ? resolve() : setTimeout(look, 5)); look(); });
  const publish = (type, data) => events.push([type, data]);
  const made = () => new VideoSession(model, frames, "a.mp4", publish);
"""


def test_a_track_reads_memories_and_tells_of_every_frame(engine: Any) -> None:
    script = f"""async () => {{ {STUB}
      const video = made();
      video.addObject({{ name: "cat" }});
      const reply = await video.prompt({{ frame: 2, object: 1, points: [[1, 1]], labels: [1] }});
      const {{ total }} = video.begin({{ start: 2, direction: "both" }});
      await ended();
      const again = made();
      await again.restore(JSON.parse(JSON.stringify(video.saved())));
      return {{ reply, total, asked, events, timeline: video.timeline(), about: video.about("v"),
        masks: video.framesBetween(0, 20), restored: again.framesBetween(0, 20),
        objects: again.about("w").objects }};
    }}"""

    found = engine.evaluate(script)

    square = found["reply"]["objects"][0]
    assert (square["box"], square["area"], square["present"]) == ([0, 0, 4, 6], 24, True)
    assert found["total"] == 9
    order = [3, 4, 5, 6, 7, 8, 1, 0]
    assert [frame for frame, _ in found["asked"]] == order
    assert found["asked"][2] == [5, [6, 1, 0]]  # the prompted frame, then the two before this one
    assert found["asked"][7] == [0, [6, 5, 4, 3, 2, 0]]  # backward: what comes after it in time
    assert [type for type, _ in found["events"]] == ["progress"] * 9 + ["done"]
    assert found["events"][3][1]["done"] == 4
    (lane,) = found["timeline"]["objects"]
    assert (lane["prompts"], lane["tracked"], lane["stale"]) == ([2], [[0, 8]], [])
    assert [entry["frame"] for entry in found["masks"]] == list(range(9))
    assert found["restored"] == found["masks"]
    assert found["objects"] == found["about"]["objects"]


def test_a_video_refuses_what_makes_no_sense_and_takes_back(engine: Any) -> None:
    script = f"""async () => {{ {STUB}
      const video = made(), said = [];
      const attempt = async (task) => {{
        try {{ await task(); said.push(null); }}
        catch ({{ status, message }}) {{ said.push([status, message]); }}
      }};
      await attempt(() => video.begin({{ start: 0 }}));
      await attempt(() => video.prompt({{ frame: 9, object: 1, points: [[1, 1]], labels: [1] }}));
      await attempt(() => video.prompt({{ frame: 0, object: 1, points: [[9, 1]], labels: [1] }}));
      await attempt(() => video.prompt({{ frame: 0, object: 1 }}));
      await attempt(() => video.restore({{ format: "other" }}));
      await attempt(() => video.restore({{ ...video.saved(), frames: 3 }}));
      await video.prompt({{ frame: 1, object: 4, box: [1, 1, 5, 5] }});
      video.begin({{ start: 1, direction: "forward", frames: 3 }});
      await attempt(() => video.begin({{ start: 1 }}));
      video.track.isCancelled = true;
      await ended();
      await video.clear(4, 1);
      return {{ said, last: events.at(-1)[0], masks: video.framesBetween(0, 20),
        objects: video.about("v").objects }};
    }}"""

    found = engine.evaluate(script)

    assert [entry and entry[0] for entry in found["said"]] == [400, 404, 400, 400, 400, 400, 409]
    assert found["said"][2][1] == "the point `9, 1` is outside the image"
    assert found["last"] == "cancelled"
    assert found["masks"] == []
    assert found["objects"] == [{"id": 4, "name": None, "color": None, "prompts": []}]


def test_a_correction_of_a_tracked_frame_remembers_and_refines(engine: Any) -> None:
    script = f"""async () => {{ {STUB}
      const video = made();
      await video.prompt({{ frame: 0, object: 1, points: [[1, 1]], labels: [1] }});
      const first = decoded.at(-1);
      video.begin({{ start: 0, direction: "forward", frames: 5 }});
      await ended();
      asked.length = 0;
      await video.prompt({{ frame: 3, object: 1, points: [[1, 1]], labels: [0] }});
      const stale = video.timeline().objects[0].stale;
      return {{ first, asked, last: decoded.at(-1), stale, prompts: video.prompted(1) }};
    }}"""

    found = engine.evaluate(script)

    assert found["first"] == {"multimask": True}
    assert found["asked"] == [[3, [6, 1, 0]]]
    assert found["last"]["isConditioned"] is True
    assert found["last"]["mask"][:4] == [5, 5, -5, -5]
    assert found["prompts"] == [0, 3]
    assert found["stale"] == [[0, 2], [4, 4]]
