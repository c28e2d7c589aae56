"""Random valid uses of every op: `CASES[op](draw, dtype)` gives arrays and attributes.

The table tests run these on every engine. An op that is added to `samgraph.ops` needs a maker
here, and an entry in `TAKES` if it takes more than floats; a test says so when one is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from samgraph.graph.graph import Attribute, Literal
from samgraph.graph.types import Array, DType, TensorType, type_of
from samgraph.ops.compare import HOW as COMPARISONS
from samgraph.ops.reduce import HOW as REDUCTIONS
from tests.ops.drawing import WHOLE, Draw, array, broadcastable, flag, is_whole, number, pick, shape


@dataclass(frozen=True)
class Case:
    """One use of one op; `fixed` arrays at the end are params, the others inputs."""

    op: str
    arrays: tuple[Array, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    fixed: int = 0

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of the arrays."""
        return tuple(type_of(x) for x in self.arrays)

    def __str__(self) -> str:
        given = [str(type) for type in self.types]
        given += [f"{key}={value}" for key, value in self.attributes.items()]
        return f"{self.op}({', '.join(given)}), {self.fixed} of them params"


Maker = Callable[[Draw, DType], Case]

_NUMBERS: tuple[DType, ...] = ("i64", "i32", "u8")
TAKES: dict[str, tuple[DType, ...]] = {
    "add": _NUMBERS, "sub": _NUMBERS, "mul": _NUMBERS, "maximum": _NUMBERS, "minimum": _NUMBERS,
    "pad": _NUMBERS, "reduce": _NUMBERS, "compare": WHOLE, "where": WHOLE, "cast": WHOLE,
    "concat": WHOLE, "constant": WHOLE, "expand": WHOLE, "gather": WHOLE, "reshape": WHOLE,
    "slice": WHOLE, "tile": WHOLE, "transpose": WHOLE,
}  # fmt: skip
"""The dtypes besides floats that an op takes."""


def _unary(op: str, low: float = -3.0, high: float = 3.0) -> Maker:
    return lambda draw, dtype: Case(op, (array(draw, shape(draw), dtype, low, high),))


def _binary(op: str) -> Maker:
    """Two broadcasting sides; the second stays away from zero, and u8 within its range."""

    def make(draw: Draw, dtype: DType) -> Case:
        whole = shape(draw)
        low = 6.0 if dtype == "u8" else -3.0
        a = array(draw, broadcastable(draw, whole), dtype, low, 12.0 if dtype == "u8" else 3.0)
        b = array(draw, broadcastable(draw, whole), dtype, 0.25, 5.0)
        return Case(op, (a, b), fixed=number(draw, 0, 1))

    return make


def _clip(draw: Draw, dtype: DType) -> Case:
    low = number(draw, -3, 2) / 2
    high = low + number(draw, 0, 4) / 2
    return Case("clip", (array(draw, shape(draw), dtype),), {"low": low, "high": high})


def _compare(draw: Draw, dtype: DType) -> Case:
    whole = shape(draw)
    sides = [array(draw, broadcastable(draw, whole), dtype, -2, 2) for _ in range(2)]
    coarse = tuple(side if is_whole(dtype) else np.asarray(np.round(side)) for side in sides)
    return Case("compare", coarse, {"how": pick(draw, tuple(COMPARISONS))})


def _where(draw: Draw, dtype: DType) -> Case:
    whole = shape(draw)
    condition = array(draw, broadcastable(draw, whole), "bool")
    a, b = (array(draw, broadcastable(draw, whole), dtype) for _ in range(2))
    return Case("where", (condition, a, b), fixed=number(draw, 0, 1))


def _cast(draw: Draw, dtype: DType) -> Case:
    to: DType = pick(draw, ("f32", "f16", "i64", "i32", "u8", "bool"))
    low = 0.0 if to == "u8" else -3.0
    return Case("cast", (array(draw, shape(draw), dtype, low),), {"dtype": to})


def _concat(draw: Draw, dtype: DType) -> Case:
    lengths = list(shape(draw, 1))
    axis = number(draw, 0, len(lengths) - 1)
    parts = []
    for _ in range(number(draw, 1, 4)):
        lengths[axis] = number(draw, 0, 4)
        parts.append(array(draw, lengths, dtype))
    given = axis - len(lengths) if flag(draw) else axis
    return Case("concat", tuple(parts), {"axis": given}, number(draw, 0, len(parts) - 1))


