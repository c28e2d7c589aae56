"""Non-maximum suppression and mask filters on the device, held to the host's."""

from typing import Any

import numpy as np
import pytest

from samgraph.media.mask.geometry import batched_nms
from samgraph.predict.everything import candidates as filtering
from samgraph.predict.everything.grids import Crop, crops_of
from samgraph.predict.everything.on_device import mask_filter
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.image.decoding import MaskPredictions, single_index

torch = pytest.importorskip("torch")
from tests.engines.torch.test_images import blobs  # noqa: E402  (it needs torch too)


def random_boxes(count: int, seed: int, spread: int = 40) -> tuple[Any, Any]:
    """Boxes on few positions, some without an area, with scores of which many are equal."""
    rng = np.random.default_rng([seed, count])
    start = rng.integers(0, spread, (count, 2))
    boxes = np.concatenate([start, start + rng.integers(0, spread, (count, 2))], 1)
    return boxes, rng.integers(0, 9, count).astype(np.float32) / 8


def kept_on_device(boxes: Any, scores: Any, threshold: float) -> Any:
    from samgraph.engines.torch.suppression import suppress

    order, keep = suppress(torch.from_numpy(boxes), torch.from_numpy(scores), threshold)
    return order[keep].numpy()


def kept_on_host(boxes: Any, scores: Any, threshold: float) -> Any:
    return batched_nms(boxes.astype(np.float32), scores, np.zeros(len(boxes), np.int64), threshold)


@pytest.mark.parametrize("threshold", [0.7, 0.5, 1 / 3, 0.0, -1.0, 1.0])
@pytest.mark.parametrize("count", [0, 1, 2, 37, 300])
def test_suppression_keeps_what_the_host_keeps(
    monkeypatch: pytest.MonkeyPatch, count: int, threshold: float
) -> None:
    for seed in range(4):
        boxes, scores = random_boxes(count, seed)
        expected = kept_on_host(boxes, scores, threshold)

        np.testing.assert_array_equal(kept_on_device(boxes, scores, threshold), expected)
        with monkeypatch.context() as small:
            small.setattr("samgraph.engines.torch.suppression._BLOCK", 64)  # several blocks
            np.testing.assert_array_equal(kept_on_device(boxes, scores, threshold), expected)


def test_suppression_between_crops_keeps_what_the_host_keeps() -> None:
    """By the size of their crops, as `best_of_crops` does: nearly all scores are equal."""
    crops = crops_of((120, 160), 2, 0.3)
    rng = np.random.default_rng(5)
    owners = rng.integers(0, len(crops), 400)
    boxes, _ = random_boxes(400, 1)
    boxes += np.array([[crops[i].left, crops[i].top] * 2 for i in owners])
    scores = np.array([1 / crops[i].area for i in owners], np.float32)

    kept = kept_on_device(boxes, scores, 0.7)

    np.testing.assert_array_equal(kept, kept_on_host(boxes, scores, 0.7))
    assert 10 < len(kept) < 400


def test_a_long_chain_of_overlaps_takes_more_rounds() -> None:
    """Each box overlaps the next alone, so every second falls: no round is right for all."""
    left = np.arange(150) * 10
    boxes = np.stack([left, left * 0, left + 30, left * 0 + 10], 1)
    scores = np.linspace(1, 0.1, 150).astype(np.float32)

    kept = kept_on_device(boxes, scores, 0.45)

    assert kept.tolist() == list(range(0, 150, 2))


FAULTS: list[dict[str, Any]] = [
    {"_ROUNDS": 1, "torch.equal": lambda *_: True},  # stops before rounds have settled
    {"_below": lambda threshold: threshold - 0.2},
    {"_falls": lambda rivals, keep: rivals.any(1)},  # also by boxes that fell themselves
]


