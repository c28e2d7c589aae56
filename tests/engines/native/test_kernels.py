"""Native attention against the numpy reference: any shapes, every instruction set."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samgraph.engines.native import Kernels
from samgraph.graph.registry import find_op
from samgraph.graph.types import Array
from tests.engines.native.kernels import KERNELS, ROUNDING, needs_kernels
from tests.tolerances import NATIVE_ATTENTION, NATIVE_ATTENTION_BF16

pytestmark = needs_kernels
SMALL = st.integers(1, 6)


def drawn(seed: int, *shape: int) -> Array:
    array: Array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return array


def reference(op: str, *arrays: Array | None, **attributes: object) -> Array:
    """In double precision."""
    wide = [None if array is None else array.astype(np.float64) for array in arrays]
    return np.asarray(find_op(op).reference(*wide, **attributes))


@KERNELS
@settings(max_examples=60)
@given(
    heads=SMALL,
    sizes=st.tuples(SMALL, st.integers(1, 110), st.integers(1, 150), SMALL, SMALL),
    mask=st.sampled_from(["none", "whole", "keys", "heads"]),
    threads=st.integers(1, 3),
    spread=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_attention_of_any_shape(
    kernels: Kernels,
    heads: int,
    sizes: tuple[int, int, int, int, int],
    mask: str,
    threads: int,
    spread: float,
) -> None:
    B, T, S, D, E = sizes
    q, k, v = (
        drawn(1, B, T, heads * D) * spread,
        drawn(2, B, S, heads * D),
        drawn(3, B, S, heads * E),
    )
    shapes = {"whole": (B, heads, T, S), "keys": (S,), "heads": (heads, 1, S)}
    added = drawn(4, *shapes[mask]) if mask != "none" else None
    scale = D**-0.5

    y = kernels.flash_attention(q, k, v, added, heads=heads, scale=scale, threads=threads)

    expected = reference("attention", q, k, v, added, heads=heads, scale=scale)
    np.testing.assert_allclose(y, expected, rtol=NATIVE_ATTENTION, atol=NATIVE_ATTENTION / 10)


@KERNELS
@settings(max_examples=60)
@given(
    N=st.integers(1, 3),
    T=st.integers(1, 100),
    frames=st.integers(0, 10),
    grid=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    plain=st.integers(0, 140),
    quarter=SMALL,
    widths=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    threads=st.integers(1, 3),
    pooled_frames=st.integers(0, 9),
)
def test_attention_over_rotated_memory_of_any_shape(
    kernels: Kernels,
    N: int,
    T: int,
    frames: int,
    grid: tuple[int, int],
    plain: int,
    quarter: int,
    widths: tuple[int, int],
    threads: int,
    pooled_frames: int,
) -> None:
    D, (C, E) = 4 * quarter, widths
    pooled = 0
    if grid[0] % 2 == grid[1] % 2 == 0:
        pooled = pooled_frames * grid[0] * grid[1] // 4
    S = pooled + frames * grid[0] * grid[1] + plain
    if S == 0:
        return
    q, k, v = drawn(1, N, T, D) * 3, drawn(2, N, S, C), drawn(3, N, S, E)
    weight, bias = drawn(4, D, C), drawn(5, D)
    mask = drawn(6, S) if pooled else None
    options: dict[str, Any] = {
        "grid": grid, "theta": 1e4, "unrotated": plain, "scale": D**-0.5, "pooled": pooled
    }  # fmt: skip

    y = kernels.rope_key_attention(q, k, v, weight, bias, mask, **options, threads=threads)

    expected = reference("rope_key_attention", q, k, v, weight, bias, mask, **options)
    np.testing.assert_allclose(y, expected, rtol=NATIVE_ATTENTION, atol=NATIVE_ATTENTION / 10)


@KERNELS
@settings(max_examples=60)
@given(
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 100), st.integers(0, 10)),
    grid=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    plain=st.integers(0, 70),
    widths=st.tuples(SMALL, st.integers(1, 64), st.integers(1, 20)),
    threads=st.integers(1, 3),
    pooled_frames=st.integers(0, 9),
)
def test_rounded_operands_change_little(
    kernels: Kernels,
    sizes: tuple[int, int, int],
    grid: tuple[int, int],
    plain: int,
    widths: tuple[int, int, int],
    threads: int,
    pooled_frames: int,
) -> None:
    (N, T, frames), (quarter, C, E) = sizes, widths
    D, even = 4 * quarter, grid[0] % 2 == grid[1] % 2 == 0
    pooled = pooled_frames * grid[0] * grid[1] // 4 if even else 0
    S = pooled + frames * grid[0] * grid[1] + plain
    if S == 0:
        return
    q, k, v = drawn(1, N, T, D), drawn(2, N, S, C), drawn(3, N, S, E)
    weight, bias, mask = drawn(4, D, C) * C**-0.5, drawn(5, D), drawn(6, S) if pooled else None
    options: dict[str, Any] = {
        "grid": grid, "theta": 1e4, "unrotated": plain, "scale": D**-0.5, "pooled": pooled
    }  # fmt: skip

    given = (q, k, v, weight, bias, mask)
    y = kernels.rope_key_attention(*given, **options, rounded=True, threads=threads)

    expected = reference("rope_key_attention", *given, **options)
    np.testing.assert_allclose(y, expected, atol=NATIVE_ATTENTION_BF16 * np.abs(v).max())


@KERNELS
@pytest.mark.parametrize(
    ("frames", "grid", "pooled_frames"),
    [(7, (2, 40), 3), (20, (3, 9), 0), (130, (2, 2), 17), (1, (1, 150), 0), (0, (2, 2), 0)],
)
def test_rounded_operands_of_long_rows_and_many_frames(
    kernels: Kernels, frames: int, grid: tuple[int, int], pooled_frames: int
) -> None:
    N, T, D, C, E, plain = 2, 50, 32, 64, 64, 140
    pooled = pooled_frames * grid[0] * grid[1] // 4
    S = pooled + frames * grid[0] * grid[1] + plain
    q, k, v = drawn(1, N, T, D), drawn(2, N, S, C), drawn(3, N, S, E)
    weight, bias, mask = drawn(4, D, C) * C**-0.5, drawn(5, D), drawn(6, S)
    mask[mask > 1] = -np.inf
    options: dict[str, Any] = {
        "grid": grid, "theta": 1e4, "unrotated": plain, "scale": D**-0.5, "pooled": pooled
    }  # fmt: skip

    given = (q, k, v, weight, bias, mask)
    y = kernels.rope_key_attention(*given, **options, rounded=True, threads=2)

    expected = reference("rope_key_attention", *given, **options)
    np.testing.assert_allclose(y, expected, atol=NATIVE_ATTENTION_BF16 * np.abs(v).max())


@KERNELS
def test_only_a_processor_with_bf16_rounds(kernels: Kernels) -> None:
    arrays = (drawn(1, 1, 3, 8), drawn(2, 1, 18, 5), drawn(3, 1, 18, 4), drawn(4, 8, 5))
    options: dict[str, Any] = {"grid": (4, 4), "theta": 1e4, "unrotated": 2, "scale": 0.3}

    exact, rounded = (
        kernels.rope_key_attention(*arrays, drawn(5, 8), **options, rounded=flag)
        for flag in (False, True)
    )

    assert np.array_equal(exact, rounded) == (kernels.instructions not in ROUNDING)


@KERNELS
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_nan_in_a_memory_is_not_lost(kernels: Kernels, where: str) -> None:
    arrays: dict[str, Array] = {
        "q": drawn(1, 1, 3, 8),
        "k": drawn(2, 1, 18, 5),
        "v": drawn(3, 1, 18, 4),
    }
    arrays[where][0, 2, 1] = np.nan
    given = (*arrays.values(), drawn(4, 8, 5), drawn(5, 8))
    options: dict[str, Any] = {
        "grid": (4, 4),
        "theta": 1e4,
        "unrotated": 2,
        "scale": 0.3,
        "rounded": True,
    }

    y = kernels.rope_key_attention(*given, **options)

    assert np.isnan(y[0, 2]).any()


@KERNELS
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_nan_of_one_object_stays_there(kernels: Kernels, where: str) -> None:
    q, k, v = arrays = drawn(1, 3, 50, 8), drawn(2, 3, 53, 5), drawn(3, 3, 53, 4)
    given = (*arrays, drawn(4, 8, 5), drawn(5, 8))
    options: dict[str, Any] = {
        "grid": (4, 4), "theta": 1e4, "unrotated": 5, "scale": 0.3, "rounded": True
    }  # fmt: skip
    clean = kernels.rope_key_attention(*given, **options)
    {"q": q, "k": k, "v": v}[where][1] = np.nan

    y = kernels.rope_key_attention(*given, **options)

    assert np.isnan(y[1]).all()
    assert np.array_equal(y[[0, 2]], clean[[0, 2]])


@KERNELS
def test_the_number_of_threads_does_not_change_a_bit(kernels: Kernels) -> None:
    q, k, v = drawn(1, 2, 200, 32), drawn(2, 2, 300, 32), drawn(3, 2, 300, 16)
    runs = [kernels.flash_attention(q, k, v, heads=2, scale=0.3, threads=n) for n in (1, 2, 7)]

    assert np.array_equal(runs[0], runs[1])
    assert np.array_equal(runs[0], runs[2])


@KERNELS
def test_large_scores_do_not_overflow(kernels: Kernels) -> None:
    q, k = np.full((1, 3, 4), 300, np.float32), drawn(2, 1, 70, 4) * 300
    v = drawn(3, 1, 70, 2)

    y = kernels.flash_attention(q, k, v, heads=1, scale=1.0)

    best = k[0].sum(1).argmax()
    np.testing.assert_allclose(y, np.broadcast_to(v[:, best : best + 1], y.shape), rtol=1e-6)


@KERNELS
def test_masked_keys_have_no_weight(kernels: Kernels) -> None:
    q, k, v = drawn(1, 1, 5, 8), drawn(2, 1, 130, 8), drawn(3, 1, 130, 4)
    mask = np.zeros(130, np.float32)
    mask[:100] = -np.inf

    y = kernels.flash_attention(q, k, v, mask, heads=1, scale=1.0)

    expected = reference("attention", q, k[:, 100:], v[:, 100:], heads=1, scale=1.0)
    np.testing.assert_allclose(y, expected, rtol=NATIVE_ATTENTION, atol=NATIVE_ATTENTION / 10)


@KERNELS
def test_nan_is_not_lost(kernels: Kernels) -> None:
    q, k, v = drawn(1, 1, 60, 8), drawn(2, 1, 90, 8), drawn(3, 1, 90, 4)
    k[0, 40, 3] = np.nan

    assert np.isnan(kernels.flash_attention(q, k, v, heads=1, scale=1.0)).all()


@KERNELS
def test_arrays_need_not_be_contiguous(kernels: Kernels) -> None:
    q, k, v = (drawn(i, 1, 8, 70).transpose(0, 2, 1) for i in range(3))

    y = kernels.flash_attention(q, k, v, heads=2, scale=0.5)

    expected = reference("attention", q, k, v, heads=2, scale=0.5)
    np.testing.assert_allclose(y, expected, rtol=NATIVE_ATTENTION, atol=NATIVE_ATTENTION / 10)


@KERNELS
def test_no_query_gives_nothing(kernels: Kernels) -> None:
    q, k, v = drawn(1, 1, 0, 8), drawn(2, 1, 9, 8), drawn(3, 1, 9, 4)

    assert kernels.flash_attention(q, k, v, heads=1, scale=1.0).shape == (1, 0, 4)
