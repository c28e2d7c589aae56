"""One image: the masks of the reference, for every kind of prompt, alone and together."""

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import ImageError, OptionError
from samgraph.media.image.preprocess import resize_image
from samgraph.predict.image.encoded import EncodedImage, encode_image
from samgraph.predict.image.result import Result
from tests import tolerances
from tests.golden.reading import Golden, golden, shared_golden_dir
from tests.predict.models import shared_model
from tests.predict.pictures import HEIGHT, WIDTH, encoded, model, picture

GOLDEN = golden("image_test")


def arguments(case: dict[str, Any], image: EncodedImage, fed_back: Any = None) -> dict[str, Any]:
    """The prompt of the reference, as arguments of `predict`."""
    box = case.get("box", ())
    given = {
        "points": case.get("point_coords"),
        "labels": case.get("point_labels"),
        "box": box if np.ndim(box) == 1 and len(box) else None,
        "boxes": box if np.ndim(box) == 2 else None,
        "mask": fed_back,
        "multimask": case["multimask_output"],
    }
    return {name: value for name, value in given.items() if value is not None}


def assert_recorded(recorded: Golden, case: str, result: Result) -> None:
    """Logits, scores and masks are those of the reference."""
    low = result.logits.reshape(recorded.shape(f"{case}_low"))
    scores = result.scores.reshape(recorded.shape(f"{case}_iou"))
    masks = result.masks.reshape(recorded.shape(f"{case}_bits"))
    assert recorded.difference(f"{case}_low", low) < tolerances.IMAGE_LOGITS
    assert recorded.difference(f"{case}_iou", scores) < tolerances.IOU
    assert recorded.disagreement(f"{case}_bits", masks) <= tolerances.IMAGE_PIXELS


@pytest.mark.parametrize("case", GOLDEN.meta["cases"])
def test_a_prompt_gives_what_the_reference_recorded(case: str) -> None:
    given = GOLDEN.meta["cases"][case]
    fed_back = None
    if "mask_input" in given:
        earlier = GOLDEN.meta["cases"][given["mask_input"]]
        fed_back = encoded().predict(**arguments(earlier, encoded()))

    result = encoded().predict(**arguments(given, encoded(), fed_back))

    assert_recorded(GOLDEN, case, result)


def test_logits_at_image_size_are_not_clamped() -> None:
    result = encoded().predict(points=[(40, 50)], labels=[1])

    found = result.full_logits().reshape(GOLDEN.shape("point_multi_logits"))

    assert GOLDEN.difference("point_multi_logits", found) < tolerances.IMAGE_LOGITS


def test_the_input_of_the_encoder_is_the_reference_s() -> None:
    found = resize_image(picture(), 256)[None]

    assert GOLDEN.difference("input_tensor", found) < 1 / 255


def test_prompts_of_different_lengths_are_predicted_as_if_alone() -> None:
    points = [[(40, 50)], [(40, 50), (118, 84), (4, 110)], [(100, 30), (20, 20)]]
    labels = [[1], [1, 0, 1], [0, 1]]

    together = encoded().predict(points=points, labels=labels)

    assert together.prompts.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for number, (some, signs) in enumerate(zip(points, labels, strict=True)):
        alone = encoded().predict(points=some, labels=signs)
        own = together.of_prompt(number)
        assert np.abs(own.logits - alone.logits).max() < tolerances.IMAGE_LOGITS
        assert np.abs(own.scores - alone.scores).max() < tolerances.IOU


def test_boxes_with_and_without_clicks_go_together() -> None:
    boxes = [[17, 27, 63, 73], [100, 66, 136, 102]]

    together = encoded().predict(boxes=boxes, points=[None, [(118, 84)]], multimask=False)

    alone = encoded().predict(box=boxes[0], multimask=False)
    both = encoded().predict(box=boxes[1], points=[(118, 84)], multimask=False)
    assert np.abs(together.logits[0] - alone.logits[0]).max() < tolerances.IMAGE_LOGITS
    assert np.abs(together.logits[1] - both.logits[0]).max() < tolerances.IMAGE_LOGITS


def test_many_prompts_run_in_batches() -> None:
    points = [[(5 + 10 * i, 3 + 7 * i)] for i in range(11)]

    together = encoded().predict(points=points, multimask=False)

    assert len(together) == 11
    alone = encoded().predict(points=points[10], multimask=False)
    assert np.abs(together.logits[10] - alone.logits[0]).max() < tolerances.IMAGE_LOGITS


def test_omitted_labels_are_positive() -> None:
    omitted = encoded().predict(points=[(40, 50), (50, 60)])
    positive = encoded().predict(points=[(40, 50), (50, 60)], labels=[1, 1])

    assert np.array_equal(omitted.logits, positive.logits)


def test_a_single_pair_is_a_point() -> None:
    pair, point = encoded().predict(points=(40, 50)), encoded().predict(points=[(40, 50)])

    assert np.array_equal(pair.logits, point.logits)


