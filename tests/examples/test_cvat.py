"""CVAT's functions: what CVAT sends to Nuclio, and its SDK's own types and checks."""

import importlib.util
import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import ImageError
from samgraph.formats.cvat import cvat_mask, cvat_points
from samgraph.formats.segment import Segment
from samgraph.media.mask.polygons import polygons_to_mask
from tests.checkpoint.built_in import needs_built_in
from tests.serve.protocols.drawn import (
    GOOD,
    base64_of,
    box,
    click,
    drawn,
    frames,
    iou,
    picture_bytes,
    png,
    shapes,
)
from tests.serve.serving import nano

FOLDER = Path(__file__).parents[2] / "examples" / "cvat"
TRACKED = 0.7


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"cvat_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Nuclio:
    """The part of Nuclio that a function sees."""

    def __init__(self, name: str) -> None:
        self.module = load(FOLDER / name / "main.py")
        self.user_data = SimpleNamespace()
        self.Response = SimpleNamespace

    def call(self, **body: Any) -> tuple[int, Any]:
        reply = self.module.handler(self, SimpleNamespace(body=body))
        return reply.status_code, json.loads(reply.body)


@pytest.fixture(scope="module")
def interactor() -> Nuclio:
    nuclio = Nuclio("interactor")
    nuclio.user_data.interactor = nuclio.module.Interactor(nano())
    return nuclio


@pytest.fixture
def tracker() -> Nuclio:
    nuclio = Nuclio("tracker")
    nuclio.user_data.tracker = nuclio.module.Tracker(nano())
    return nuclio


@pytest.mark.parametrize(("name", "kind"), [("interactor", "interactor"), ("tracker", "tracker")])
def test_the_functions_say_what_they_are(name: str, kind: str) -> None:
    yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
    found = yaml.safe_load((FOLDER / name / "function.yaml").read_text(encoding="utf-8"))

    assert found["metadata"]["annotations"]["type"] == kind
    assert found["spec"]["handler"] == "main:handler"
    assert found["spec"]["triggers"]["http"]["numWorkers"] == 1
    assert ("supported_shape_types" in found["metadata"]["annotations"]) == (kind == "tracker")


@needs_built_in
def test_a_click_and_a_box_give_a_mask(interactor: Nuclio) -> None:
    first, second = shapes()[0], shapes()[1]
    image = base64_of(picture_bytes())
    left, top, right, bottom = box(second)

    status, clicked = interactor.call(
        image=image, pos_points=[list(click(first))], neg_points=[], obj_bbox=None
    )
    _, boxed = interactor.call(
        image=image,
        pos_points=[],
        neg_points=[list(click(first))],
        obj_bbox=[[left, top], [right, bottom]],
    )
    over_the_edge, _ = interactor.call(image=image, obj_bbox=[-900, -900, right, bottom])

    assert (status, over_the_edge) == (200, 200)
    for reply, target in ((clicked, first), (boxed, second)):
        (shape,) = reply["shapes"]
        assert shape["type"] == "mask"
        assert iou(cvat_mask(shape["points"], target.shape), target) >= GOOD


def test_a_bad_call_is_one_sentence(interactor: Nuclio, tracker: Nuclio) -> None:
    image = base64_of(picture_bytes())
    for body, says in (
        ({"image": "###"}, "not base64"),
        ({"image": image}, "no prompt"),
        ({"image": image, "pos_points": [[-1, 5]]}, "outside"),
        ({"image": image, "obj_bbox": [1, 2, 3]}, "not a box"),
    ):
        status, reply = interactor.call(**body)
        assert status == 400
        assert says in reply["error"]
    for shape, says in (
        ({"type": "cuboid", "points": [1]}, "cannot be tracked"),
        ({"type": "rectangle", "points": [1, 2, 3]}, "four numbers"),
        ({"type": "mask", "points": [1, 2, 3]}, "made of runs"),
        (None, "cannot be tracked"),
    ):
        status, reply = tracker.call(image=image, shapes=[shape], states=[])
        assert status == 400
        assert says in reply["error"]
    status, reply = tracker.call(image=image, shapes=[None], states=[{"track": "x", "object": 1}])
    assert (status, "no longer known" in reply["error"]) == (400, True)


