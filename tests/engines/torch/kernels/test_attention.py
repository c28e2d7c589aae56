"""Attention: split over the keys, in windows, and of an image over few tokens."""

import numpy as np
import pytest

from tests.engines.torch.kernels.running import difference, normal, run, torch
from tests.tolerances import KERNEL_FP16, KERNEL_FP32

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(
    ("B", "T", "S", "heads", "D", "E"), [(1, 40, 100, 1, 32, 16), (2, 9, 33, 2, 24, 24)]
)
def test_attention_split_over_the_keys(
    splits: int, B: int, T: int, S: int, heads: int, D: int, E: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from samgraph.engines.torch.kernels import attention, blocks

    chosen = attention.Blocks(16, 16, 4, 2, splits)
    monkeypatch.setattr(blocks, "attention_blocks", lambda *_: chosen)
    arrays = [normal(B, T, heads * D), normal(B, S, heads * D, seed=1), normal(B, S, heads * E)]

    assert difference("attention", *arrays, heads=heads, scale=0.2) < KERNEL_FP32
    assert difference("attention", *arrays, half=(0, 1, 2), heads=heads, scale=0.2) < KERNEL_FP16


def test_a_mask_over_keys_alone_is_added_by_the_kernel() -> None:
    mask = np.where(np.arange(12) % 3 == 0, -1e9, 0.5).astype(np.float32).reshape(1, 1, 1, 12)
    arrays = [normal(2, 7, 32), normal(2, 12, 32, seed=1), normal(2, 12, 32, seed=2)]

    masked = difference("attention", *arrays, mask.repeat(2, 0), heads=2, scale=0.2)

    assert masked < KERNEL_FP32
    plain = run("attention", *arrays, heads=2, scale=0.2)
    assert (
        np.abs(run("attention", *arrays, mask.repeat(2, 0), heads=2, scale=0.2) - plain).max() > 0.1
    )


@pytest.mark.parametrize("shape", [(12,), (1, 12), (1, 1, 12), (1, 1, 1, 12)])
def test_the_weight_of_pooled_keys_does_not_go_to_torch(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask [S], as of `pooled-memory`: torch would materialise all scores."""
    from samgraph.engines.torch.kernels import attention_rules

    monkeypatch.setattr(attention_rules, "PRODUCTS", {})
    mask = np.log(np.where(np.arange(12) < 8, 4, 1)).astype(np.float32).reshape(shape)
    arrays = [normal(2, 7, 32), normal(2, 12, 32, seed=1), normal(2, 12, 16, seed=2)]

    assert difference("attention", *arrays, mask, heads=1, scale=0.2) < KERNEL_FP32
    assert difference("attention", *arrays, 0 * mask, heads=1, scale=0.2) < KERNEL_FP32


def test_any_other_mask_goes_to_torch() -> None:
    arrays = [normal(1, 7, 32), normal(1, 12, 32, seed=1), normal(1, 12, 32, seed=2)]

    found = difference("attention", *arrays, normal(1, 1, 7, 12), heads=2, scale=0.2)

    assert found < KERNEL_FP32


def test_ranges_of_keys_are_weighed_by_their_sums() -> None:
    from samgraph.engines.torch.kernels.attention import combine

    q, k, v = (torch.from_numpy(normal(1, n, 8, seed=s)) for s, n in ((0, 20), (1, 12), (2, 12)))
    parts, sizes = [], []
    for keys, values in zip(k.split(4, 1), v.split(4, 1), strict=True):
        scores = q @ keys.mT
        parts.append(torch.softmax(scores, -1) @ values)
        sizes.append(scores.logsumexp(-1))

    found = combine(torch.cat(parts), torch.stack(sizes), 1, 3, 1)

    np.testing.assert_allclose(found, torch.softmax(q @ k.mT, -1) @ v, rtol=1e-4, atol=1e-5)


WINDOWS = [
    (1, 16, 8, 1, 1, 24), (2, 8, 4, 1, 2, 8), (1, 16, 8, 2, 2, 8), (2, 8, 4, 2, 1, 16),
    (1, 10, 7, 1, 2, 8), (1, 16, 14, 2, 1, 16),
]  # fmt: skip


@pytest.mark.parametrize(("B", "side", "window", "pool", "heads", "D"), WINDOWS)
def test_attention_in_windows(
    B: int, side: int, window: int, pool: int, heads: int, D: int
) -> None:
    C, small = heads * D, side // pool
    maps = [normal(B, small, small, C), normal(B, side, side, C, seed=1), normal(B, side, side, C)]
    arrays = [*maps, normal(C), normal(C, seed=1)]

    found = difference("window_attention", *arrays, heads=heads, scale=0.3, window=(window, window))

    assert found < KERNEL_FP32


def test_padded_tokens_of_windows_take_part() -> None:
    arrays = [normal(1, 6, 6, 16), normal(1, 6, 6, 16, seed=1), normal(1, 6, 6, 16, seed=2)]
    one = run(
        "window_attention", *arrays, normal(16), normal(16), heads=1, scale=0.3, window=(4, 4)
    )
    other = run(
        "window_attention",
        *arrays,
        normal(16),
        normal(16, seed=9),
        heads=1,
        scale=0.3,
        window=(4, 4),
    )

    inner = np.abs(one - other)[0, :4, :4].max()
    assert inner == 0  # this window lies within the map
    assert np.abs(one - other)[0, 4:].max() > 0.01


@pytest.mark.parametrize("T", [8, 20])
def test_an_image_over_few_tokens(T: int) -> None:
    C, heads = 32, 2
    image = [normal(2, 50, C), normal(2, 50, C, seed=1) / 4]
    tokens = [normal(2, T, heads * C), normal(2, T, heads), normal(2, T, heads * C, seed=1)]

    found = difference("image_to_tokens", *image, *tokens, normal(C), normal(C), heads=2, eps=1e-5)

    assert found < KERNEL_FP32
