"""Results for other libraries: matplotlib, supervision and napari, none of which is required."""

import importlib
from typing import Any, TypeAlias

import numpy as np

from samgraph.errors import OptionError
from samgraph.formats.pictures import ranked_label_map, segment_number
from samgraph.formats.segment import DEFAULT_LABEL, SegmentedImage, labels_of
from samgraph.media.drawing import object_colour
from samgraph.media.image.reading import Rgb

# What napari calls layer data: the data, keyword arguments, and the kind of layer.
NapariLayer: TypeAlias = tuple[Any, dict[str, Any], str]


def plot_picture(pixels: Rgb, title: str, axes: Any = None) -> Any:
    """Draw a picture with matplotlib, on new axes if none are given; returns the axes."""
    if axes is None:
        axes = _need("matplotlib.pyplot", "plots").subplots()[1]
    axes.imshow(pixels)
    axes.set_title(title)
    axes.set_axis_off()
    return axes


def to_supervision(image: SegmentedImage) -> Any:
    """`supervision.Detections` of the segments; tracked objects have their number as tracker id."""
    library = _need("supervision", "detections")
    segments, names = image.segments, labels_of([image])
    labels = [segment.label or DEFAULT_LABEL for segment in segments]
    numbers = [segment.object_id for segment in segments]
    masks = [segment.mask for segment in segments]
    scores = [segment.score for segment in segments if segment.score is not None]
    return library.Detections(
        xyxy=np.array([segment.box_xyxy for segment in segments], np.float32).reshape(-1, 4),
        mask=np.stack(masks) if masks else np.zeros((0, *image.size_hw), np.bool_),
        confidence=np.array(scores, np.float32) if len(scores) == len(segments) else None,
        class_id=np.array([names.index(label) for label in labels], int),
        tracker_id=None if None in numbers else np.array(numbers, int),
        data={"class_name": np.array(labels)},
    )


def to_napari(image: SegmentedImage) -> list[NapariLayer]:
    """The image, where its pixels are known, and a label map in the colours of the overlay."""
    numbers = [segment_number(segment, i) for i, segment in enumerate(image.segments)]
    colours: dict[int | None, Any] = {None: "transparent"}
    for number in numbers:
        colours[number] = np.array([*object_colour(number), 255], np.float32) / 255
    labels = ranked_label_map(image)
    layers: list[NapariLayer] = []
    if image.pixels is not None:
        layers.append((image.pixels, {"name": image.name, "rgb": True}, "image"))
    options = {"name": f"masks of {image.name}", "colormap": colours}
    return [*layers, (labels, options, "labels")]


def _need(module: str, what: str) -> Any:
    """A library that is imported where it is used."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise OptionError(
            f"{what} need the package `{package}`, which is not installed",
            hint=f"pip install {package}",
        ) from error