def _constant(draw: Draw, dtype: DType) -> Case:
    return Case("constant", (), {"value": Literal(array(draw, shape(draw), dtype))})


def _conv2d(draw: Draw, dtype: DType) -> Case:
    groups = pick(draw, (1, 1, 2, 3))
    inner, outer = number(draw, 1, 4), number(draw, 1, 4) * groups
    if flag(draw):  # as many groups as channels
        groups, inner, outer = inner, 1, inner * number(draw, 1, 2)
    kernel = (number(draw, 1, 4), number(draw, 1, 3))
    padding = (number(draw, 0, 2), number(draw, 0, 2))
    size = [max(1, k - 2 * p) + number(draw, 0, 6) for k, p in zip(kernel, padding, strict=True)]
    x = array(draw, (number(draw, 1, 2), inner * groups, *size), dtype, -1, 1)
    weight = array(draw, (outer, inner, *kernel), dtype, -1, 1)
    bias = [array(draw, (outer,), dtype)] if flag(draw) else []
    stride = (number(draw, 1, 3), number(draw, 1, 3))
    attributes: dict[str, Attribute] = {"stride": stride, "padding": padding, "groups": groups}
    return Case("conv2d", (x, weight, *bias), attributes, len(bias) + 1)


def _conv_transpose2d(draw: Draw, dtype: DType) -> Case:
    inner, outer = number(draw, 1, 4), number(draw, 1, 4)
    x = array(draw, (number(draw, 1, 2), inner, number(draw, 1, 5), number(draw, 1, 5)), dtype)
    kernel = (number(draw, 1, 3), number(draw, 1, 3))
    weight = array(draw, (inner, outer, *kernel), dtype, -1, 1)
    bias = [array(draw, (outer,), dtype)] if flag(draw) else []
    stride = (number(draw, 1, 3), number(draw, 1, 3))
    return Case("conv_transpose2d", (x, weight, *bias), {"stride": stride}, len(bias) + 1)


def _expand(draw: Draw, dtype: DType) -> Case:
    whole = shape(draw)
    x = array(draw, broadcastable(draw, whole), dtype)
    return Case("expand", (x,), {"shape": whole})


def _gather(draw: Draw, dtype: DType) -> Case:
    lengths = shape(draw, 1, empty=False)
    axis = number(draw, 0, len(lengths) - 1)
    batch = number(draw, 0, min(axis, 2))
    index_shape = (*lengths[:batch], *shape(draw, 0, 2))
    reach = lengths[axis] + 1  # one position outside, on either side, is legal
    index = array(draw, index_shape, pick(draw, ("i64", "i32")), -reach, reach)
    given = axis - len(lengths) if flag(draw) else axis
    return Case("gather", (array(draw, lengths, dtype), index), {"axis": given, "batch": batch})


def _layer_norm(draw: Draw, dtype: DType) -> Case:
    lengths = (*shape(draw, 0, 3), number(draw, 2, 24))
    return _normal("layer_norm", draw, dtype, lengths, lengths[-1])


def _layer_norm_2d(draw: Draw, dtype: DType) -> Case:
    lengths = shape(draw, 4, 4)
    lengths = (lengths[0], number(draw, 2, 24), *lengths[2:])
    return _normal("layer_norm_2d", draw, dtype, lengths, lengths[1])


def _normal(op: str, draw: Draw, dtype: DType, lengths: tuple[int, ...], width: int) -> Case:
    scale, shift = (array(draw, (width,), dtype, -2, 2) for _ in range(2))
    eps = pick(draw, (1e-6, 1e-5, 1e-1))
    return Case(op, (array(draw, lengths, dtype), scale, shift), {"eps": eps}, 2)


def _linear(draw: Draw, dtype: DType) -> Case:
    width, out = number(draw, 1, 12), number(draw, 1, 12)
    x = array(draw, (*shape(draw, 0, 3), width), dtype, -1, 1)
    bias = [array(draw, (out,), dtype)] if flag(draw) else []
    activation = pick(draw, ("none", "relu", "gelu", "sigmoid"))
    attributes: dict[str, Attribute] = {"activation": activation} if flag(draw) else {}
    arrays = (x, array(draw, (out, width), dtype, -1, 1), *bias)
    return Case("linear", arrays, attributes, pick(draw, (0, len(arrays) - 1)))


