"""pixels_to_channels: an image enlarged for strided convolutions stays small, its pixels channels.

    %0 = resize(%x, size=(4*H,4*W))         %0 = conv2d(%x with its edges twice)   [N,16,H,W]
    %1 = sigmoid(%0)                        %1 = sigmoid(%0)
    %2 = conv2d(%1, %w, stride=(2,2))  =>   %2 = conv2d(%1, %w for 16 pixels)      [N,4*C,H,W]
    %3 = gelu(%2)                           %3 = gelu(%2)
    %4 = conv2d(%3, %v, stride=(2,2))       %4 = conv2d(%3, %v for 4 pixels)       [N,D,H,W]
    return y=%4                             return y=%4

The q x q pixels that one pixel is upscaled to are its channels (a cell), until convolutions have
reduced a cell to one pixel again. A 3 x 3 convolution of stride 2 then reads its own cell, the cell
above and the cell to the left: a 2 x 2 convolution with the same weights and zeros. A bilinear
resize is a 3 x 3 convolution. There are more products, but they fill SIMD vectors that held one
channel or four, and the large image is never stored: at 1024 pixels this part of the memory encoder
takes 1.7 ms instead of 2.7. Only while a cell has at most 16 values.
"""

from typing import NamedTuple

import numpy as np

from samgraph.graph.dims import known
from samgraph.graph.graph import Graph, Node, Value
from samgraph.graph.types import Array
from samgraph.ops.resize import weights as resize_weights
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, CHANNELS_SECOND, PLAIN
from samgraph.passes.rewriter import Rewriter

_MOST = 16  # values in a cell: those of a SIMD vector
_ALONE = ("gelu", "relu", "sigmoid")
_WITH_A_NUMBER = ("add", "mul")
_STRIDED = {**PLAIN, "stride": (2, 2), "padding": (1, 1)}


class _Step(NamedTuple):
    """A node whose image is in cells, and their side before and after it."""

    before: int
    after: int


def pixels_to_channels(graph: Graph) -> Graph:
    """Rewrite each resize whose image only strided convolutions read."""
    if not (graph.has("resize") and graph.has("conv2d")):
        return graph
    rewriter = Rewriter(graph)
    steps: dict[str, _Step] = {}
    for node in graph:
        if node.op == "resize":
            steps |= _chain(graph, node)
        if node.result.name in steps:
            step = steps[node.result.name]
            rewriter.replace(node.result, _in_cells(rewriter, node, step))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _chain(graph: Graph, resize: Node) -> dict[str, _Step]:
    """The nodes from a resize to where a cell is one pixel; none if they do not get there."""
    side = _times(resize)
    steps = {resize.result.name: _Step(1, side)}
    uses, node = graph.use_counts(), resize
    while side > 1:
        readers = [other for other in graph if node.result in other.inputs]
        if uses[node.result.name] != 1 or len(readers) != 1:
            return {}
        after = _side_after(readers[0], node.result, side)
        if after is None:
            return {}
        node, before, side = readers[0], side, after
        steps[node.result.name] = _Step(before, side)
    return steps if len(steps) > 1 else {}


def _times(resize: Node) -> int:
    """How many times as large a resize makes an image of one channel; 1 for other resizes."""
    (_, channels, *size), larger = resize.inputs[0].type.shape, resize.result.type.shape[2:]
    plain = resize.text("how") == "bilinear" and not resize.flag("antialias")
    if not plain or channels != 1 or not all(isinstance(n, int) for n in (*size, *larger)):
        return 1
    height, width = map(known, size)
    times = known(larger[0]) // height
    return times if larger == (times * height, times * width) else 1


def _side_after(node: Node, x: Value, side: int) -> int | None:
    """The side of the cells that `node` makes of those of `x`; None where it is not for cells."""
    if node.op in _ALONE:
        return side
    if node.op in _WITH_A_NUMBER:
        (other,) = [value for value in node.inputs if value != x]
        alike = node.result.type == x.type and set(other.type.shape[-3:]) <= {1}
        return side if alike and other.type.rank <= 4 else None
    if node.inputs[0] != x:
        return None
    if node.op == "layer_norm_2d":
        return side
    if node.op != "conv2d" or any(node.attributes[key] != _STRIDED[key] for key in _STRIDED):
        return None
    fits = node.inputs[1].type.shape[2:] == (3, 3) and side % 2 == 0
    return side // 2 if fits and side * side * x.type.length(1) <= _MOST else None


