"""Results for matplotlib, supervision and napari, which are stood in for."""

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from samgraph.errors import OptionError
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.predict.handover import to_napari, to_supervision
from tests.predict.pictures import encoded, picture

BOXES = [(17, 27, 63, 73), (100, 70, 130, 100)]


class Recorder:
    """A library whose calls are kept."""

    def __init__(self, **given: Any) -> None:
        self.given = given


def test_detections_have_boxes_masks_scores_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("supervision")
    vars(library)["Detections"] = Recorder
    monkeypatch.setitem(sys.modules, "supervision", library)
    result = encoded().predict(boxes=BOXES).with_labels(["cup", "dog"])

    given = result.to_supervision().given

    best = result.best
    assert np.array_equal(given["xyxy"], best.boxes.astype(np.float32))
    assert np.array_equal(given["mask"], best.masks)
    assert np.allclose(given["confidence"], best.scores)
    assert given["class_id"].tolist() == [0, 1]
    assert given["data"]["class_name"].tolist() == ["cup", "dog"]
    assert given["tracker_id"] is None


def test_tracked_objects_are_told_apart_and_nothing_is_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = ModuleType("supervision")
    vars(library)["Detections"] = Recorder
    monkeypatch.setitem(sys.modules, "supervision", library)
    mask = np.eye(4, dtype=np.bool_)
    image = SegmentedImage("a", (4, 4), (Segment.from_mask(mask, object_id=7, label="x"),))

    assert to_supervision(image).given["tracker_id"].tolist() == [7]
    empty = to_supervision(SegmentedImage("a", (4, 4))).given
    assert empty["xyxy"].shape == (0, 4)
    assert empty["mask"].shape == (0, 4, 4)


def test_napari_gets_an_image_and_labels_in_its_colours() -> None:
    result = encoded().predict(boxes=BOXES)

    (pixels, options, kind), (labels, shown, labels_kind) = result.to_napari()

    assert (kind, labels_kind) == ("image", "labels")
    assert np.array_equal(pixels, picture())
    assert options["rgb"] is True
    assert np.array_equal(labels > 0, result.best.masks.any(0))
    assert set(shown["colormap"]) == {None, 1, 2}
    assert len(to_napari(SegmentedImage("a", (4, 4)))) == 1


def test_a_plot_is_the_overlay() -> None:
    class Axes:
        def __init__(self) -> None:
            self.calls: dict[str, Any] = {}

        def __getattr__(self, name: str) -> Any:
            return lambda *args: self.calls.update({name: args})

    axes, result = Axes(), encoded().predict(points=[(40, 50)])

    assert result.plot(axes) is axes
    assert np.array_equal(axes.calls["imshow"][0], result.overlay())


@pytest.mark.parametrize("call", ["plot", "to_supervision"])
def test_a_missing_library_is_named(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ImportError(name)

    result = encoded().predict(points=[(40, 50)])
    monkeypatch.setattr(importlib, "import_module", missing)

    with pytest.raises(OptionError, match="which is not installed"):
        getattr(result, call)()


def test_an_encoded_image_and_a_result_are_shown_in_a_notebook() -> None:
    for shown in (encoded(), encoded().predict(points=[(40, 50)])):
        data = shown._repr_png_()
        assert data is not None
        assert data.startswith(b"\x89PNG")


def test_masks_are_what_numpy_makes_of_a_result() -> None:
    result = encoded().predict(points=[(40, 50)])

    assert np.array_equal(np.asarray(result), result.masks)
    assert np.asarray(result, np.float32).dtype == np.float32
    assert np.array(result, copy=True) is not result.masks