@pytest.mark.parametrize("fault", FAULTS, ids=["rounds", "limit", "fallen"])
def test_a_fault_in_suppression_is_seen(
    monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]
) -> None:
    for name, wrong in fault.items():
        monkeypatch.setattr(f"samgraph.engines.torch.suppression.{name}", wrong)

    with pytest.raises(AssertionError):
        test_suppression_keeps_what_the_host_keeps(monkeypatch, 300, 0.5)


CROPS = (Crop(0, 0, 150, 100), Crop(60, 30, 150, 100, 1))


@pytest.mark.parametrize("crop", CROPS)
@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"multimask": False},
        {"pred_iou_thresh": 0.0, "stability_score_thresh": 0.0},
        {"mask_threshold": 0.5, "stability_score_offset": 2.0},
    ],
)
@pytest.mark.parametrize("falls_back", [True, False])
def test_masks_that_pass_are_those_of_the_host(
    monkeypatch: pytest.MonkeyPatch, crop: Crop, chosen: dict[str, Any], falls_back: bool
) -> None:
    from samgraph.engines.torch import images as module

    monkeypatch.setattr(module, "has_kernels", lambda: False)
    images = module.TorchImages(torch.device("cpu"))
    options = EverythingOptions(**{"stability_score_thresh": 0.75, **chosen})
    rng = np.random.default_rng(3)
    masks = blobs(40).reshape(10, 4, 32, 32) * 2
    ious = rng.uniform(0.6, 1, (10, 4)).astype(np.float32)
    stability = rng.uniform(0.96, 1, (10, 4)).astype(np.float32)
    rule = mask_filter(crop, (100, 150), options, falls_back=falls_back)

    there = [torch.from_numpy(x) for x in (masks, ious, stability)]
    found: Any = images.passed(images.screen(there[0], there[1], there[2], rule))

    columns = np.tile([1, 2, 3], (10, 1))
    if not options.multimask:
        columns = single_index(ious, stability, falls_back=falls_back)[:, None]
    rows = np.arange(10)[:, None]
    picked = MaskPredictions(masks[rows, columns], ious[rows, columns], stability[rows, columns])
    points = np.stack([np.arange(10)] * 2, 1).astype(np.float32)
    expected = filtering.candidates_of(picked, points, crop, (100, 150), options)
    assert found.prompts.tolist() == [int(one.point_xy[0]) - crop.left for one in expected]
    assert found.boxes.tolist() == [list(one.box_xyxy) for one in expected]
    np.testing.assert_allclose(found.scores, [one.score for one in expected])
    np.testing.assert_allclose(found.stability, [one.stability for one in expected], atol=0.02)
    assert expected


def test_filters_and_suppression_do_not_wait_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is screened without a read of the host, and suppression reads once per 16 rounds."""
    from samgraph.engines.torch import screening, suppression

    reads: list[str] = []
    for name in ("item", "tolist", "nonzero", "cpu", "__bool__", "numpy"):
        real = getattr(torch.Tensor, name)

        def counted(*given: Any, real: Any = real, name: str = name, **named: Any) -> Any:
            reads.append(name)
            return real(*given, **named)

        monkeypatch.setattr(torch.Tensor, name, counted)
    equal: Any = torch.equal

    def counted_equal(*pair: Any) -> Any:
        reads.append("equal")
        return equal(*pair)

    monkeypatch.setattr("torch.equal", counted_equal)
    masks = torch.from_numpy(blobs(8).reshape(2, 4, 32, 32))
    rule = mask_filter(CROPS[0], (100, 150), EverythingOptions(multimask=False), falls_back=True)
    boxes, scores = map(torch.from_numpy, random_boxes(300, 2))

    def no_wait(logits: Any, *_: Any) -> Any:
        return torch.ones((len(logits), 6), dtype=torch.int64)

    screening.screen(masks, torch.ones(2, 4), torch.ones(2, 4), rule, no_wait)
    assert reads == []
    suppression.suppress(boxes, scores, 0.5)
    assert set(reads) == {"equal"}
    assert len(reads) <= 2