def test_a_binary_mask_of_the_image_s_size_is_a_prompt() -> None:
    drawn = np.zeros((HEIGHT, WIDTH), np.bool_)
    drawn[30:80, 20:70] = True

    result = encoded().predict(points=[(40, 50)], mask=drawn)

    plain = encoded().predict(points=[(40, 50)])
    assert np.abs(result.logits - plain.logits).max() > 0.1


def test_a_mask_alone_is_a_prompt() -> None:
    before = encoded().predict(points=[(40, 50)])

    result = encoded().predict(mask=before.best.logits)

    assert len(result) == 3


def test_threads_get_the_same_masks() -> None:
    image = encode_image(model().core, picture())
    image._prepared = None
    found: list[Any] = [None] * 4
    alone = encoded().predict(points=[(40, 50)])

    def click(index: int) -> None:
        found[index] = image.predict(points=[(40, 50)]).logits

    threads = [threading.Thread(target=click, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(np.abs(logits - alone.logits).max() < 1e-3 for logits in found)


@pytest.mark.parametrize("kind", ["path", "bytes", "pillow", "array", "file"])
def test_an_image_may_be_a_path_bytes_or_an_array(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "scene.png"
    Image.fromarray(picture()).save(path)
    source: Any = {
        "path": path,
        "bytes": path.read_bytes(),
        "pillow": Image.fromarray(picture()),
        "array": picture(),
        "file": io.BytesIO(path.read_bytes()),
    }[kind]

    image = model().image(source)

    assert image.size_hw == (HEIGHT, WIDTH)
    assert np.array_equal(image.pixels, picture())
    found = image.predict(points=[(40, 50)])
    assert np.array_equal(found.masks, encoded().predict(points=[(40, 50)]).masks)


def test_points_are_those_of_the_upright_image(tmp_path: Path) -> None:
    rotated = Image.fromarray(picture()).transpose(Image.Transpose.ROTATE_90)
    exif = rotated.getexif()
    exif[0x0112] = 6  # shown rotated by 90 degrees clockwise
    rotated.save(tmp_path / "rotated.png", exif=exif)

    image = model().image(tmp_path / "rotated.png")

    assert image.size_hw == (HEIGHT, WIDTH)
    found = image.predict(points=[(40, 50)])
    assert np.array_equal(found.masks, encoded().predict(points=[(40, 50)]).masks)


def test_an_image_prints_its_name_size_and_model() -> None:
    assert repr(encoded()) == "<scene.png, 160x120, encoded by test>"


def test_a_bad_image_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "note.jpg").write_text("not an image")

    with pytest.raises(ImageError, match=r"note\.jpg` is not an image"):
        model().image(tmp_path / "note.jpg")


def test_a_limit_on_pixels_is_kept() -> None:
    with pytest.raises(ImageError, match="160 x 120 pixels"):
        model().image(picture(), max_pixels=1000)


@pytest.mark.shared
def test_the_reference_s_photograph_gives_its_masks() -> None:
    folder = shared_golden_dir()
    assert folder is not None
    recorded = Golden(folder / "image_truck_sam2.1_tiny.npz")
    core = shared_model("sam2.1_tiny", recorded.weights_seed)
    image = encode_image(core, folder / "data" / "truck.jpg")
    first = image.predict(points=[(500, 375)], labels=[1])
    height, width = image.size_hw
    for case, about in recorded.meta["cases"].items():
        if case.endswith("logits"):
            continue
        given = dict(about["args"])
        if not given.pop("normalize_coords", True):
            given["point_coords"] = np.array(given["point_coords"]) * [width, height]
        fed_back = first[1].logits if given.pop("mask_input", None) else None

        result = image.predict(**arguments(given, image, fed_back))

        assert_recorded(recorded, case, result)
        union = recorded.bits(f"{case}_bits").reshape(result.masks.shape)
        for mine, other in zip(result.masks, union, strict=True):
            assert (mine & other).sum() / (mine | other).sum() >= 0.9995


@pytest.mark.parametrize("value", [None, "yes", 2, 0.5, [True], np.array([True, False]), {}])
def test_a_multimask_that_is_neither_true_nor_false_is_refused(value: Any) -> None:
    logits = encoded().predict(points=[(40, 50)], multimask=False).logits
    for given in ({"points": [(40, 50)]}, {"mask": logits}):
        with pytest.raises(OptionError, match="`multimask` is true or false"):
            encoded().predict(**given, multimask=value)
    with pytest.raises(OptionError, match="`multimask` is true or false"):
        model().images([picture()]).predict(points=[[(40, 50)]], multimask=value)


@pytest.mark.parametrize("value", [True, False, 1, 0, np.True_, np.int64(0)])
def test_truth_may_come_as_a_number(value: Any) -> None:
    assert len(encoded().predict(points=[(40, 50)], multimask=value)) == (3 if value else 1)


@pytest.mark.parametrize("value", [10**400, float("nan"), float("inf"), "0", 1j, None])
def test_a_threshold_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(OptionError, match="`threshold` must be a finite number"):
        encoded().predict(points=[(40, 50)], threshold=value)
