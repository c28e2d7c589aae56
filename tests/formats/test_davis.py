from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import ImageError, OutputError
from samgraph.formats import (
    Segment,
    SegmentedImage,
    read_davis,
    read_davis_frame,
    write_davis,
    write_davis_frame,
)
from tests.formats.scenes import RING


def frame(index: int, *ids: int) -> SegmentedImage:
    segments = tuple(Segment.from_mask(np.roll(RING, i, axis=1), object_id=i) for i in ids)
    return SegmentedImage(f"{index:05d}.jpg", (5, 8), segments)


def test_a_frame_is_a_palette_image_of_ids(tmp_path: Path) -> None:
    write_davis_frame(tmp_path / "00000.png", frame(0, 2))

    with Image.open(tmp_path / "00000.png") as image:
        assert image.mode == "P"
        assert np.array_equal(np.array(image), np.roll(RING, 2, axis=1) * 2)
        assert (image.getpalette() or [])[6:9] == [0, 128, 0]


def test_frames_come_back_in_order_with_their_ids(tmp_path: Path) -> None:
    write_davis(tmp_path, [frame(10, 1, 5), frame(9, 5), frame(100)])

    back = read_davis(tmp_path)

    assert [image.name for image in back] == ["00009.png", "00010.png", "00100.png"]
    assert [[s.object_id for s in image.segments] for image in back] == [[5], [1, 5], []]
    assert np.array_equal(back[0].segments[0].mask, np.roll(RING, 5, axis=1))
    assert back[2].size_hw == (5, 8)


def test_the_lowest_id_is_on_top_as_in_the_reference(tmp_path: Path) -> None:
    write_davis_frame(tmp_path / "a.png", frame(0, 4, 3))

    low, high = read_davis_frame(tmp_path / "a.png").segments

    assert (low.object_id, high.object_id) == (3, 4)
    assert np.array_equal(low.mask, np.roll(RING, 3, axis=1))
    assert np.array_equal(high.mask, np.roll(RING, 4, axis=1) & ~low.mask)


def test_ids_that_do_not_fit_and_empty_folders_are_errors(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="object 300 does not fit"):
        write_davis(tmp_path, [frame(0, 300)])
    with pytest.raises(ImageError, match="has no masks"):
        read_davis(tmp_path)