@needs_built_in
def test_shapes_are_tracked_by_their_states(tracker: Nuclio) -> None:
    pictures, masks = frames(4)
    size_hw = masks[0].shape
    outline = [x for point in [(0, 0), (9, 0), (9, 9)] for x in point]
    drawn_shapes = [
        {"type": "rectangle", "points": list(box(masks[0]))},
        {"type": "mask", "points": cvat_points(Segment.from_mask(masks[0]))},
    ]
    first = base64_of(png(pictures[0]))

    _, reply = tracker.call(image=first, shapes=drawn_shapes, states=[])
    assert [shape["type"] for shape in reply["shapes"]] == ["rectangle", "mask"]
    _, other = tracker.call(image=first, shapes=[{"type": "polygon", "points": outline}], states=[])
    for picture, mask in zip(pictures[1:], masks[1:], strict=True):
        states = json.loads(json.dumps([*reply["states"], *other["states"]]))  # as they travel
        _, reply2 = tracker.call(image=base64_of(png(picture)), shapes=[None] * 3, states=states)
        rectangle, found, _ = reply2["shapes"]
        assert rectangle["points"] == pytest.approx(list(box(mask)), abs=12)
        assert iou(cvat_mask(found["points"], size_hw), mask) >= TRACKED
        again = tracker.call(image=base64_of(png(picture)), shapes=[None], states=[states[1]])[1]
        assert again["shapes"][0] == found  # the same frame is not stepped over twice


@pytest.fixture(scope="module")
def sdk() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(
            "cvat_sdk.auto_annotation", reason="cvat-sdk is not installed", exc_type=ImportError
        )
        return load(FOLDER / "sdk_function.py")


@needs_built_in
def test_the_sdk_takes_the_interaction_function(sdk: Any) -> None:
    masks = pytest.importorskip("cvat_sdk.masks")
    function = sdk.Interaction(nano())
    target = shapes()[0]
    image = function.preprocess_image(None, Image.fromarray(drawn(0)[0]))
    prompts = SimpleNamespace(pos_points=[click(target)], neg_points=[], bounding_box=None)
    boxed = SimpleNamespace(
        pos_points=[], neg_points=[], bounding_box=(box(target)[:2], box(target)[2:])
    )

    for asked in (prompts, boxed):
        (shape,) = function.detect(None, image, asked)
        height, width = target.shape
        found = masks.decode_mask(shape.points, image_width=width, image_height=height)
        assert iou(found, target) >= GOOD
        assert 0 <= float(shape.attributes[0].value) <= 1


@needs_built_in
@pytest.mark.parametrize("kind", ["rectangle", "mask", "polygon"])
def test_the_sdk_takes_the_tracking_function(sdk: Any, kind: str) -> None:
    function = sdk.Tracking(nano())
    pictures, masks = frames(3)
    height, width = masks[0].shape
    drawn_as = {
        "rectangle": list(box(masks[0])),
        "mask": cvat_points(Segment.from_mask(masks[0])),
        "polygon": sdk._outline(masks[0]),
    }
    context = SimpleNamespace(original_shape_type=kind)
    images = [function.preprocess_image(None, Image.fromarray(one)) for one in pictures]

    state = function.init_tracking_state(
        context, images[0], SimpleNamespace(type=kind, points=drawn_as[kind])
    )
    for image, mask in zip(images[1:], masks[1:], strict=True):
        found = function.track(context, image, state)
        assert found.type == kind
        if kind == "rectangle":
            assert found.points == pytest.approx(list(box(mask)), abs=12)
        elif kind == "mask":
            assert iou(cvat_mask(found.points, (height, width)), mask) >= TRACKED
        else:
            ring = np.reshape(found.points, (-1, 2))
            assert iou(polygons_to_mask([ring], (height, width)), mask) >= TRACKED


@needs_built_in
def test_the_sdk_takes_the_detection_function(sdk: Any) -> None:
    function = sdk.Everything(nano())
    picture = Image.fromarray(drawn(0)[0])

    masks = function.detect(SimpleNamespace(conf_threshold=0.5, conv_mask_to_poly=False), picture)
    rings = function.detect(SimpleNamespace(conf_threshold=0.5, conv_mask_to_poly=True), picture)

    found = [cvat_mask(shape.points, shapes()[0].shape) for shape in masks]
    assert max(iou(mask, shapes()[0]) for mask in found) >= GOOD
    assert {str(shape.type) for shape in rings} == {"polygon"}
    assert [label.name for label in function.spec.labels] == ["object"]


def test_the_sdk_makes_what_was_asked_for(sdk: Any) -> None:
    assert isinstance(sdk.create("tracking"), sdk.Tracking)
    with pytest.raises(ValueError, match="no function `guess`"):
        sdk.create("guess")


def test_cvats_masks_go_both_ways() -> None:
    for mask in shapes():
        assert np.array_equal(cvat_mask(cvat_points(Segment.from_mask(mask)), mask.shape), mask)
    for damaged in (
        [],
        [1.0, 0, 0, 0],
        [4, 0, 0, 9, 9],
        [1, 0, 0, 1, 1],
        [1, 0, 0, float("nan"), 0],
    ):
        with pytest.raises(ImageError):
            cvat_mask(damaged, (5, 5))