def _in_cells(rewriter: Rewriter, node: Node, step: _Step) -> Value:
    if node.op == "resize":
        return _enlarged(rewriter, node, step.after)
    if node.op == "layer_norm_2d":
        return _normal(rewriter, node, step.after)
    if node.op == "conv2d":
        return _strided(rewriter, node, step)
    inputs = [rewriter.new(value) for value in node.inputs]
    return rewriter.emit(node.op, *inputs, exact=node.exact, **node.attributes)


def _enlarged(rewriter: Rewriter, node: Node, times: int) -> Value:
    """[N, 1, H, W] -> [N, times * times, H, W]; at the borders a pixel is its own neighbour."""
    x, exact = rewriter.new(node.inputs[0]), node.exact
    for axis in (2, 3):
        x = with_edges(rewriter, x, axis, exact)
    middle = resize_weights(3, 3 * times, "bilinear", False)[times : 2 * times]
    kernel = np.einsum("ia,jb->ijab", middle, middle).reshape(times * times, 1, 3, 3)
    weight = rewriter.constant(kernel, x.type.dtype)
    return rewriter.emit("conv2d", x, weight, exact=exact, **PLAIN)


def with_edges(rewriter: Rewriter, x: Value, axis: int, exact: bool) -> Value:
    """The axis padded by repeating its first and last element."""
    shape, edges = x.type.shape, []
    for row in (0, shape[axis] - 1):
        start = tuple(row if i == axis else 0 for i in range(len(shape)))
        end = tuple(row + 1 if i == axis else n for i, n in enumerate(shape))
        steps = (1,) * len(shape)
        edges.append(rewriter.emit("slice", x, exact=exact, starts=start, ends=end, steps=steps))
    return rewriter.emit("concat", edges[0], x, edges[1], exact=exact, axis=axis)


def _normal(rewriter: Rewriter, node: Node, side: int) -> Value:
    """A layer norm over the channels of each pixel of each cell."""
    x, scale, shift = (rewriter.new(value) for value in node.inputs)
    exact, cells, channels = node.exact, side * side, scale.type.shape[0]
    last = rewriter.emit("transpose", x, exact=exact, axes=CHANNELS_LAST)
    shape = (*last.type.shape[:3], cells, channels)
    apart = rewriter.emit("reshape", last, exact=exact, shape=shape)
    y = rewriter.emit("layer_norm", apart, scale, shift, exact=exact, **node.attributes)
    y = rewriter.emit("reshape", y, exact=exact, shape=last.type.shape)
    return rewriter.emit("transpose", y, exact=exact, axes=CHANNELS_SECOND)


def _strided(rewriter: Rewriter, node: Node, step: _Step) -> Value:
    """The convolution of cells; beyond the upper and the left border they are zero."""
    x, weight, *bias = (rewriter.new(value) for value in node.inputs)
    out, width = weight.type.lengths[:2]
    flat = rewriter.emit("reshape", weight, shape=(out, width * 9))
    flat = rewriter.emit("pad", flat, before=(0, 0), after=(0, 1), value=0.0)
    indices = rewriter.constant(_weight_indices(width, step), "i64")
    spread = rewriter.emit("gather", flat, indices, axis=1, batch=0)
    spread = rewriter.emit("transpose", spread, axes=(1, 0, 2))
    cells = step.after**2
    shape = (cells * out, step.before**2 * width, 2, 2)
    spread = rewriter.emit("reshape", spread, shape=shape)
    if cells > 1:
        bias = [rewriter.emit("concat", *[value] * cells, axis=0) for value in bias]
    x = rewriter.emit("pad", x, exact=node.exact, before=(0, 0, 1, 1), after=(0,) * 4, value=0.0)
    return rewriter.emit("conv2d", x, spread, *bias, exact=node.exact, **PLAIN)


def _weight_indices(width: int, step: _Step) -> Array:
    """The index into [width * 9] of each weight of the 2 x 2 convolution; the last weight is zero.

    [pixels after, pixels before * width * 4]
    """
    side, after = step
    table = np.full((after, after, side, side, width, 2, 2), width * 9)
    channels = np.arange(width) * 9
    for i, j, a, b in np.ndindex(after, after, 3, 3):
        y, x = 2 * i + a - 1, 2 * j + b - 1  # -1 is the last of the previous cell
        table[i, j, y % side, x % side, :, int(y >= 0), int(x >= 0)] = channels + 3 * a + b
    return table.reshape(after * after, -1)
