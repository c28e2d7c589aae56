"""What all results have in common: they show, save and hand over their masks."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image

from samgraph.errors import OptionError
from samgraph.formats.coco import coco_document
from samgraph.formats.labelme import labelme_document
from samgraph.formats.pictures import OPACITY, draw_segments, ranked_label_map
from samgraph.formats.sam import Mode, to_sam_dicts
from samgraph.formats.segment import Segment, SegmentedImage, file_stem
from samgraph.formats.table import Format, ImageFormat, WriteOptions, find_format, format_for
from samgraph.formats.yolo import add_classes
from samgraph.media.files import make_folder, write_atomically
from samgraph.media.image.reading import Rgb, encode_image
from samgraph.media.mask.polygons import Polygon, mask_to_polygons
from samgraph.predict.options import refuses_unknown

if TYPE_CHECKING:
    from samgraph.predict.handover import NapariLayer

NOTEBOOK_SIDE = 1024
# A name for all objects, or one for each.
Labels: TypeAlias = str | Sequence[str] | None


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """An upright image: its name and size, and its pixels unless it is known by its embedding."""

    name: str
    size_hw: tuple[int, int]
    pixels: Rgb | None = None

    @property
    def size_text(self) -> str:
        """Width and height, such as `1800x1200`."""
        height, width = self.size_hw
        return f"{width}x{height}"

    def with_segments(self, segments: Sequence[Segment]) -> SegmentedImage:
        """The image with segments, as the formats take it."""
        return SegmentedImage(self.name, self.size_hw, tuple(segments), self.pixels)

    def need_pixels(self) -> Rgb:
        """The pixels, uint8 [H, W, 3].

        Raises:
            OutputError: The image was read from an embedding.
        """
        return self.with_segments(()).need_pixels()


class MaskOutput(ABC):
    """Masks of one image or frame, which can be shown, saved and handed over."""

    @property
    @abstractmethod
    def masks(self) -> NDArray[np.bool_]:
        """The masks at the size of the image, bool [n, H, W]."""

    @abstractmethod
    def segmented_image(self, label: Labels = None, *, all: bool = True) -> SegmentedImage:
        """All masks, or one per object, with the image, as `samgraph.formats` takes them.

        `label` names all objects, or is a list with a name for each.
        """

    @property
    @abstractmethod
    def has_pixels(self) -> bool:
        """Whether the image itself is known, or can be read."""

    @abstractmethod
    def read_pixels(self) -> Rgb | None:
        """The image itself, uint8 [H, W, 3]; None where it is not known."""

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[np.generic]:
        """The masks: `numpy.asarray(result)` is bool [n, H, W]."""
        masks: NDArray[Any] = self.masks
        if dtype is not None and masks.dtype != np.dtype(dtype):
            return masks.astype(dtype)
        return masks.copy() if copy else masks

    def to_coco(self, label: Labels = None, *, tolerance: float = 0.0) -> dict[str, Any]:
        """A COCO document: run-length encoded, or polygons where `tolerance` is above 0."""
        shapes = WriteOptions(tolerance=tolerance).shapes
        return coco_document([self.segmented_image(label)], **shapes)

    def to_labelme(self, label: Labels = None, *, tolerance: float = 0.0) -> dict[str, Any]:
        """A labelme document: masks, or polygons where `tolerance` is above 0."""
        shapes = WriteOptions(tolerance=tolerance).shapes
        return labelme_document(self.segmented_image(label), **shapes)

    def to_supervision(self) -> Any:
        """`supervision.Detections`: a box, mask and score per object (`pip install supervision`).

        Raises:
            OptionError: supervision is not installed.
        """
        from samgraph.predict.handover import to_supervision

        return to_supervision(self.segmented_image(all=False))

    def to_napari(self) -> "list[NapariLayer]":
        """Layers for napari, as (data, options, kind): the image, where known, and a label map.

        `viewer.add_image(data, **options)` and `viewer.add_labels(data, **options)` take them.
        """
        from samgraph.predict.handover import to_napari

        return to_napari(self._picture(all=False))

    def labels(self) -> NDArray[np.int32]:
        """A label map [H, W]: the number of the object at each pixel, from 1; 0 for none."""
        return ranked_label_map(self.segmented_image(all=False))

    def overlay(self, opacity: float = OPACITY) -> Rgb:
        """The image with the masks tinted, uint8 [H, W, 3]."""
        image = self._picture(all=False)
        return draw_segments(image.need_pixels(), image.segments, opacity)

    @refuses_unknown
    def save(
        self,
        path: str | os.PathLike[str],
        format: ImageFormat | None = None,
        *,
        all: bool = False,
        label: Labels = None,
        tolerance: float = 0.0,
        crop: bool = False,
    ) -> list[Path]:
        """Write a file in the format its suffix implies, or in `format`; returns what was written.

        `.png` is the mask, other pictures are overlays, `.json` is COCO, `.xml` is CVAT, `.txt` is
        YOLO. Formats: png, cutout, overlay, davis, coco, cvat, label-studio, labelme, polygons,
        sam, yolo. YOLO's class names go to `classes.txt` beside the file, after those in it.

        Args:
            path: The file; or a folder, which exists or ends in `/`: the file there is named after
                the image.
            format: What to write, where the suffix does not imply it.
            all: Every mask and not only the best of each prompt; masks and cut-outs then have a
                file each, numbered from 1.
            label: What the objects are called in annotations: a name for all, or a list with one
                for each.
            tolerance: How far, in pixels, a polygon may be from the mask's edge; above 0,
                annotations get polygons instead of masks.
            crop: Crop a cut-out to the object.

        Raises:
            OutputError: The file cannot be written, or cannot hold this format.
            OptionError: There is not one label for each object.
        """
        file = self._file(path, format)
        chosen, options = format_for(file, format), WriteOptions(tolerance=tolerance, crop=crop)
        if file != Path(path):
            make_folder(file.parent)
        take = self._picture if chosen.needs_pixels else self.segmented_image
        image = take(label, all=all)
        beside: list[Path] = []
        if chosen.class_file is not None:
            beside.append(file.with_name(chosen.class_file))
            options = replace(options, classes=add_classes(beside[0], [image]))
        return [*write_image(image, file, chosen, options, each=all), *beside]

    def _file(self, path: str | os.PathLike[str], format: str | None) -> Path:
        """The path, or in a folder the file of the image in this format."""
        is_folder = os.fspath(path).endswith(("/", os.sep)) or os.path.isdir(path)
        if format is None or not is_folder:
            return Path(path)
        found, stem = find_format(format), file_stem(self.segmented_image(all=False).name)
        return Path(path) / f"{stem}{found.suffixes[0]}"

    def write(
        self, path: Path, format: Format, options: WriteOptions, *, all: bool = False
    ) -> list[Path]:
        """`save` with a format of the table and options as one value."""
        take = self._picture if format.needs_pixels else self.segmented_image
        image = take(options.label, all=all)
        return write_image(image, path, format, options, each=all)

    def show(self) -> None:
        """Open the overlay in the system's viewer."""
        Image.fromarray(self.overlay()).show()

    def plot(self, axes: Any = None) -> Any:
        """Draw the overlay with matplotlib; returns the axes (`pip install samgraph[plot]`).

        Raises:
            OptionError: matplotlib is not installed.
        """
        from samgraph.predict.handover import plot_picture

        return plot_picture(self.overlay(), repr(self).strip("<>"), axes)

    def _repr_png_(self) -> bytes | None:
        """What a notebook shows: the overlay, at most 1024 pixels wide and high."""
        return notebook_png(self.overlay()) if self.has_pixels else None

    def _picture(self, label: Labels = None, *, all: bool) -> SegmentedImage:
        """As `segmented_image`, with the pixels where they can be had."""
        return replace(self.segmented_image(label, all=all), pixels=self.read_pixels())


