"""One small image with segments of every kind, for the round trips."""

import numpy as np

from samgraph.formats import Segment, SegmentedImage
from samgraph.media.mask import rle
from tests.media.shapes import discs, picture

RING = picture(
    "........",
    ".####...",
    ".#..#...",
    ".####.#.",
    "......#.",
)


def scene(name: str = "street/cat.jpg", size: int = 40) -> SegmentedImage:
    """Discs with holes and islands, with everything that can be known of a segment."""
    segments = (
        Segment(
            rle.encode(discs(1, size)),
            label="cat",
            score=0.75,
            stability=0.5,
            object_id=3,
            point_xy=(4.5, 6.0),
            crop_xyxy=(0.0, 0.0, 20.0, 30.0),
        ),
        Segment(rle.encode(discs(2, size)), label="dog <&> \N{SNOWMAN}", object_id=7),
    )
    return SegmentedImage(name, (size, size), segments)


def ring_scene() -> SegmentedImage:
    """A ring and an island in one segment."""
    return SegmentedImage("ring.png", (5, 8), (Segment.from_mask(RING, label="ring"),))


def same_masks(first: SegmentedImage, second: SegmentedImage) -> bool:
    """Whether two images have equal masks in the same order."""
    return len(first.segments) == len(second.segments) and all(
        np.array_equal(a.mask, b.mask) for a, b in zip(first.segments, second.segments, strict=True)
    )
