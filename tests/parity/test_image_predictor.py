"""The image predictor and the automatic masks, live against the reference's own classes."""

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

from samgraph.compat import SAM2AutomaticMaskGenerator, SAM2ImagePredictor
from samgraph.media.mask import rle
from tests import tolerances
from tests.golden import scenes
from tests.predict.models import small_model

pytestmark = pytest.mark.parity

SEED = 14
PROMPTS: dict[str, dict[str, Any]] = {
    "a click": {"point_coords": [[40, 50]], "point_labels": [1]},
    "a click, one mask": {
        "point_coords": [[40, 50]],
        "point_labels": [1],
        "multimask_output": False,
    },
    "two clicks and a box": {
        "point_coords": [[40, 50], [118.5, 84.25]],
        "point_labels": [1, 0],
        "box": [17, 27, 63, 73],
    },
    "three boxes": {
        "box": [[17, 27, 63, 73], [100, 66, 136, 102], [0, 0, 159, 119]],
        "multimask_output": False,
    },
    "six clicks at once": {
        "point_coords": [[[20 * i, 15 * i], [150, 10]] for i in range(6)],
        "point_labels": [[1, 0]] * 6,
    },
    "a click outside": {"point_coords": [[-30, 200]], "point_labels": [1]},
    "a click that is none": {"point_coords": [[4, 5], [0, 0]], "point_labels": [1, -1]},
    "scaled coordinates": {
        "point_coords": [[0.25, 0.5]],
        "point_labels": [1],
        "normalize_coords": False,
    },
    "logits": {"point_coords": [[40, 50]], "point_labels": [1], "return_logits": True},
    "nothing": {},
}
GENERATORS: dict[str, dict[str, Any]] = {
    "a grid": {"points_per_side": 5, "pred_iou_thresh": 0.5, "stability_score_thresh": 0.9},
    "all that is found": {
        "points_per_side": 4,
        "pred_iou_thresh": 0.0,
        "stability_score_thresh": 0.0,
        "box_nms_thresh": 1.0,
    },
    "one mask a point": {
        "points_per_side": 4,
        "multimask_output": False,
        "pred_iou_thresh": 0.1,
        "stability_score_thresh": 0.3,
        "box_nms_thresh": 1.0,
    },
    "crops": {
        "points_per_side": 4,
        "crop_n_layers": 2,
        "crop_n_points_downscale_factor": 2,
        "pred_iou_thresh": 0.4,
        "stability_score_thresh": 0.6,
        "box_nms_thresh": 0.95,
        "crop_nms_thresh": 0.95,
    },
    "refined": {
        "points_per_side": 3,
        "use_m2m": True,
        "pred_iou_thresh": 0.3,
        "stability_score_thresh": 0.5,
        "box_nms_thresh": 1.0,
    },
    "another threshold": {
        "points_per_side": 4,
        "mask_threshold": 2.0,
        "stability_score_offset": 0.4,
        "stability_score_thresh": 0.8,
        "pred_iou_thresh": 0.3,
        "box_nms_thresh": 0.99,
        "output_mode": "uncompressed_rle",
    },
    "own points": {
        "points_per_side": None,
        "point_grids": [np.array([[0.2, 0.4], [0.7, 0.7], [0.05, 0.95]])],
        "pred_iou_thresh": 0.0,
        "stability_score_thresh": 0.5,
        "box_nms_thresh": 1.0,
        "output_mode": "coco_rle",
    },
}


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sam2")


@cache
def reference_predictor() -> Any:
    from tests.golden.image import image_predictor
    from tests.parity.reference import build_reference

    return image_predictor(build_reference("test", SEED))


def reference_generator(**settings: Any) -> Any:
    from tests.parity import torchvision_stand_in

    with torchvision_stand_in.installed():
        from sam2.automatic_mask_generator import SAM2AutomaticMaskGenerator as Reference

    predictor = reference_predictor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated
        generator = Reference(predictor.model, **settings)
    generator.predictor._bb_feat_sizes = predictor._bb_feat_sizes
    return generator


