"""What all results of images have in common: they show, save and export themselves."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.formats.coco import coco_document
from samgraph.formats.labelme import labelme_document
from samgraph.formats.pictures import OPACITY, draw_segments, ranked_label_map
from samgraph.formats.sam import Mode, to_sam_dicts
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.formats.table import Format, ImageFormat, WriteOptions, format_for
from samgraph.media.files import write_atomically
from samgraph.media.image.reading import Rgb, encode_image
from samgraph.media.mask.polygons import Polygon, mask_to_polygons

_NOTEBOOK_SIDE = 1024


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


class Segmentation(ABC):
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
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the image."""
        return self.picture.size_hw

    def segmented_image(self, label: str | None = None, *, all: bool = True) -> SegmentedImage:
        """All masks, or one per object, with the image, as `samgraph.formats` takes them."""
        return self.picture.with_segments(self.segments if all else self.chosen).labelled(label)

    def to_coco(self, label: str | None = None, *, tolerance: float = 0.0) -> dict[str, Any]:
        """A COCO document: run-length encoded, or polygons where `tolerance` is above 0."""
        shapes = WriteOptions(tolerance=tolerance).shapes
        return coco_document([self.segmented_image(label)], **shapes)

    def to_labelme(self, label: str | None = None, *, tolerance: float = 0.0) -> dict[str, Any]:
        """A labelme document: masks, or polygons where `tolerance` is above 0."""
        shapes = WriteOptions(tolerance=tolerance).shapes
        return labelme_document(self.segmented_image(label), **shapes)

    def to_polygons(self, tolerance: float = 0.0) -> list[list[Polygon]]:
        """The outlines of each mask in pixels, at most `tolerance` pixels from its edge."""
        return [mask_to_polygons(segment.mask, tolerance) for segment in self.segments]

    def to_sam_dicts(self, mode: Mode = "binary_mask") -> list[dict[str, Any]]:
        """The dicts that SAM's automatic mask generator returns."""
        return to_sam_dicts(self.segments, mode)

    def labels(self) -> NDArray[np.int32]:
        """A label map [H, W]: the number of the mask at each pixel, from 1; 0 for none."""
        return ranked_label_map(self.segmented_image(all=False))

    def overlay(self, opacity: float = OPACITY) -> Rgb:
        """The image with the masks tinted, uint8 [H, W, 3]."""
        return draw_segments(self.picture.need_pixels(), self.chosen, opacity)

    def save(
        self,
        path: str | os.PathLike[str],
        format: ImageFormat | None = None,
        *,
        all: bool = False,
        label: str | None = None,
        tolerance: float = 0.0,
        crop: bool = False,
    ) -> list[Path]:
        """Write a file in the format its suffix implies, or in `format`; returns what was written.

        `.png` is the mask, other pictures are overlays, `.json` is COCO, `.xml` is CVAT, `.txt` is
        YOLO. Formats: png, cutout, overlay, davis, coco, cvat, label-studio, labelme, polygons,
        sam, yolo.

        Args:
            path: The file.
            format: What to write, where the suffix does not imply it.
            all: Every mask and not only the best of each prompt; masks and cut-outs then have a
                file each, numbered from 1.
            label: What the objects are called in annotations.
            tolerance: How far, in pixels, a polygon may be from the mask's edge; above 0,
                annotations get polygons instead of masks.
            crop: Crop a cut-out to the object.

        Raises:
            OutputError: The file cannot be written, or cannot hold this format.
        """
        options = WriteOptions(label=label, tolerance=tolerance, crop=crop)
        return self.write(Path(path), format_for(path, format), options, all=all)

    def write(
        self, path: Path, format: Format, options: WriteOptions, *, all: bool = False
    ) -> list[Path]:
        """`save` with a format of the table and options as one value."""
        files = {path: self.segments if all else self.chosen}
        if all and format.has_file_per_mask:
            files = {numbered(path, i): (mask,) for i, mask in enumerate(self.segments, 1)}
        for file, segments in files.items():
            image = self.picture.with_segments(segments)
            write_atomically(file, format.encode([image], options, path.suffix.lower()))
        return list(files)

    def show(self) -> None:
        """Open the overlay in the system's viewer."""
        Image.fromarray(self.overlay()).show()

    def _repr_png_(self) -> bytes | None:
        """What a notebook shows: the overlay, at most 1024 pixels wide and high."""
        if self.picture.pixels is None:
            return None
        small = Image.fromarray(self.overlay())
        small.thumbnail((_NOTEBOOK_SIDE, _NOTEBOOK_SIDE))
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
