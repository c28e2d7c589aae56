"""Each op on a few numbers worked out by hand, from its meaning and not from its code."""

import math
from typing import Any

import numpy as np
import pytest

from samgraph.graph.graph import Literal
from samgraph.graph.types import Array
from samgraph.ops import OPS
from samgraph.ops.gelu import erf
from samgraph.ops.resize import weights as resize_weights
from tests.tolerances import ERF

HALF_ROOT = math.sqrt(0.5)


def f32(values: Any) -> Array:
    return np.asarray(values, np.float32)


# op, arrays, attributes, expected
WORKED: list[tuple[str, tuple[Array, ...], dict[str, Any], Any]] = [
    ("add", (f32([[1, 2], [3, 4]]), f32([10, 20])), {}, [[11, 22], [13, 24]]),
    ("sub", (f32([[1], [2]]), f32([10, 20])), {}, [[-9, -19], [-8, -18]]),
    ("mul", (f32([2, -3]), f32([[1], [5]])), {}, [[2, -3], [10, -15]]),
    ("div", (f32([1, -6]), f32([4, 3])), {}, [0.25, -2]),
    ("maximum", (f32([1, 5, -2]), f32([3])), {}, [3, 5, 3]),
    ("minimum", (f32([1, 5, -2]), f32([3])), {}, [1, 3, -2]),
    ("clip", (f32([-2, 0.5, 9]),), {"low": -1.0, "high": 3.0}, [-1, 0.5, 3]),
    ("compare", (f32([1, 2, 3]), f32([2, 2, 2])), {"how": "lt"}, [True, False, False]),
    ("compare", (f32([1, 2, 3]), f32([2, 2, 2])), {"how": "ge"}, [False, True, True]),
    ("compare", (f32([1, 2, 3]), f32([2, 2, 2])), {"how": "ne"}, [True, False, True]),
    ("where", (np.array([True, False]), f32([1, 2]), f32([[7], [8]])), {}, [[1, 7], [1, 8]]),
    ("cast", (f32([-1.9, 0.0, 1.9]),), {"dtype": "i64"}, [-1, 0, 1]),
    ("cast", (f32([-0.5, 0.0, 2.0]),), {"dtype": "bool"}, [True, False, True]),
    ("exp", (f32([0, 1, math.log(3)]),), {}, [1, math.e, 3]),
    ("log", (f32([1, math.e, 8]),), {}, [0, 1, 3 * math.log(2)]),
    ("sqrt", (f32([0, 4, 2]),), {}, [0, 2, 1.41421356]),
    ("sin", (f32([0, math.pi / 2, math.pi / 6]),), {}, [0, 1, 0.5]),
    ("cos", (f32([0, math.pi, math.pi / 3]),), {}, [1, -1, 0.5]),
    ("relu", (f32([-1, 0, 2]),), {}, [0, 0, 2]),
    ("sigmoid", (f32([0, math.log(3), -math.log(3), 1000, -1000]),), {}, [0.5, 0.75, 0.25, 1, 0]),
    # erf(1/sqrt 2) = 0.6826894921, the share of a normal distribution within one deviation
    ("gelu", (f32([0, 1, -1]),), {}, [0, 0.8413447461, -0.1586552539]),
    ("softmax", (f32([[0, math.log(3)], [5, 5]]),), {"axis": -1}, [[0.25, 0.75], [0.5, 0.5]]),
    ("softmax", (f32([[0, 1], [0, 1]]),), {"axis": 0}, [[0.5, 0.5], [0.5, 0.5]]),
    ("matmul", (f32([[1, 2], [3, 4]]), f32([[5, 6], [7, 8]])), {}, [[19, 22], [43, 50]]),
    ("linear", (f32([1, 2]), f32([[3, 4], [5, 6], [0, -1]]), f32([10, 0, 1])), {}, [21, 17, -1]),
    (
        "linear",
        (f32([[1, 2]]), f32([[3, 4], [0, -1]])),
        {"activation": "relu"},
        [[11, 0]],
    ),
    # mean 2.5, variance 1.25; with eps 0.31 the deviation is sqrt(1.56), 1.249
    (
        "layer_norm",
        (f32([[1, 2, 3, 4]]), f32([1, 1, 2, 1]), f32([0, 1, 0, 0])),
        {"eps": 0.31},
        [
            [
                -1.5 / math.sqrt(1.56),
                1 - 0.5 / math.sqrt(1.56),
                1 / math.sqrt(1.56),
                1.5 / math.sqrt(1.56),
            ]
        ],
    ),
    # channels 1 and 3 at the only pixel: mean 2, variance 1, eps 3 makes the deviation 2
    (
        "layer_norm_2d",
        (f32([1, 3]).reshape(1, 2, 1, 1), f32([2, 4]), f32([10, 20])),
        {"eps": 3.0},
        [[[[9]], [[22]]]],
    ),
    ("reshape", (f32([[1, 2, 3], [4, 5, 6]]),), {"shape": (3, -1)}, [[1, 2], [3, 4], [5, 6]]),
    ("transpose", (f32([[1, 2, 3], [4, 5, 6]]),), {"axes": (1, 0)}, [[1, 4], [2, 5], [3, 6]]),
    ("concat", (f32([[1], [2]]), f32([[3], [4]])), {"axis": 1}, [[1, 3], [2, 4]]),
    ("concat", (f32([[1], [2]]), f32([[3], [4]])), {"axis": 0}, [[1], [2], [3], [4]]),
    (
        "slice",
        (f32([0, 1, 2, 3, 4, 5, 6]),),
        {"starts": (1,), "ends": (6,), "steps": (2,)},
        [1, 3, 5],
    ),
    (
        "pad",
        (f32([[1, 2]]),),
        {"before": (1, 0), "after": (0, 2), "value": 7.0},
        [[7] * 4, [1, 2, 7, 7]],
    ),
    ("expand", (f32([[1], [2]]),), {"shape": (2, 2, 3)}, [[[1] * 3, [2] * 3]] * 2),
    ("tile", (f32([[1, 2]]),), {"counts": (2, 2)}, [[1, 2, 1, 2], [1, 2, 1, 2]]),
    ("constant", (), {"value": Literal(f32([1, 2]))}, [1, 2]),
    (
        "gather",
        (f32([[1, 2, 3], [4, 5, 6]]), np.array([2, -1, 0])),
        {"axis": 1, "batch": 0},
        [[3, 3, 1], [6, 6, 4]],
    ),
    ("gather", (f32([1, 2]), np.array([0, 2, -3])), {"axis": 0, "batch": 0}, [1, 0, 0]),
    ("gather", (f32([[1, 2], [3, 4]]), np.array([1, 0])), {"axis": 1, "batch": 1}, [2, 3]),
    ("reduce", (f32([[1, 2], [3, 4]]),), {"axes": (0,), "how": "sum", "keep": False}, [4, 6]),
    ("reduce", (f32([[1, 2], [3, 4]]),), {"axes": (0, 1), "how": "mean", "keep": True}, [[2.5]]),
    ("reduce", (f32([[1, 5], [3, 4]]),), {"axes": (1,), "how": "max", "keep": False}, [5, 4]),
    ("reduce", (f32([[1, 5], [3, 4]]),), {"axes": (0,), "how": "min", "keep": False}, [1, 4]),
    ("reduce", (f32([[1, 9, 9]]),), {"axes": (1,), "how": "argmax", "keep": False}, [1]),
    # axes in the order (2, 0): of [[1, 8], [2, 3]] read column by column, 8 is third
    (
        "reduce",
        (f32([1, 8, 2, 3]).reshape(2, 1, 2),),
        {"axes": (2, 0), "how": "argmax", "keep": False},
        [2],
    ),
    # sum over axes 0 and 2 of 0..7: those with the middle index 0 are 0, 1, 4, 5
    (
        "reduce",
        (f32(range(8)).reshape(2, 2, 2),),
        {"axes": (0, 2), "how": "sum", "keep": False},
        [10, 18],
    ),
    # the window [[1, 0], [0, -1]] takes the upper left less the lower right: always -4
    (
        "conv2d",
        (f32(range(9)).reshape(1, 1, 3, 3), f32([1, 0, 0, -1]).reshape(1, 1, 2, 2), f32([10])),
        {"stride": (1, 1), "padding": (0, 0), "groups": 1},
        [[[[6, 6], [6, 6]]]],
    ),
    # padded by one: the window stands at the four corners of the only pixel
    (
        "conv2d",
        (f32([5]).reshape(1, 1, 1, 1), f32([1, 2, 3, 4]).reshape(1, 1, 2, 2)),
        {"stride": (1, 1), "padding": (1, 1), "groups": 1},
        [[[[20, 15], [10, 5]]]],
    ),
    # two groups: each channel has a weight of its own
    (
        "conv2d",
        (f32([5, 7]).reshape(1, 2, 1, 1), f32([10, 100]).reshape(2, 1, 1, 1)),
        {"stride": (1, 1), "padding": (0, 0), "groups": 2},
        [[[[50]], [[700]]]],
    ),
    # stride 2, kernel 2: each pixel paints its own square
    (
        "conv_transpose2d",
        (f32([1, 10]).reshape(1, 1, 1, 2), f32([1, 2, 3, 4]).reshape(1, 1, 2, 2), f32([0.5])),
        {"stride": (2, 2)},
        [[[[1.5, 2.5, 10.5, 20.5], [3.5, 4.5, 30.5, 40.5]]]],
    ),
    # stride 1: neighbours overlap and add
    (
        "conv_transpose2d",
        (f32([1, 10]).reshape(1, 1, 1, 2), f32([1, 2]).reshape(1, 1, 1, 2)),
        {"stride": (1, 1)},
        [[[[1, 12, 20]]]],
    ),
    (
        "max_pool2d",
        (f32([[1, 2, 3], [4, 9, 6], [7, 8, 5]]).reshape(1, 1, 3, 3),),
        {"kernel": (2, 2), "stride": (1, 1)},
        [[[[9, 9], [9, 9]]]],
    ),
    (
        "max_pool2d",
        (f32(range(8)).reshape(1, 1, 2, 4),),
        {"kernel": (2, 2), "stride": (2, 2)},
        [[[[5, 7]]]],
    ),
    # scores 0 and log 3, so a quarter of the first value and three quarters of the second
    (
        "attention",
        (f32([[1]]), f32([[0], [math.log(3) / 2]]), f32([[4, 0], [8, 100]])),
        {"heads": 1, "scale": 2.0},
        [[7, 75]],
    ),
    # a mask hides the second key from the first query
    (
        "attention",
        (f32([[0], [0]]), f32([[0], [0]]), f32([[4], [8]]), f32([[0, -1e9], [0, 0]])),
        {"heads": 1, "scale": 1.0},
        [[4], [6]],
    ),
    # two heads of width 1: the first sees equal scores, the second only its first key
    (
        "attention",
        (f32([[0, 100]]), f32([[0, 1], [0, -1]]), f32([[2, 30], [4, 50]])),
        {"heads": 2, "scale": 1.0},
        [[3, 30]],
    ),
    # one pair a half: column 1 turns the first pair by 1 radian, row 1 the second
    (
        "axial_rope",
        (f32([[1, 0, 1, 0]] * 4),),
        {"grid": (2, 2), "theta": 10000.0, "heads": 1, "unrotated": 0},
        [
            [1, 0, 1, 0],
            [math.cos(1), math.sin(1), 1, 0],
            [1, 0, math.cos(1), math.sin(1)],
            [math.cos(1), math.sin(1), math.cos(1), math.sin(1)],
        ],
    ),
    # two frames of a 1 x 2 grid and one unrotated token: positions 0, 1, 0, 1, then none
    (
        "axial_rope",
        (f32([[0, 1, 0, 1]] * 5),),
        {"grid": (1, 2), "theta": 10000.0, "heads": 1, "unrotated": 1},
        [
            [0, 1, 0, 1],
            [-math.sin(1), math.cos(1), 0, 1],
            [0, 1, 0, 1],
            [-math.sin(1), math.cos(1), 0, 1],
            [0, 1, 0, 1],
        ],
    ),
    # width 8: the second pair of a half turns theta ** (-4/8) = 1/10 as fast
    (
        "axial_rope",
        (f32([[1, 0, 1, 0, 1, 0, 1, 0]] * 2),),
        {"grid": (1, 2), "theta": 100.0, "heads": 1, "unrotated": 0},
        [
            [1, 0] * 4,
            [math.cos(1), math.sin(1), math.cos(0.1), math.sin(0.1), 1, 0, 1, 0],
        ],
    ),
    # one average of 2 x 2 cells, at column and row 1/2; then the four cells of a frame
    (
        "axial_rope",
        (f32([[1, 0, 1, 0]] * 5),),
        {"grid": (2, 2), "theta": 10000.0, "heads": 1, "unrotated": 0, "pooled": 1},
        [
            [math.cos(0.5), math.sin(0.5), math.cos(0.5), math.sin(0.5)],
            [1, 0, 1, 0],
            [math.cos(1), math.sin(1), 1, 0],
            [1, 0, math.cos(1), math.sin(1)],
            [math.cos(1), math.sin(1), math.cos(1), math.sin(1)],
        ],
    ),
    (
        "resize",
        (f32([1, 2, 3]).reshape(1, 1, 1, 3),),
        {"size": (1, 6), "how": "nearest", "antialias": False},
        [[[[1, 1, 2, 2, 3, 3]]]],
    ),
    # centres at -1/4, 1/4, 3/4, 5/4: the ends repeat the edge
    (
        "resize",
        (f32([0, 4]).reshape(1, 1, 1, 2),),
        {"size": (1, 4), "how": "bilinear", "antialias": False},
        [[[[0, 1, 3, 4]]]],
    ),
    # half the size: the centre lies between two pixels
    (
        "resize",
        (f32([1, 3, 5, 11]).reshape(1, 1, 1, 4),),
        {"size": (1, 2), "how": "bilinear", "antialias": False},
        [[[[2, 8]]]],
    ),
    # with antialias the tent is two pixels wide each way: weights 3, 3, 1 of 7 at the left end
    (
        "resize",
        (f32([7, 14, 21, 28]).reshape(1, 1, 1, 4),),
        {"size": (1, 2), "how": "bilinear", "antialias": True},
        [[[[(3 * 7 + 3 * 14 + 21) / 7, (14 + 3 * 21 + 3 * 28) / 7]]]],
    ),
    # a = -3/4 at distances 1.5, 0.5, 0.5, 1.5: -3/32, 19/32, 19/32, -3/32
    (
        "resize",
        (f32([32, 0, 0, 64]).reshape(1, 1, 1, 4),),
        {"size": (1, 1), "how": "bicubic", "antialias": False},
        [[[[-3 - 6]]]],
    ),
]