def arrays(arguments: dict[str, Any]) -> dict[str, Any]:
    named = ("point_coords", "point_labels", "box")
    return {k: np.array(v, np.float32) if k in named else v for k, v in arguments.items()}


@pytest.fixture(scope="module")
def both() -> tuple[Any, SAM2ImagePredictor]:
    """Both predictors with the same image set."""
    theirs, ours = reference_predictor(), SAM2ImagePredictor(small_model(SEED))
    for predictor in (theirs, ours):
        predictor.set_image(scenes.frame(0))
    return theirs, ours


def assert_alike(ours: Any, theirs: Any, *, logits: bool = False) -> None:
    """Masks, scores and low-resolution logits of one call."""
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
    if logits:
        assert np.abs(ours[0] - theirs[0]).max() < tolerances.IMAGE_LOGITS
    else:
        assert (ours[0] != theirs[0]).mean() <= tolerances.IMAGE_PIXELS
    assert np.abs(ours[1] - theirs[1]).max() < tolerances.IOU
    assert np.abs(ours[2] - theirs[2]).max() < tolerances.IMAGE_LOGITS


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_gives_the_same(name: str, both: tuple[Any, SAM2ImagePredictor]) -> None:
    theirs, ours = both
    arguments = arrays(PROMPTS[name])

    assert_alike(ours.predict(**arguments), theirs.predict(**arguments), logits=name == "logits")


@pytest.mark.parametrize("name", ["a click", "two clicks and a box", "three boxes", "nothing"])
def test_prepared_prompts_are_the_same(name: str, both: tuple[Any, SAM2ImagePredictor]) -> None:
    theirs, ours = both
    given = arrays(PROMPTS[name])
    multimask = given.pop("multimask_output", True)
    named = ("point_coords", "point_labels", "box")
    prompts: Any = (*(given.get(key) for key in named), None, True)

    prepared: Any = ours._prep_prompts(*prompts)
    wanted = theirs._prep_prompts(*prompts)

    for mine, other in zip(prepared, wanted, strict=True):
        assert (mine is None) == (other is None)
        if other is not None:
            assert tuple(mine.shape) == tuple(other.shape)
            assert str(other.dtype) == f"torch.{mine.dtype}"
            assert np.abs(np.asarray(mine) - other.numpy()).max() < 1e-3
    mask, points, labels, boxes = prepared
    masks, scores, _ = ours._predict(points, labels, boxes, mask, multimask)
    expected = ours.predict(**given, multimask_output=multimask)
    assert np.array_equal(np.asarray(masks).reshape(expected[0].shape), expected[0] > 0)
    assert np.array_equal(np.asarray(scores).ravel(), expected[1].ravel())


@pytest.mark.parametrize("with_click", [True, False])
def test_logits_given_back_give_the_same(
    with_click: bool, both: tuple[Any, SAM2ImagePredictor]
) -> None:
    theirs, ours = both
    arguments = arrays(PROMPTS["a click"])
    given = {**arguments, "multimask_output": False} if with_click else {}
    found = []
    for predictor in (ours, theirs):
        _, _, low = predictor.predict(**arguments)
        found.append(predictor.predict(**given, mask_input=low[1:2]))

    assert_alike(*found)


def test_one_mask_counts_for_all_boxes(both: tuple[Any, SAM2ImagePredictor]) -> None:
    theirs, ours = both
    _, _, low = theirs.predict(**arrays(PROMPTS["a click"]))
    arguments = {**arrays(PROMPTS["three boxes"]), "mask_input": low[:1]}

    assert_alike(ours.predict(**arguments), theirs.predict(**arguments))


