"""Kernels of maps: patches, convolutions with a norm, masks, painting, rows by number."""

from typing import Any

import numpy as np
import pytest

from tests.engines.torch.kernels.running import Table, difference, normal, run, torch
from tests.tolerances import KERNEL_FP16, KERNEL_FP32

pytestmark = pytest.mark.parity


def test_patches_of_a_picture() -> None:
    arrays = [normal(2, 3, 32, 48), normal(20, 3 * 7 * 8) / 12, normal(20), normal(1, 8, 12, 20)]
    arrays[1].reshape(20, 3, 7, 8)[..., 0] = 0

    found = difference("patch_embedding", *arrays, kernel=7, stride=4, padding=3)

    assert found < KERNEL_FP32


@pytest.mark.parametrize(("ins", "outs", "activation"), [(1, 4, "gelu"), (4, 20, "none")])
def test_a_convolution_with_its_norm(ins: int, outs: int, activation: str) -> None:
    arrays = [
        normal(2, ins, 12, 12),
        normal(outs, 9 * ins),
        normal(outs),
        normal(outs),
        normal(outs),
    ]
    shape: dict[str, Any] = {"kernel": 3, "stride": 2, "padding": 1, "depthwise": False}

    assert difference("conv_norm", *arrays, **shape, eps=1e-6, activation=activation) < KERNEL_FP32
    half = difference("conv_norm", *arrays, half=(0, 1), **shape, eps=1e-6, activation=activation)
    assert half < KERNEL_FP16


def test_a_convolution_channel_by_channel() -> None:
    arrays = [normal(2, 20, 6, 7), normal(25, 20), normal(20), normal(20), normal(20)]

    found = difference(
        "conv_norm", *arrays, kernel=5, stride=1, padding=2, depthwise=True, eps=1e-6
    )

    assert found < KERNEL_FP32


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_masks_are_enlarged_for_the_memory_encoder() -> None:
    gain = np.array([1.0, 2.0**80], np.float32).reshape(2, 1, 1, 1)
    arrays = [normal(2, 1, 8, 8), gain, np.where(gain > 1, -1e3, 0).astype(np.float32)]

    found = difference("enlarge_mask", *arrays, size=(32, 32), scale=20.0, shift=-10.0)

    assert found < KERNEL_FP32


@pytest.mark.parametrize("size", [(27, 45), (16, 16), (5, 3)])
def test_masks_as_bits(size: tuple[int, int]) -> None:
    from samgraph.engines.torch.kernels.masks import mask_bits

    logits = torch.from_numpy(normal(3, 16, 16))

    packed = mask_bits(logits, size, 0.25).numpy()

    enlarged = torch.nn.functional.interpolate(logits[:, None], size=size, mode="bilinear")[:, 0]
    found = np.unpackbits(packed, axis=-1, bitorder="little")[..., : size[1]]
    assert packed.shape == (3, size[0], -(-size[1] // 8))
    np.testing.assert_array_equal(found.astype(bool), (enlarged > 0.25).numpy())


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("images", [1, 2])
def test_an_image_becomes_masks(listed: bool, images: int) -> None:
    side, C, A, B = 4, 64, 32, 16
    maps = [normal(images, A, 8, 8), normal(images, B, 16, 16)]
    if listed:
        maps = [x.reshape(images, x.shape[1], -1).transpose(0, 2, 1).copy() for x in maps]
    arrays = [
        normal(2, side * side, C), normal(4 * A, C) / 8, normal(4 * A), maps[0], normal(A),
        normal(A),
        normal(4 * B, A) / 6, normal(4 * B), maps[1], normal(2, 4, B),
    ]  # fmt: skip

    assert difference("upscale_masks", *arrays, eps=1e-6) < KERNEL_FP32


@pytest.mark.parametrize(("batch", "shape"), [(0, (5, 3, 4)), (1, (2, 5, 4)), (1, (3, 4))])
def test_rows_by_number(batch: int, shape: tuple[int, ...]) -> None:
    index = np.random.default_rng(0).integers(-8, 8, (*shape[:batch], 6))

    found = run("gather", normal(*shape), index, axis=batch, batch=batch)

    from samgraph.ops import OPS

    expected = OPS["gather"].reference(normal(*shape), index, axis=batch, batch=batch)
    np.testing.assert_array_equal(found, expected)


def test_a_table_is_read_where_it_lies_by_then() -> None:
    from samgraph.engines.torch.kernels.decoder_rules import gather

    first, second = torch.from_numpy(normal(4, 3, 5)), torch.from_numpy(normal(9, 3, 5, seed=1))
    index = torch.tensor([[0, 3], [-1, 8]])
    table = Table(first)

    before = gather(table, index, axis=0, batch=0)
    table.point_to(second)
    after = gather(table, index, axis=0, batch=0)

    zeros = torch.zeros(3, 5)
    torch.testing.assert_close(
        before, torch.stack([first[0], first[3], first[3], zeros]).view(2, 2, 3, 5)
    )
    torch.testing.assert_close(after, second[index % 9])