def _matmul(draw: Draw, dtype: DType) -> Case:
    front = shape(draw, 0, 3)
    rows, inner, columns = (number(draw, 1, 9) for _ in range(3))
    a = array(draw, (*broadcastable(draw, front), rows, inner), dtype, -1, 1)
    b = array(draw, (*broadcastable(draw, front), inner, columns), dtype, -1, 1)
    return Case("matmul", (a, b), fixed=number(draw, 0, 1))


def _max_pool2d(draw: Draw, dtype: DType) -> Case:
    kernel = (number(draw, 1, 3), number(draw, 1, 3))
    stride = (number(draw, 1, 3), number(draw, 1, 3))
    size = [k + number(draw, 0, 6) for k in kernel]
    x = array(draw, (number(draw, 1, 2), number(draw, 1, 3), *size), dtype)
    return Case("max_pool2d", (x,), {"kernel": kernel, "stride": stride})


def _pad(draw: Draw, dtype: DType) -> Case:
    lengths = shape(draw, 1)
    before, after = (tuple(number(draw, 0, 2) for _ in lengths) for _ in range(2))
    value = float(number(draw, 0, 3)) if is_whole(dtype) else number(draw, -6, 6) / 4
    x = array(draw, lengths, dtype)
    return Case("pad", (x,), {"before": before, "after": after, "value": value})


def _reduce(draw: Draw, dtype: DType) -> Case:
    how = pick(draw, [way for way in REDUCTIONS if not (way == "mean" and is_whole(dtype))])
    lengths = shape(draw, 1, empty=how == "sum")
    axes = draw(st.permutations(range(len(lengths))))[: number(draw, 0, len(lengths))]
    x = array(draw, lengths, dtype, -3, 3)
    if how == "argmax" and not is_whole(dtype) and flag(draw):
        x = np.round(x)  # many equal elements: the first counts
    given = tuple(axis - len(lengths) if flag(draw) else axis for axis in axes)
    return Case("reduce", (x,), {"axes": given, "how": how, "keep": flag(draw)})


