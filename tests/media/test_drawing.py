import io

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import ImageError, OptionError, OutputError
from samgraph.media.drawing import (
    cutout,
    davis_palette,
    draw_boxes,
    draw_points,
    label_map,
    object_colour,
    overlay,
    palette_png,
)
from tests.media.shapes import picture

GREY = np.full((6, 8, 3), 100, np.uint8)


def test_the_palette_is_that_of_davis() -> None:
    palette = davis_palette()

    # The first and some later entries of the palette in the DAVIS 2017 files.
    assert palette[:24].hex() == "000000800000008000808000000080800080008080808080"
    assert palette[24:30].hex() == "400000c00000"
    assert len(palette) == 768


def test_colours_are_fixed_and_different() -> None:
    colours = [object_colour(index) for index in range(1, 31)]

    assert colours[0] == object_colour(1)
    assert len(set(colours)) == 30


def test_an_overlay_tints_only_the_mask_and_outlines_it() -> None:
    mask = np.zeros((6, 8), np.bool_)
    mask[1:6, 1:7] = True

    drawn = overlay(GREY, mask[None], object_ids=[3], opacity=0.5, outline=1)

    colour = np.array(object_colour(3))
    assert np.array_equal(drawn[~mask], GREY[~mask])
    assert np.array_equal(drawn[1, 1], colour)
    assert np.array_equal(drawn[3, 3], np.rint(50 + colour * 0.5))
    assert (GREY == 100).all()


def test_an_overlay_of_nothing_is_the_image() -> None:
    assert np.array_equal(overlay(GREY, np.zeros((0, 6, 8), np.bool_)), GREY)
    assert np.array_equal(overlay(GREY, np.zeros((2, 6, 8), np.bool_)), GREY)


def test_points_and_boxes_are_drawn_where_they_are() -> None:
    image = np.zeros((60, 80, 3), np.uint8)

    dotted = draw_points(image, [(20, 30), (60, 30)], [1, 0])
    boxed = draw_boxes(image, [(50, 40, 10, 20)])

    assert dotted[30, 20].tolist() == [46, 204, 64]
    assert dotted[30, 60].tolist() == [255, 65, 54]
    assert boxed[20, 30].tolist() == list(object_colour(1))
    assert not boxed[30, 30].any()
    assert not image.any()


def test_a_cutout_keeps_nothing_of_the_background() -> None:
    mask = np.zeros((6, 8), np.bool_)
    mask[2:4, 3:6] = True

    whole, tight = cutout(GREY, mask), cutout(GREY, mask, crop=True)

    assert whole.shape == (6, 8, 4)
    assert not whole[~mask].any()
    assert (whole[mask] == [100, 100, 100, 255]).all()
    assert tight.shape == (2, 3, 4)
    assert cutout(GREY, np.zeros((6, 8), np.bool_), crop=True).shape == (6, 8, 4)
    assert cutout(GREY, mask * 0.5)[2, 3, 3] == 128


def test_the_lowest_id_is_on_top_whatever_the_order() -> None:
    masks = [picture("##."), picture(".##")]

    assert label_map(masks, [7, 2], (1, 3)).tolist() == [[7, 2, 2]]
    assert label_map(masks[::-1], [2, 7], (1, 3)).tolist() == [[7, 2, 2]]
    with pytest.raises(OutputError, match="object 256 does not fit"):
        label_map(masks, [1, 256], (1, 3))


def test_a_palette_png_holds_the_ids_themselves() -> None:
    labels = np.array([[0, 1], [2, 255]], np.uint8)

    with Image.open(io.BytesIO(palette_png(labels))) as image:
        assert image.mode == "P"
        assert np.array_equal(np.array(image), labels)
        assert bytes(image.getpalette() or [])[:6].hex() == "000000800000"


def test_bad_arguments_are_named() -> None:
    with pytest.raises(OptionError, match="opacity is a share"):
        overlay(GREY, np.zeros((1, 6, 8), np.bool_), opacity=2)
    with pytest.raises(ImageError, match="the masks are not those of this image"):
        overlay(GREY, np.zeros((1, 6, 7), np.bool_))
    with pytest.raises(ImageError, match="the mask is not that of this image"):
        cutout(GREY, np.zeros((6, 7), np.bool_))
    with pytest.raises(ImageError, match="do not fit a palette image"):
        palette_png(np.zeros((2, 2), np.int64))
