import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from samgraph.errors import ImageError
from samgraph.media.image.preprocess import (
    MEAN,
    STD,
    resize_image,
    resize_video_frame,
    upscale_logits,
    upscale_masks,
)
from samgraph.media.image.reading import read_image

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden"
RAMP = (np.arange(5 * 7 * 3).reshape(5, 7, 3) * 37 % 256).astype(np.uint8)
# torch 2.13: interpolate(image / 255, mode="bilinear", antialias=True), channel 0 and 1.
TORCH_TO_3 = [
    [0.3882353008, 0.5533035994, 0.4610643983],
    [0.4436975121, 0.6087659001, 0.5165265799],
    [0.3762305081, 0.5292469859, 0.5719888210],
]
TORCH_TO_8_ROW_0 = [
    0.1450980008,
    0.4987745881,
    0.1894607991,
    0.2566176057,
    0.6374999881,
    0.7046567798,
    0.3953432143,
    0.7490196228,
]


def slow_resize(image: NDArray[np.uint8], size: int) -> NDArray[np.float64]:
    """The definition, in double: each output is the triangle-weighted mean of what it covers."""
    out = image / 255.0
    for axis in (0, 1):
        length = image.shape[axis]
        scale = length / size
        centre = (np.arange(size) + 0.5) * scale
        distance = np.abs(np.arange(length) + 0.5 - centre[:, None]) / max(scale, 1)
        weights = np.maximum(1 - distance, 0)
        weights /= weights.sum(axis=1, keepdims=True)
        out = np.moveaxis(np.tensordot(weights, out, (1, axis)), 0, axis)
    return ((out - MEAN) / STD).transpose(2, 0, 1)


def test_images_are_resized_as_torch_does() -> None:
    smaller = resize_image(RAMP, 3)[0] * STD[0] + MEAN[0]
    larger = resize_image(RAMP, 8)[1] * STD[1] + MEAN[1]

    np.testing.assert_allclose(smaller, TORCH_TO_3, atol=1e-6)
    np.testing.assert_allclose(larger[0], TORCH_TO_8_ROW_0, atol=1e-6)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 70), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_resizing_is_a_weighted_mean(height: int, width: int, size: int, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)

    resized = resize_image(image, size)

    assert resized.dtype == np.float32
    assert resized.flags.c_contiguous
    np.testing.assert_allclose(resized, slow_resize(image, size), atol=5e-5)


@pytest.mark.parametrize("shape", [(4, 3000), (3000, 4), (517, 701)])
def test_long_and_odd_images_are_resized_too(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)

    np.testing.assert_allclose(resize_image(image, 64), slow_resize(image, 64), atol=5e-5)


def test_an_image_of_the_right_size_is_only_normalised() -> None:
    image = np.random.default_rng(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    expected = ((image / np.float32(255) - MEAN) / STD).transpose(2, 0, 1)

    np.testing.assert_allclose(resize_image(image, 64), expected, atol=1e-6)


def test_video_frames_go_through_pillow_and_keep_their_bits() -> None:
    frame = np.random.default_rng(3).integers(0, 256, (54, 96, 3), dtype=np.uint8)
    small = np.asarray(Image.fromarray(frame).resize((32, 32), Image.Resampling.BICUBIC))
    unit = (small / 255.0).astype(np.float32).transpose(2, 0, 1)

    resized = resize_video_frame(frame, 32)

    mean, std = (np.array(values, np.float32)[:, None, None] for values in (MEAN, STD))
    assert np.array_equal(resized, (unit - mean) / std)


def test_logits_grow_as_torch_does() -> None:
    low = np.array([[-3.0, 1.0, 2.0], [4.0, -5.0, 6.0]], np.float32)
    expected = [[-3, -1.4, 1, 1.6, 2], [0.5, -0.5, -2, 1.6, 4], [4, 0.4, -5, 1.6, 6]]

    grown = upscale_logits(low, (3, 5))

    np.testing.assert_allclose(grown, expected, atol=2e-6)
    assert np.array_equal(upscale_masks(low, (3, 5)), np.array(expected) > 0)


@given(st.tuples(*[st.integers(1, 40)] * 2), st.tuples(*[st.integers(1, 150)] * 2))
@settings(max_examples=60, deadline=None)
def test_growing_is_bilinear_between_pixel_centres(
    low_hw: tuple[int, int], size_hw: tuple[int, int]
) -> None:
    low = np.random.default_rng(4).normal(size=(2, *low_hw)).astype(np.float32)
    expected = low.astype(np.float64)
    for axis in (1, 2):
        length = low_hw[axis - 1]
        position = (np.arange(size_hw[axis - 1]) + 0.5) * length / size_hw[axis - 1] - 0.5
        position = np.clip(position, 0, length - 1)
        weights = np.maximum(1 - np.abs(np.arange(length) - position[:, None]), 0)
        expected = np.moveaxis(np.tensordot(weights, expected, (1, axis)), 0, axis)

    grown = upscale_logits(low, size_hw)

    np.testing.assert_allclose(grown, expected, atol=5e-5)
    assert np.array_equal(upscale_masks(low, size_hw, 0.25), grown > 0.25)


def test_other_arrays_are_refused() -> None:
    with pytest.raises(ImageError, match="the model takes RGB images"):
        resize_image(np.zeros((4, 4), np.uint8), 8)
    with pytest.raises(ImageError, match="mask logits have an unknown shape"):
        upscale_masks(np.zeros((1, 4, 4), np.int64), (8, 8))


@pytest.mark.shared
def test_the_recorded_inputs_of_the_reference_come_out() -> None:
    if not GOLDEN.exists():
        pytest.skip("the shared reference data are not here")
    with np.load(GOLDEN / "image_truck_sam2.1_tiny.npz") as file:
        step = json.loads(file["__index__"].tobytes())["input_tensor"]["step"]
        expected = file["input_tensor"]

    resized = resize_image(read_image(GOLDEN / "data" / "truck.jpg"), 1024)

    assert np.abs(resized.ravel()[::step] - expected).max() < 2e-6


@pytest.mark.shared
def test_the_recorded_frame_of_the_reference_comes_out_bit_for_bit() -> None:
    if not GOLDEN.exists():
        pytest.skip("the shared reference data are not here")
    with np.load(GOLDEN / "video_S1_test256.npz") as file:
        step = json.loads(file["__index__"].tobytes())["frame00000_input"]["step"]
        expected = file["frame00000_input"]
    frame = read_image(min((GOLDEN / "data" / "bedroom").iterdir()))

    assert np.array_equal(resize_video_frame(frame, 256).ravel()[::step], expected)
