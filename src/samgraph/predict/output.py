"""What all results have in common: masks of an image that show, save and export themselves."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.formats.coco import coco_document
from samgraph.formats.labelme import labelme_document
from samgraph.formats.sam import Mode, to_sam_dicts
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.media.files import write_atomically
from samgraph.media.image.reading import Rgb, encode_image
from samgraph.media.mask.polygons import Polygon, mask_to_polygons
from samgraph.predict import rendering
from samgraph.predict.picture import Picture
from samgraph.predict.rendering import Format, WriteOptions

_NOTEBOOK_SIDE = 1024


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
        """The masks that pictures show: one for each object."""

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the image."""
        return self.picture.size_hw

    def segmented_image(self, label: str | None = None) -> SegmentedImage:
        """The masks with the name and size of the image, as `samgraph.formats` takes them."""
        segments = rendering.labelled(self.segments, label)
        return SegmentedImage(self.picture.name, self.size_hw, segments)

    def to_coco(self, label: str | None = None, *, tolerance: float = 0.0) -> dict[str, Any]:
        """A COCO document: run-length encoded, or polygons where there is a tolerance."""
        image = self.segmented_image(label)
        return coco_document([image], polygons=tolerance > 0, tolerance=tolerance)

    def to_labelme(self, label: str | None = None, *, tolerance: float = 0.0) -> dict[str, Any]:
        """A labelme document: masks, or polygons where there is a tolerance."""
        image = self.segmented_image(label)
        return labelme_document(image, polygons=tolerance > 0, tolerance=tolerance)

    def to_polygons(self, tolerance: float = 0.0) -> list[list[Polygon]]:
        """The outlines of each mask, in pixels, within so many pixels of the true ones."""
        return [mask_to_polygons(segment.mask, tolerance) for segment in self.segments]

    def to_sam_dicts(self, mode: Mode = "binary_mask") -> list[dict[str, Any]]:
        """The dicts that SAM's automatic mask generator returns."""
        return to_sam_dicts(self.segments, mode)

    def labels(self) -> NDArray[np.int32]:
        """One number a pixel, [H, W]: which mask it belongs to, from 1; 0 for none."""
        return rendering.label_map(self.picture, self.chosen)

    def overlay(self, opacity: float = 0.45) -> Rgb:
        """The image with the masks tinted, uint8 [H, W, 3]."""
        return rendering.draw(self.picture.need_pixels(), self.chosen, opacity)

    def save(
        self,
        path: str | os.PathLike[str],
        format: Format | None = None,
        *,
        all: bool = False,
        label: str | None = None,
        tolerance: float = 0.0,
        crop: bool = False,
    ) -> list[Path]:
        """Write a file; what it holds is told by its suffix, or by `format`.

        `.png` is the mask, other images are overlays, `.json` is COCO, `.txt` is YOLO. Formats:
        png, cutout, overlay, coco, labelme, polygons, sam, yolo. Returns what was written.

        Args:
            path: The file.
            format: What to write, where the suffix does not say it.
            all: Every mask and not only the best of each prompt; a mask or a cut-out then has a
                file of its own, numbered from 1.
            label: What the objects are called in annotations.
            tolerance: How far, in pixels, a polygon may be from the mask's edge; with one, coco
                and labelme get polygons.
            crop: Cut the cut-out down to the object.

        Raises:
            OutputError: The file cannot be written, or cannot hold what was asked for.
        """
        target = Path(path)
        kind, suffix = rendering.format_for(os.fspath(path), format), target.suffix.lower()
        look = WriteOptions(label=label, tolerance=tolerance, crop=crop)
        groups: Sequence[tuple[Path, Sequence[Segment]]] = [(target, self.chosen)]
        if all and kind in ("png", "cutout"):
            groups = [(numbered(target, i), [one]) for i, one in enumerate(self.segments, 1)]
        elif all:
            groups = [(target, self.segments)]
        for place, segments in groups:
            write_atomically(place, rendering.render(kind, suffix, self.picture, segments, look))
        return [place for place, _ in groups]

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


def numbered(path: Path, number: int) -> Path:
    """`mask.png` as `mask_1.png`."""
    return path.with_name(f"{path.stem}_{number}{path.suffix}")