def test_a_batch_gives_the_same() -> None:
    theirs, ours = reference_predictor(), SAM2ImagePredictor(small_model(SEED))
    images = [scenes.frame(0), scenes.frame(3)[:100, :140], scenes.frame(7)]
    points = [np.array([[40, 50]]), np.array([[20, 30], [90, 80]]), np.array([[60, 60]])]
    labels = [np.array([1]), np.array([1, 0]), np.array([1])]
    boxes = [np.array([17, 27, 63, 73]), np.array([0, 0, 90, 90]), np.array([5, 6, 100, 110])]
    found = []
    for predictor in (ours, theirs):
        predictor.set_image_batch(images)
        found.append(predictor.predict_batch(points, labels, boxes, multimask_output=True))

    for mine, other in zip(zip(*found[0], strict=True), zip(*found[1], strict=True), strict=True):
        assert_alike(mine, other)
    reference_predictor().set_image(scenes.frame(0))


def test_the_embedding_is_the_same(both: tuple[Any, SAM2ImagePredictor]) -> None:
    theirs, ours = both
    expected = theirs.get_image_embedding().numpy()

    found = ours.get_image_embedding()

    assert found.shape == expected.shape
    assert np.abs(found - expected).max() / np.abs(expected).max() < tolerances.ENCODER


@pytest.mark.parametrize("name", GENERATORS)
def test_everything_gives_the_same(name: str) -> None:
    settings = GENERATORS[name]
    image = scenes.frame(0)
    expected = reference_generator(**settings).generate(image)

    found = SAM2AutomaticMaskGenerator(small_model(SEED), **settings).generate(image)

    assert len(found) == len(expected) > 0
    assert [sorted(record) for record in found] == [sorted(record) for record in expected]
    for mine, other in zip(found, expected, strict=True):
        for key in ("predicted_iou", "stability_score"):
            assert mine[key] == pytest.approx(other[key], abs=tolerances.STABILITY)
        assert mine["point_coords"] == other["point_coords"]
        assert mine["crop_box"] == other["crop_box"]
        assert mine["bbox"] == pytest.approx(other["bbox"], abs=1)
        one, two = (decoded(record["segmentation"]) for record in (mine, other))
        assert (one != two).mean() <= 3 * tolerances.IMAGE_PIXELS
        assert mine["area"] == one.sum()
    reference_predictor().set_image(image)


def decoded(segmentation: Any) -> Any:
    return segmentation if isinstance(segmentation, np.ndarray) else rle.decode(segmentation)


PRIVATE: dict[str, dict[str, Any]] = {
    "points": {"points": [[[40, 50], [118.5, 84.25]]], "labels": [[1, 0]]},
    "boxes": {"boxes": [[17, 27, 63, 73], [100, 66, 136, 102]], "multimask_output": False},
    "both": {"points": [[[40, 50]]], "labels": [[1]], "boxes": [[17, 27, 63, 73]]},
    "logits": {"boxes": [[17, 27, 63, 73]], "return_logits": True},
}


@pytest.mark.parametrize("case", PRIVATE)
def test_private_calls_give_what_the_reference_gives(
    case: str, both: tuple[Any, SAM2ImagePredictor]
) -> None:
    """With tensors that each side's own transforms have scaled."""
    import torch

    found = []
    for predictor in both:
        given = {k: v for k, v in PRIVATE[case].items() if k.endswith(("output", "logits"))}
        points = boxes = labels = None
        if "points" in PRIVATE[case]:
            coords = torch.tensor(PRIVATE[case]["points"], dtype=torch.float32)
            points = predictor._transforms.transform_coords(coords, True, (120, 160))
            labels = torch.tensor(PRIVATE[case]["labels"], dtype=torch.int)
        if "boxes" in PRIVATE[case]:
            corners = torch.tensor(PRIVATE[case]["boxes"], dtype=torch.float32)
            boxes = predictor._transforms.transform_boxes(corners, True, (120, 160))
        with torch.inference_mode():
            output = predictor._predict(points, labels, boxes, **given)
        found.append([value.float().cpu().numpy() for value in output])

    assert_alike(found[1], found[0], logits=case == "logits")
