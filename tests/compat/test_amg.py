"""The reference's functions on masks, boxes and frames: by hand, and beside the original."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from samgraph.compat.tensor import Tensor, tensor
from samgraph.compat.utils import amg, misc, transforms
from samgraph.errors import OptionError, PromptError
from tests import tolerances

MASKS = np.random.default_rng(1).random((3, 20, 30)) > 0.6
MASKS[2] = False
LOGITS = np.random.default_rng(2).standard_normal((3, 20, 30)).astype(np.float32) * 3
BOXES = np.array([[0, 0, 29, 19], [5, 5, 12, 12], [3, 3, 40, 30]])
CROP, WHOLE = [10, 5, 40, 25], [0, 0, 60, 50]


def test_encodings_come_back() -> None:
    for mask, rle in zip(MASKS, amg.mask_to_rle_pytorch(tensor(MASKS)), strict=True):
        assert np.array_equal(amg.rle_to_mask(rle), mask)
        assert amg.area_from_rle(rle) == mask.sum()
        assert np.array_equal(amg.rle_to_mask(amg.coco_encode_rle(rle)), mask)


def test_small_regions_go() -> None:
    mask = np.zeros((12, 12), bool)
    mask[1:9, 1:9] = True
    mask[4, 4] = False
    mask[11, 11] = True

    filled, changed = amg.remove_small_regions(mask, 3, "holes")
    cleaned, also = amg.remove_small_regions(filled, 3, "islands")

    assert changed
    assert also
    assert filled[4, 4]
    assert cleaned.sum() == 64
    assert amg.remove_small_regions(cleaned, 3, "holes")[1] is False
    only, _ = amg.remove_small_regions(mask, 1000, "islands")
    assert only.sum() == 63  # the largest stays
    with pytest.raises(OptionError, match="no mode `specks`"):
        amg.remove_small_regions(mask, 3, "specks")


def test_data_is_filtered_and_joined() -> None:
    data = amg.MaskData(boxes=tensor(BOXES), names=["a", "b", "c"])
    data.filter(np.array([True, False, True]))
    data.cat(amg.MaskData(boxes=tensor(BOXES[:1]), names=["d"], more=[1]))

    assert data["names"] == ["a", "c", "d"]
    assert data["boxes"].shape == (3, 4)
    assert data["more"] == [1]
    data.to_numpy()
    assert type(data["boxes"]) is np.ndarray
    del data["more"]
    assert [name for name, _ in data.items()] == ["boxes", "names"]


def test_batches_need_one_length() -> None:
    assert [a for a, _ in amg.batch_iterator(2, [1, 2, 3], "abc")] == [[1, 2], [3]]
    with pytest.raises(PromptError, match="sequences of one length"):
        next(amg.batch_iterator(2, [1], []))


def test_the_box_of_a_list_is_a_list() -> None:
    assert amg.box_xyxy_to_xywh([1, 2, 5, 9]) == [1, 2, 4, 7]
    assert type(amg.box_xyxy_to_xywh(tensor(BOXES)[1])) is Tensor


Call = Callable[[Any, Callable[[Any], Any]], Any]
# Of a module and of what makes tensors.
CALLS: dict[str, Call] = {
    "mask_to_rle_pytorch": lambda m, t: m.mask_to_rle_pytorch(t(MASKS)),
    "batched_mask_to_box": lambda m, t: m.batched_mask_to_box(t(MASKS)),
    "batched_mask_to_box of one": lambda m, t: m.batched_mask_to_box(t(MASKS[0])),
    "calculate_stability_score": lambda m, t: m.calculate_stability_score(t(LOGITS), 0.0, 1.0),
    "build_point_grid": lambda m, t: m.build_point_grid(5),
    "build_all_layer_point_grids": lambda m, t: m.build_all_layer_point_grids(8, 2, 2),
    "generate_crop_boxes": lambda m, t: m.generate_crop_boxes((50, 70), 2, 0.3),
    "box_xyxy_to_xywh": lambda m, t: m.box_xyxy_to_xywh(t(BOXES)[2]),
    "uncrop_boxes_xyxy": lambda m, t: m.uncrop_boxes_xyxy(t(BOXES), CROP),
    "uncrop_points": lambda m, t: m.uncrop_points(t(BOXES[:, :2]), CROP),
    "uncrop_masks": lambda m, t: m.uncrop_masks(t(MASKS), CROP, 50, 60),
    "is_box_near_crop_edge": lambda m, t: m.is_box_near_crop_edge(t(BOXES), CROP, WHOLE, 3.0),
    "is_box_near_image_edge": lambda m, t: m.is_box_near_crop_edge(
        t(BOXES), [0, 0, 30, 30], [0, 0, 60, 20], 5.0
    ),
    "batch_iterator": lambda m, t: [len(a) for (a,) in m.batch_iterator(2, t(BOXES))],
    "mask_to_box": lambda m, t: m.mask_to_box(t(MASKS[:, None])),
    "concat_points": lambda m, t: m.concat_points(
        {"point_coords": t(BOXES[None, :, :2]), "point_labels": t(np.ones((1, 3)))},
        t(BOXES[None, :1, 2:]),
        t(np.zeros((1, 1))),
    ),
}
OF_MISC = ("mask_to_box", "concat_points")


@pytest.mark.parity
@pytest.mark.parametrize("name", CALLS)
def test_functions_agree_with_the_original(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sam2")
    own = misc if name in OF_MISC else amg
    original = importlib.import_module(f"sam2.utils.{'misc' if name in OF_MISC else 'amg'}")

    wanted = CALLS[name](original, torch.from_numpy)
    found = CALLS[name](own, tensor)
    same = CALLS[name](own, torch.from_numpy)

    assert_same(wanted, found)
    assert_same(wanted, same)
    assert type(wanted) is type(same)


def assert_same(wanted: Any, found: Any) -> None:
    if isinstance(wanted, dict):
        assert wanted.keys() == found.keys()
        wanted, found = list(wanted.values()), list(found.values())
    if isinstance(wanted, list | tuple):
        assert len(wanted) == len(found)
        for one, other in zip(wanted, found, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_allclose(
            np.asarray(found), np.asarray(wanted), rtol=tolerances.COMPAT_METHODS
        )


def test_components_and_holes_of_logits() -> None:
    labels, areas = misc.get_connected_components(tensor(MASKS[:, None]))
    assert labels.shape == areas.shape == (3, 1, 20, 30)
    assert (labels[MASKS[:, None]] > 0).all()
    assert areas[2].sum() == 0
    for number in np.unique(labels[0])[1:]:
        assert (areas[0][labels[0] == number] == (labels[0] == number).sum()).all()
    logits = np.full((1, 1, 9, 9), 5.0, np.float32)
    logits[0, 0, 4, 4] = -1
    assert misc.fill_holes_in_mask_scores(tensor(logits), 2)[0, 0, 4, 4] > 0


def test_transforms_scale_what_they_are_given() -> None:
    scaling = transforms.SAM2Transforms(256, 0.0)

    assert scaling.transform_coords([[0.5, 0.25]]).tolist() == [[128, 64]]
    pixels = scaling.transform_coords(np.array([[80.0, 30.0]]), normalize=True, orig_hw=(120, 160))
    assert pixels.tolist() == [[128, 64]]
    assert scaling.transform_boxes([0, 0, 1, 1]).tolist() == [[[0, 0], [256, 256]]]
    assert scaling(np.zeros((20, 30, 3), np.uint8)).shape == (3, 256, 256)
    assert scaling.forward_batch([np.zeros((20, 30, 3), np.uint8)] * 2).shape == (2, 3, 256, 256)
    masks = scaling.postprocess_masks(tensor(LOGITS[None]), (40, 60))
    assert masks.shape == (1, 3, 40, 60)
    with pytest.raises(PromptError, match="`orig_hw` is needed"):
        scaling.transform_coords([[1, 2]], normalize=True)
