"""Grids of point prompts, and the crops they are applied to."""

import numpy as np

from samgraph.predict.everything.grids import Crop, crops_of, layer_grids, point_grid


def test_points_are_the_centres_of_their_cells() -> None:
    assert point_grid(2).tolist() == [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]]
    assert [len(grid) for grid in layer_grids(32, 2, 2)] == [1024, 256, 64]


def test_crops_cover_the_image_and_overlap() -> None:
    crops = crops_of((1200, 1800), 2, 512 / 1500)

    assert len(crops) == 1 + 4 + 16
    assert crops[0] == Crop(0, 0, 1800, 1200)
    # The reference's own numbers: overlap 409, then 204.
    assert crops[1].box_xyxy == (0, 0, 1105, 805)
    assert crops[2].box_xyxy == (0, 396, 1105, 1200)
    assert {crop.layer for crop in crops[5:]} == {2}
    covered = np.zeros((1200, 1800), np.bool_)
    for crop in crops[5:]:
        covered[crop.top : crop.bottom, crop.left : crop.right] = True
    assert covered.all()
