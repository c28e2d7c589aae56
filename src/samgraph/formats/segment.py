"""What all formats have in common: a segment, and an image with its segments."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import OutputError
from samgraph.media.drawing import label_map
from samgraph.media.image.reading import Rgb
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.rle import Rle

Box = tuple[float, float, float, float]

DEFAULT_LABEL = "object"


@dataclass(frozen=True, slots=True)
class Segment:
    """A mask with its scores, run-length encoded: about a thousandth of its size.

    `score` is the predicted IoU, `object_id` the number of a tracked object, `point_xy` the click
    it was predicted from, `crop_xyxy` the crop of the image it was predicted in.
    """

    rle: Rle = field(repr=False)
    label: str | None = None
    score: float | None = None
    stability: float | None = None
    object_id: int | None = None
    point_xy: tuple[float, float] | None = None
    crop_xyxy: Box | None = None

    def __post_init__(self) -> None:
        # numpy scalars cannot be written as JSON.
        for name, kind in (("score", float), ("stability", float), ("object_id", int)):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else kind(value))

    @classmethod
    def from_mask(
        cls,
        mask: NDArray[np.bool_],
        *,
        label: str | None = None,
        score: float | None = None,
        object_id: int | None = None,
    ) -> "Segment":
        """A segment of a bool [H, W] mask."""
        return cls(run_lengths.encode(mask), label=label, score=score, object_id=object_id)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """The mask, bool [H, W], decoded on each access."""
        return run_lengths.decode(self.rle)

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the image."""
        height, width = self.rle["size"]
        return height, width

    @property
    def area(self) -> int:
        """The number of pixels."""
        return run_lengths.area(self.rle)

    @property
    def box_xyxy(self) -> Box:
        """The tight box; right and bottom are exclusive."""
        left, top, width, height = run_lengths.to_bbox(self.rle)
        return left, top, left + width, top + height


@dataclass(frozen=True, slots=True)
class SegmentedImage:
    """The segments of an image, with its name and size, and its pixels where they are known.

    `index` is the number of the frame, of a video.
    """

    name: str
    size_hw: tuple[int, int]
    segments: tuple[Segment, ...] = ()
    pixels: Rgb | None = field(default=None, repr=False, compare=False)
    index: int | None = field(default=None, compare=False)

    def need_pixels(self) -> Rgb:
        """The pixels, uint8 [H, W, 3], for formats that show the image itself.

        Raises:
            OutputError: They are not known: the image was read from an embedding.
        """
        if self.pixels is None:
            raise OutputError(
                f"the pixels of `{self.name}` are not available",
                got="an embedding",
                hint="give both: `model.image(photo, embedding=saved)`",
            )
        return self.pixels

    def labelled(self, label: str | None) -> "SegmentedImage":
        """The same with every segment under one label; unchanged for None."""
        if label is None:
            return self
        named = tuple(replace(segment, label=label) for segment in self.segments)
        return replace(self, segments=named)


def labels_of(images: Iterable[SegmentedImage], default: str = DEFAULT_LABEL) -> list[str]:
    """Every label in order of first use; a segment without a label counts as `default`."""
    found = {segment.label or default: None for image in images for segment in image.segments}
    return list(found)


def label_image(image: SegmentedImage) -> NDArray[np.uint8]:
    """The object id at each pixel, uint8 [H, W]; segments without an id are numbered from 1."""
    ids = [
        index if segment.object_id is None else segment.object_id
        for index, segment in enumerate(image.segments, start=1)
    ]
    return label_map((segment.mask for segment in image.segments), ids, image.size_hw)


def file_stems(images: Iterable[SegmentedImage]) -> list[str]:
    """The file name without suffix of each image: the last part of its name, all different.

    Raises:
        OutputError: Two images would be written to the same file, or one has no name.
    """
    stems: dict[str, str] = {}
    for image in images:
        stem = file_stem(image.name)
        if stem in stems:
            raise OutputError(
                f"`{image.name}` cannot have a file of its own",
                got=f"also `{stems[stem]}`",
                expected="images with different file names",
            )
        stems[stem] = image.name
    return list(stems)


def file_stem(name: str) -> str:
    """The last part of a name without its suffix, which cannot lead out of a folder.

    Raises:
        OutputError: It is not the name of a file.
    """
    stem = PurePath(name.replace("\\", "/")).stem
    if stem in ("", ".", "..") or "\0" in stem:
        raise OutputError(f"`{name}` cannot have a file of its own", got="no usable name")
    return stem