class Segmentation(MaskOutput):
    """Masks of one image."""

    picture: Picture

    @property
    @abstractmethod
    def segments(self) -> tuple[Segment, ...]:
        """The masks run-length encoded, each with its score."""

    @property
    @abstractmethod
    def chosen(self) -> tuple[Segment, ...]:
        """The masks that pictures show: one per object."""

    @property
    def masks(self) -> NDArray[np.bool_]:
        """All masks, bool [n, H, W], decoded on each access: n times the image's size in memory."""
        found = [segment.mask for segment in self.segments]
        return np.stack(found) if found else np.zeros((0, *self.size_hw), np.bool_)

    @property
    def objects_of_segments(self) -> Sequence[int]:
        """Which object each of `segments` is of, from 0: for results with one mask per object."""
        return range(len(self.segments))

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the image."""
        return self.picture.size_hw

    @property
    def has_pixels(self) -> bool:
        """Whether the image itself is known."""
        return self.picture.pixels is not None

    def read_pixels(self) -> Rgb | None:
        """The image itself, uint8 [H, W, 3]; None where it is known by its embedding."""
        return self.picture.pixels

    def segmented_image(self, label: Labels = None, *, all: bool = True) -> SegmentedImage:
        """All masks, or one per object, with the image, as `samgraph.formats` takes them."""
        segments = self.segments if all else self.chosen
        image = self.picture.with_segments(segments)
        if label is None or isinstance(label, str):
            return image.labelled(label)
        objects = self.objects_of_segments if all else range(len(segments))
        return with_labels(image, label, objects)

    def to_polygons(self, tolerance: float = 0.0) -> list[list[Polygon]]:
        """The outlines of each mask in pixels, at most `tolerance` pixels from its edge."""
        return [mask_to_polygons(segment.mask, tolerance) for segment in self.segments]

    def to_sam_dicts(self, mode: Mode = "binary_mask") -> list[dict[str, Any]]:
        """The dicts that SAM's automatic mask generator returns."""
        return to_sam_dicts(self.segments, mode)


