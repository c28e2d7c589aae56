"""Pixels and masks where the torch engine computes, held to what the host makes of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from samgraph.media.image.preprocess import resize_image, resize_video_frame, upscale_masks
from samgraph.media.mask import rle
from samgraph.predict.everything.generate import segment_everything
from samgraph.predict.video.video import open_video
from tests.golden import scenes
from tests.predict.models import tiny_model
from tests.predict.watching import Watched
from tests.tolerances import DEVICE_RESIZE

torch = pytest.importorskip("torch")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> Any:
    """On the CPU, in torch's own functions."""
    from samgraph.engines.torch import images

    monkeypatch.setattr(images, "has_kernels", lambda: False)
    return images.TorchImages(torch.device("cpu"))


def picture(height: int, width: int) -> Any:
    return np.random.default_rng([height, width]).integers(0, 256, (height, width, 3), np.uint8)


def blobs(count: int, side: int = 32) -> Any:
    """Smooth logits, some of them high all over, none of them low all over."""
    rng = np.random.default_rng(count)
    y, x = np.mgrid[:side, :side]
    centres = rng.uniform(0, side, (count, 2))
    far = np.hypot(y - centres[:, :1, None], x - centres[:, 1:, None])
    return (rng.uniform(3, 12, (count, 1, 1)) - far).astype(np.float32)


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [(54, 96, 64), (108, 192, 64), (7, 3, 32), (64, 64, 64), (1, 1, 8), (192, 108, 64), (9, 3, 8)],
)
def test_frames_are_resized_to_the_bit_as_on_the_host(
    images: Any, height: int, width: int, size: int
) -> None:
    frame = picture(height, width)

    found = images.frame_pixels(frame, size, MEAN, STD)

    np.testing.assert_array_equal(found.numpy(), resize_video_frame(frame, size))


def test_photographs_are_resized_as_on_the_host(images: Any) -> None:
    image = picture(60, 90)

    found = images.image_pixels(image, 64, MEAN, STD)

    np.testing.assert_allclose(found.numpy(), resize_image(image, 64), atol=DEVICE_RESIZE)


def test_masks_come_down_as_bits(images: Any) -> None:
    logits = blobs(5)

    found = images.masks(torch.from_numpy(logits), (50, 75), 0.5)

    wanted = upscale_masks(logits, (50, 75), 0.5)
    assert found.dtype == np.bool_
    assert (found != wanted).mean() < 1e-3
    assert wanted.any()


@pytest.mark.parametrize("wanted", [(1, 1, 1, 1, 1), (0, 1, 0, 1, 1), (0, 0, 0, 0, 0)])
def test_wanted_masks_are_measured(wanted: tuple[int, ...]) -> None:
    from samgraph.engines.torch.measuring import measure

    assert_measured(measure, np.array(wanted, np.bool_), (50, 75))


def assert_measured(measure: Any, wanted: Any, size_hw: tuple[int, int]) -> None:
    """Areas and boxes of some smooth masks and an empty one; those not wanted count as empty."""
    logits = np.concatenate([blobs(len(wanted) - 1), np.full((1, 32, 32), -9, np.float32)])
    thresholds = (-1.0, 0.0, 1.0)

    found = measure(torch.from_numpy(logits), size_hw, thresholds, torch.from_numpy(wanted)).numpy()

    low, middle, high = (
        upscale_masks(logits, size_hw, limit) & wanted[:, None, None] for limit in thresholds
    )
    np.testing.assert_allclose(found[:, 0], high.sum((1, 2)), atol=2)
    np.testing.assert_allclose(found[:, 1], low.sum((1, 2)), atol=2)
    for box, mask in zip(found[:, 2:], middle, strict=True):
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        wanted_box = [-1] * 4 if not len(rows) else [columns[0], rows[0], columns[-1], rows[-1]]
        assert box.tolist() == wanted_box


def test_masks_are_encoded_from_where_they_change(images: Any) -> None:
    logits = np.concatenate([blobs(3), np.full((1, 32, 32), 1, np.float32)])
    size_hw = (40, 61)

    found = images.changes(torch.from_numpy(logits), size_hw, 0.0)
    coded = [rle.encode_changes(runs, 41, 0, 0, size_hw) for runs in found]

    for code, mask in zip(coded, images.masks(torch.from_numpy(logits), size_hw, 0.0), strict=True):
        assert code == rle.encode(mask)
    assert images.changes(torch.from_numpy(logits[:0]), size_hw, 0.0) == []


@pytest.fixture
def model(images: Any) -> Iterator[Any]:
    """The small model on the torch engine, with images as on a GPU."""
    core: Any = tiny_model("torch")
    before = core.buffers.images
    core.buffers.images = images
    yield core
    core.buffers.images = before


@pytest.mark.parametrize(
    "options", [{}, {"crop_n_layers": 1, "points_per_side": 2}, {"multimask": False}]
)
def test_everything_is_found_as_on_the_host(
    model: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samgraph.predict.everything.on_device.BATCH", 4)  # several batches
    image = scenes.frames(1)[0]
    chosen: dict[str, Any] = {
        "points_per_side": 3,
        "pred_iou_thresh": 0.0,
        "stability_score_thresh": 0.0,
    }
    chosen |= {"box_nms_thresh": 0.9999, "crop_nms_thresh": 0.9999, **options}

    there = segment_everything(model, image, **chosen)
    model.buffers.images = None
    here = segment_everything(model, image, **chosen)

    assert len(here) == len(there) > 1
    for one, other in zip(here, there, strict=True):
        assert (one.mask != other.mask).mean() < 1e-3
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.stability == pytest.approx(other.stability, abs=1e-3)
        assert (one.point_xy, one.crop_xyxy) == (other.point_xy, other.crop_xyxy)


def test_frames_encoded_ahead_track_alike(model: Any) -> None:
    def tracked(core: Any) -> list[Any]:
        video = open_video(core, scenes.frames(7))
        video.add(frame=0, object=1, points=[(40, 50)])
        return list(video.track())

    counts: list[int] = []
    encode = model.encode

    def watched(pixels: Any) -> Any:
        counts.append(len(pixels))
        return encode(pixels)

    ahead = tracked(Watched(model, encode=watched))
    model.buffers.images = None
    plain = tracked(model)

    assert counts == [1, 4, 2]  # the prompted frame, then the six others
    for one, other in zip(ahead, plain, strict=True):
        np.testing.assert_allclose(one.low_logits, other.low_logits, atol=1e-2)
        assert (one.masks != other.masks).mean() < 1e-3
