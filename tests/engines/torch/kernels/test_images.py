"""Kernels for pixels and masks, in Triton's interpreter, held to torch's functions and the host."""

import numpy as np
import pytest

from samgraph.media.image.preprocess import resize_video_frame
from tests.engines.torch.kernels.running import torch
from tests.engines.torch.test_images import MEAN, STD, assert_measured, blobs, picture


@pytest.mark.parametrize(("height", "width"), [(20, 33), (40, 7), (16, 16)])
def test_frames_are_resized_to_the_bit(height: int, width: int) -> None:
    from samgraph.engines.torch.bicubic import Normalisation
    from samgraph.engines.torch.kernels.bicubic import frame_pixels

    frame = picture(height, width)

    found = frame_pixels(torch.from_numpy(frame), 16, Normalisation(MEAN, STD))

    np.testing.assert_array_equal(found.numpy(), resize_video_frame(frame, 16))


def test_wanted_masks_are_measured() -> None:
    from samgraph.engines.torch.kernels.measure import measure

    assert_measured(measure, np.array([1, 0, 1, 1], np.bool_), (50, 150))


def test_masks_are_packed() -> None:
    from samgraph.engines.torch import measuring
    from samgraph.engines.torch.kernels.masks import mask_bits

    logits = torch.from_numpy(blobs(2))

    found, wanted = (pack(logits, (21, 45), 0.5) for pack in (mask_bits, measuring.mask_bits))

    assert (found != wanted).float().mean() < 1e-2  # pixels on the edge
    assert found.shape == (2, 21, 6)