def with_labels(
    image: SegmentedImage, labels: Sequence[str], objects: Sequence[int]
) -> SegmentedImage:
    """The image with each segment under the label of its object.

    Raises:
        OptionError: There is not one label for each object.
    """
    count = max(objects, default=-1) + 1
    if len(labels) != count or not all(isinstance(label, str) for label in labels):
        raise OptionError(
            "there is not one label for each object",
            got=f"{len(labels)} labels, {count} objects",
            hint="one text names all objects",
        )
    named = [replace(s, label=labels[i]) for s, i in zip(image.segments, objects, strict=True)]
    return replace(image, segments=tuple(named))


def write_image(
    image: SegmentedImage, path: Path, format: Format, options: WriteOptions, *, each: bool = False
) -> list[Path]:
    """Write a file; with `each`, one per mask where the format can. Returns what was written."""
    files = {path: image}
    if each and format.has_file_per_mask:
        masks = enumerate(image.segments, 1)
        files = {numbered(path, i): replace(image, segments=(mask,)) for i, mask in masks}
    for file, part in files.items():
        write_atomically(file, format.encode([part], options, path.suffix.lower()))
    return list(files)


def notebook_png(pixels: Rgb) -> bytes:
    """A picture for a notebook: a PNG of at most 1024 pixels wide and high."""
    small = Image.fromarray(pixels)
    small.thumbnail((NOTEBOOK_SIDE, NOTEBOOK_SIDE))
    return encode_image(np.asarray(small))


def name_of(source: Any) -> str:
    """The name of an image in written files: its file name, or `image`."""
    label = source if isinstance(source, str | os.PathLike) else getattr(source, "filename", "")
    label = label or getattr(source, "name", "")
    text = os.fspath(label) if isinstance(label, str | os.PathLike) else ""
    name = PurePath(text).name if isinstance(text, str) else ""
    return name or "image"


def numbered(path: Path, number: int) -> Path:
    """`mask.png` as `mask_1.png`."""
    return path.parent / f"{path.stem}_{number}{path.suffix}"