def test_every_op_was_worked_out() -> None:
    assert {op for op, *_ in WORKED} == set(OPS)


@pytest.mark.parametrize("number", range(len(WORKED)), ids=[row[0] for row in WORKED])
def test_reference_gives_the_numbers_worked_out_by_hand(number: int) -> None:
    op, arrays, attributes, expected = WORKED[number]

    actual = OPS[op].reference(*arrays, **attributes)

    np.testing.assert_allclose(actual, np.asarray(expected), atol=1e-6, rtol=1e-6)


def test_erf_is_that_of_the_c_library() -> None:
    points = np.concatenate([np.linspace(-7, 7, 20011), [0.0, -0.0, 1e-9, 5.9999, 6.0, 40.0]])

    error = np.abs(erf(points) - [math.erf(point) for point in points])

    assert error.max() < ERF


def test_gelu_is_exact_in_float32() -> None:
    x = np.linspace(-6, 6, 4001).astype(np.float32)

    y = OPS["gelu"].reference(x)

    exact = [0.5 * value * math.erfc(-value * HALF_ROOT) for value in x.astype(float)]
    np.testing.assert_allclose(y, np.asarray(exact, np.float32), rtol=2e-7, atol=1e-11)


def test_antialiased_bicubic_uses_another_kernel() -> None:
    plain, stretched = (resize_weights(4, 2, "bicubic", antialias) for antialias in (False, True))

    assert not np.allclose(plain, stretched)
    np.testing.assert_allclose(plain.sum(1), 1)
    np.testing.assert_allclose(stretched.sum(1), 1)


def test_half_precision_is_computed_in_float32_and_rounded_once() -> None:
    x = np.full((1, 4096), 1 / 1024, np.float16)  # a sum in float16 would stop at 2048 of them

    total = OPS["reduce"].reference(x, axes=(1,), how="sum", keep=False)

    assert total.dtype == np.float16
    assert float(total[0]) == 4.0


def test_layer_norm_takes_the_variance_in_a_second_pass() -> None:
    # in one pass, E[x^2] - E[x]^2 of numbers near 4096 has no correct digit in float32
    x = f32([4096, 4096.5, 4097, 4097.5])[None]

    y = OPS["layer_norm"].reference(x, f32([1] * 4), f32([0] * 4), eps=1e-12)

    spread = math.sqrt((0.75**2 + 0.25**2) / 2)
    np.testing.assert_allclose(y[0], f32([-0.75, -0.25, 0.25, 0.75]) / spread, rtol=1e-6)
