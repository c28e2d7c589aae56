"""The reference's image predictor and mask generator, by its names, shapes and dtypes."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import samgraph.compat
from samgraph.compat import SAM2AutomaticMaskGenerator, SAM2ImagePredictor, build_sam2
from samgraph.compat.prompts import cleaned_logits
from samgraph.errors import (
    CheckpointError,
    ImageError,
    InputError,
    OptionError,
    PromptError,
)
from samgraph.media.mask import rle
from samgraph.predict.everything.options import EverythingOptions
from tests import tolerances
from tests.golden.reading import golden
from tests.predict.models import small_model
from tests.predict.pictures import SEED, encoded, model, picture

GOLDEN = golden("image_test")


@pytest.fixture(scope="module")
def predictor() -> SAM2ImagePredictor:
    made = SAM2ImagePredictor(small_model(SEED))
    made.set_image(picture())
    return made


def given(case: str) -> dict[str, Any]:
    arguments = GOLDEN.meta["cases"][case]
    named = ("point_coords", "point_labels", "box")
    return {k: np.array(v, np.float32) if k in named else v for k, v in arguments.items()}


@pytest.mark.parametrize("case", GOLDEN.meta["cases"])
def test_shapes_and_numbers_are_the_recorded_ones(case: str, predictor: SAM2ImagePredictor) -> None:
    arguments = given(case)
    if "mask_input" in arguments:
        _, scores, low = predictor.predict(**given(arguments["mask_input"]))
        arguments["mask_input"] = low[scores.argmax()][None]

    masks, scores, low = predictor.predict(**arguments)

    assert GOLDEN.difference(f"{case}_low", low) < tolerances.IMAGE_LOGITS
    assert GOLDEN.difference(f"{case}_iou", scores) < tolerances.IOU
    assert GOLDEN.disagreement(f"{case}_bits", masks > 0) <= tolerances.IMAGE_PIXELS
    assert {array.dtype for array in (masks, scores, low)} == {np.dtype(np.float32)}
    logits, _, _ = predictor.predict(**arguments, return_logits=True)
    assert GOLDEN.difference(f"{case}_logits", logits) < tolerances.IMAGE_LOGITS


def test_the_embedding_has_the_memory_s_absence_added(predictor: SAM2ImagePredictor) -> None:
    assert GOLDEN.compare("image_embed", predictor.get_image_embedding()) < tolerances.ENCODER
    features = predictor._features
    assert features is not None
    for i, array in enumerate(features["high_res_feats"]):
        assert GOLDEN.compare(f"high_res_feat{i}", array) < tolerances.ENCODER


def test_feature_maps_can_be_kept_and_set_again(predictor: SAM2ImagePredictor) -> None:
    other = SAM2ImagePredictor(small_model(SEED))

    other._features, other._orig_hw, other._is_image_set = predictor._features, [(120, 160)], True

    found, expected = (one.predict([[40, 50]], [1]) for one in (other, predictor))
    assert np.abs(found[2] - expected[2]).max() < tolerances.IMAGE_LOGITS
    with pytest.raises(InputError, match="not feature maps of this model"):
        other._features = {"image_embed": np.zeros((1, 8, 4, 4)), "high_res_feats": []}
    other._is_image_set = False
    assert other._orig_hw is None


def test_coordinates_may_be_shares_of_the_image(predictor: SAM2ImagePredictor) -> None:
    shares = [[40 / 160, 50 / 120]]

    found = predictor.predict(shares, [1], normalize_coords=False)

    expected = predictor.predict([[40, 50]], [1])
    assert np.abs(found[2] - expected[2]).max() < tolerances.IMAGE_LOGITS


def test_a_batch_answers_each_image() -> None:
    predictor = SAM2ImagePredictor(small_model(SEED))
    predictor.set_image_batch([picture(), picture()[:90]])

    masks, scores, low = predictor.predict_batch(
        [np.array([[40, 50]]), np.array([[10, 20], [30, 40]])],
        [np.array([1]), np.array([1, 0])],
        multimask_output=False,
    )

    assert [array.shape for array in masks] == [(1, 120, 160), (1, 90, 160)]
    assert [array.shape for array in scores] == [(1,), (1,)]
    expected = encoded().predict(points=[(40, 50)], multimask=False)
    assert np.abs(low[0] - expected.logits).max() < tolerances.IMAGE_LOGITS
    with pytest.raises(PromptError, match="every image of the batch"):
        predictor.predict_batch([np.array([[40, 50]])], [np.array([1])])


def test_without_post_processing_a_single_mask_is_mask_0() -> None:
    weights = small_model(SEED).weights
    options = {"config_file": small_model(SEED).config, "ckpt_path": weights}
    steady, plain = (
        SAM2ImagePredictor(build_sam2(**options, apply_postprocessing=flag))
        for flag in (True, False)
    )
    points = np.random.default_rng(0).uniform(0, 100, (24, 1, 2))
    labels = np.ones((24, 1))
    for predictor in (steady, plain):
        predictor.set_image(picture())

    found = [one.predict(points, labels, multimask_output=False) for one in (steady, plain)]

    outputs = encoded().core.decode_points(
        encoded().prepared,
        (points[:4] / [160, 120] * 256).astype(np.float32),
        np.ones((4, 1), np.int64),
    )
    assert np.abs(found[1][1][:4, 0] - outputs.ious[:, 0]).max() < tolerances.IOU
    assert not np.array_equal(found[0][1], found[1][1])


def test_a_pillow_image_is_taken_as_stored(predictor: SAM2ImagePredictor, tmp_path: Path) -> None:
    image = Image.fromarray(picture())
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "rotated.png", exif=exif)
    other = SAM2ImagePredictor(small_model(SEED))

    with Image.open(tmp_path / "rotated.png") as opened:
        other.set_image(opened)

    assert other._orig_hw == [(120, 160)]
    found, expected = (one.predict([[40, 50]], [1]) for one in (other, predictor))
    assert np.array_equal(found[0], expected[0])


def test_an_image_must_be_set() -> None:
    predictor = SAM2ImagePredictor(model())

    with pytest.raises(RuntimeError, match="no image is set"):
        predictor.predict([[1, 2]], [1])
    with pytest.raises(RuntimeError, match="no batch is set"):
        predictor.predict_batch()
    with pytest.raises(ImageError):
        predictor.get_image_embedding()
    predictor.set_image(picture())
    predictor.reset_predictor()
    assert not predictor._is_image_set


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"point_coords": [[1, 2]]}, "`point_labels` must be given"),
        ({"point_coords": [[1, 2]], "point_labels": [1, 1]}, "do not fit"),
        ({"point_coords": [[1, 2]], "point_labels": [7]}, "no such label"),
        ({"point_coords": [[float("nan"), 2]], "point_labels": [1]}, "not a finite number"),
        ({"point_coords": "here", "point_labels": [1]}, "are not numbers"),
        ({"mask_input": np.zeros((1, 32, 32))}, "wrong size"),
        (
            {"box": [[1, 2, 3, 4], [1, 2, 3, 4]], "point_coords": [[1, 2]], "point_labels": [1]},
            "as many boxes",
        ),
    ],
)
def test_a_prompt_without_sense_is_refused(
    arguments: dict[str, Any], message: str, predictor: SAM2ImagePredictor
) -> None:
    with pytest.raises(PromptError, match=message):
        predictor.predict(**arguments)


def test_small_holes_and_specks_go_before_masks_grow() -> None:
    logits = np.full((1, 1, 20, 20), -5, np.float32)
    logits[0, 0, 2:12, 2:12] = 5
    logits[0, 0, 4:6, 4:6] = -5
    logits[0, 0, 15, 15] = 5

    clean = cleaned_logits(logits, 0.0, hole=4, speck=1)

    assert (clean[0, 0, 4:6, 4:6] == 10).all()
    assert clean[0, 0, 15, 15] == -10
    assert (clean != logits).sum() == 5
    assert cleaned_logits(logits, 0.0, 3, 0) is not logits
    assert np.array_equal(cleaned_logits(logits, 0.0, 3, 0), logits)


def test_a_model_is_built_by_the_reference_s_names() -> None:
    with pytest.raises(CheckpointError, match="a model needs weights"):
        build_sam2("configs/sam2.1/sam2.1_hiera_t.yaml")
    with pytest.raises(OptionError, match="there is no config"):
        build_sam2("configs/sam3.yaml", {"a": np.zeros(1)})
    built = build_sam2(small_model(SEED).config, small_model(SEED).weights)
    assert (built.image_size, str(built.device), built.eval().to("cpu")) == (256, "cpu", built)


@pytest.mark.parametrize("mode", ["binary_mask", "uncompressed_rle", "coco_rle"])
def test_the_generator_gives_the_reference_s_dicts(mode: Any) -> None:
    generator = SAM2AutomaticMaskGenerator(
        model(),
        points_per_side=2,
        pred_iou_thresh=0.0,
        stability_score_thresh=0.0,
        box_nms_thresh=1.0,
        output_mode=mode,
    )

    records = generator.generate(picture())

    assert len(records) == 12
    keys = ["segmentation", "area", "bbox", "predicted_iou", "point_coords", "stability_score"]
    assert list(records[0]) == [*keys, "crop_box"]
    for record in records:
        shape = record["segmentation"]
        mask = shape if mode == "binary_mask" else rle.decode(shape)
        assert mask.shape == (120, 160)
        assert mask.sum() == record["area"]
        columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
        width, height = columns[-1] - columns[0], rows[-1] - rows[0]
        assert record["bbox"] == [columns[0], rows[0], width, height]
        assert all(isinstance(number, float) for number in record["bbox"] + record["crop_box"])
        assert record["crop_box"] == [0, 0, 160, 120]


def test_the_generator_has_every_option_of_everything_with_its_default() -> None:
    parameters = inspect.signature(SAM2AutomaticMaskGenerator).parameters
    renamed = {"multimask": "multimask_output"}

    for field in fields(EverythingOptions):
        assert parameters[renamed.get(field.name, field.name)].default == field.default
    given = SAM2AutomaticMaskGenerator(model(), 3, use_m2m=True, multimask_output=False)
    expected = EverythingOptions(points_per_side=3, use_m2m=True, multimask=False)
    assert given.options == expected


def test_generator_settings_without_sense_are_refused() -> None:
    with pytest.raises(OptionError, match="and not both"):
        SAM2AutomaticMaskGenerator(model(), point_grids=[np.zeros((1, 2))])
    with pytest.raises(OptionError, match="no output mode"):
        SAM2AutomaticMaskGenerator(model(), output_mode="png")  # type: ignore[arg-type]  # the point


def test_every_name_is_there() -> None:
    for name in samgraph.compat.__all__:
        assert getattr(samgraph.compat, name).__name__ == name
    with pytest.raises(AttributeError, match="has no `SAM3`"):
        samgraph.compat.SAM3  # noqa: B018