def _reshape(draw: Draw, dtype: DType) -> Case:
    lengths = [number(draw, 1, 4) for _ in range(number(draw, 0, 4))]
    x = array(draw, lengths, dtype)
    pieces: list[int] = []
    for length in draw(st.permutations(lengths)):  # split some, join some, in another order
        if length % 2 == 0 and flag(draw):
            pieces += [2, length // 2]
        elif pieces and flag(draw):
            pieces[-1] *= length
        else:
            pieces.append(length)
    if pieces and flag(draw):
        pieces[number(draw, 0, len(pieces) - 1)] = -1
    return Case("reshape", (x,), {"shape": tuple(pieces)})


def _resize(draw: Draw, dtype: DType) -> Case:
    how = pick(draw, ("nearest", "bilinear", "bicubic"))
    antialias = how != "nearest" and flag(draw)
    x = array(draw, (number(draw, 1, 2), number(draw, 1, 3), *_size(draw)), dtype)
    return Case("resize", (x,), {"size": _size(draw), "how": how, "antialias": antialias})


def _size(draw: Draw) -> tuple[int, int]:
    return (number(draw, 1, 13), number(draw, 1, 13))


def _slice(draw: Draw, dtype: DType) -> Case:
    lengths = shape(draw, 1)
    ends = tuple(number(draw, 0, length) for length in lengths)
    starts = tuple(number(draw, 0, end) for end in ends)
    steps = tuple(number(draw, 1, 3) for _ in lengths)
    x = array(draw, lengths, dtype)
    return Case("slice", (x,), {"starts": starts, "ends": ends, "steps": steps})


def _softmax(draw: Draw, dtype: DType) -> Case:
    lengths = shape(draw, 1)
    axis = number(draw, -len(lengths), len(lengths) - 1)
    return Case("softmax", (array(draw, lengths, dtype, -9, 9),), {"axis": axis})


def _tile(draw: Draw, dtype: DType) -> Case:
    lengths = shape(draw, 1, 3)
    counts = tuple(number(draw, 1, 3) for _ in lengths)
    return Case("tile", (array(draw, lengths, dtype),), {"counts": counts})


def _transpose(draw: Draw, dtype: DType) -> Case:
    lengths = shape(draw)
    order = draw(st.permutations(range(len(lengths))))
    axes = tuple(axis - len(lengths) if flag(draw) else axis for axis in order)
    return Case("transpose", (array(draw, lengths, dtype),), {"axes": axes})


def _attention(draw: Draw, dtype: DType) -> Case:
    heads = pick(draw, (1, 1, 2, 3))
    front = shape(draw, 0, 2)
    tokens, keys = number(draw, 1, 7), number(draw, 1, 9)
    width, out = heads * number(draw, 1, 6), heads * number(draw, 1, 6)
    q = array(draw, (*front, tokens, width), dtype)
    k = array(draw, (*front, keys, width), dtype)
    v = array(draw, (*front, keys, out), dtype)
    mask = []
    if flag(draw):
        scores = (*front, heads, tokens, keys)
        mask = [array(draw, broadcastable(draw, scores), dtype)]
    scale = pick(draw, (1.0, 0.125, 0.7))
    return Case("attention", (q, k, v, *mask), {"heads": heads, "scale": scale})


def _axial_rope(draw: Draw, dtype: DType) -> Case:
    heads, grid = number(draw, 1, 3), (number(draw, 1, 4), number(draw, 1, 4))
    unrotated = number(draw, 0, 3)
    tokens = number(draw, 0, 3) * grid[0] * grid[1] + unrotated
    pooled = 0
    if grid[0] % 2 == grid[1] % 2 == 0 and flag(draw):
        pooled = number(draw, 1, 3) * grid[0] * grid[1] // 4
        tokens += pooled
    x = array(draw, (*shape(draw, 0, 2), tokens, 4 * heads * number(draw, 1, 3)), dtype)
    attributes: dict[str, Attribute] = {
        "grid": grid,
        "theta": pick(draw, (10000.0, 100.0)),
        "heads": heads,
        "unrotated": unrotated,
        **({"pooled": pooled} if pooled else {}),
    }
    return Case("axial_rope", (x,), attributes)


CASES: dict[str, Maker] = {
    "add": _binary("add"),
    "attention": _attention,
    "axial_rope": _axial_rope,
    "cast": _cast,
    "clip": _clip,
    "compare": _compare,
    "concat": _concat,
    "constant": _constant,
    "conv2d": _conv2d,
    "conv_transpose2d": _conv_transpose2d,
    "cos": _unary("cos"),
    "div": _binary("div"),
    "exp": _unary("exp"),
    "expand": _expand,
    "gather": _gather,
    "gelu": _unary("gelu", -6, 6),
    "layer_norm": _layer_norm,
    "layer_norm_2d": _layer_norm_2d,
    "linear": _linear,
    "log": _unary("log", 0.05, 8),
    "matmul": _matmul,
    "max_pool2d": _max_pool2d,
    "maximum": _binary("maximum"),
    "minimum": _binary("minimum"),
    "mul": _binary("mul"),
    "pad": _pad,
    "reduce": _reduce,
    "relu": _unary("relu"),
    "reshape": _reshape,
    "resize": _resize,
    "sigmoid": _unary("sigmoid", -9, 9),
    "sin": _unary("sin"),
    "slice": _slice,
    "softmax": _softmax,
    "sqrt": _unary("sqrt", 0, 9),
    "sub": _binary("sub"),
    "tile": _tile,
    "transpose": _transpose,
    "where": _where,
}


def cases(op: str, dtypes: tuple[DType, ...]) -> st.SearchStrategy[Case]:
    """Random uses of `op` in one of `dtypes`."""

    @st.composite
    def make(draw: Draw) -> Case:
        return CASES[op](draw, pick(draw, dtypes))

    return make()


def batches(op: str, dtypes: tuple[DType, ...], size: int = 25) -> st.SearchStrategy[list[Case]]:
    """Several uses at once, not one simple use many times: compiling costs more than running."""
    drawn = st.lists(cases(op, dtypes), min_size=size, max_size=size)
    return drawn.filter(lambda uses: len({str(case) for case in uses}) > size // 2)
