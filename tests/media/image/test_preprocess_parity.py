"""Resizing against torch itself."""

import numpy as np
import pytest

from samgraph.media.image.preprocess import MEAN, STD, resize_image, upscale_logits, upscale_masks

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

SIZES = [(1200, 1800, 1024), (375, 500, 1024), (33, 2001, 256), (2001, 33, 256), (7, 5, 64)]


@pytest.mark.parametrize(("height", "width", "size"), SIZES)
def test_resizing_an_image_equals_torch(height: int, width: int, size: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    tensor = torch.from_numpy(image).permute(2, 0, 1).contiguous().float().div(255)
    expected = torch.nn.functional.interpolate(
        tensor[None], (size, size), mode="bilinear", antialias=True, align_corners=False
    )[0].numpy()

    resized = resize_image(image, size)

    mean, std = (np.array(values, np.float32)[:, None, None] for values in (MEAN, STD))
    expected = (expected - mean) / std
    assert np.abs(resized - expected).max() < 3e-6


@pytest.mark.parametrize("size_hw", [(1200, 1800), (100, 77), (256, 256), (719, 1281)])
def test_growing_masks_equals_torch(size_hw: tuple[int, int]) -> None:
    low = (np.random.default_rng(0).normal(size=(2, 256, 256)) * 10).astype(np.float32)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(low)[None], size_hw, mode="bilinear", align_corners=False
    )[0].numpy()

    grown = upscale_logits(low, size_hw)

    assert np.abs(grown - expected).max() < 1e-5
    differs = upscale_masks(low, size_hw) != (expected > 0)
    assert np.abs(expected[differs]).max(initial=0) < 1e-5
