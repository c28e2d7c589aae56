"""conv_transpose_to_linear: a transposed convolution with kernel = stride is a linear layer.

    %0 = transpose(%x, axes=(0,3,1,2))            %0 = reshape(%x, shape=(N,H*W,C))
    %1 = conv_transpose2d(%0, %w, stride=(2,2))   %1 = linear(%0, %w)               [N,H*W,4*D]
    %2 = add(%1, %fine)                           %2 = reshape(%1)                  [N,H*W*4,D]
    %3 = gelu(%2)                           =>    %3 = add(%2, %fine as cells)
    %4 = reshape(%3, shape=(N,D,4*H*W))           %4 = gelu(%3)
    %5 = matmul(%a, %4)                           %5 = matmul(%a, %4 transposed)    [N,M,4*H*W]
    %6 = reshape(%5, shape=(N,M,2*H,2*W))         %6 = %5 with its pixels in rows
    return y=%6                                   return y=%6

Exact: every pixel becomes a cell of k x k pixels. The upscaled image stays a list of cells in
nested order, the pixels of a cell adjacent, at each scale; only results are put in rows. So no
large tensor is moved but `%fine`, which does not depend on `%x`, and the few channels of the
result. Propagates through activations, `layer_norm_2d`, sums and products with images and numbers,
more such convolutions, and a product over the channels.

Only where the image is transposed from channels-last and its size is known.
"""

from typing import NamedTuple

from samgraph.graph.dims import Dim
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, CHANNELS_SECOND
from samgraph.passes.rewriter import Rewriter

_UNARY = ("gelu", "relu", "sigmoid")
_BINARY = ("add", "mul")
_SWAP = (0, 2, 1)


class _Order(NamedTuple):
    """The nested order of the pixels of an image upscaled from a grid, step by step."""

    grid: tuple[int, int]
    steps: tuple[tuple[int, int], ...]

    @property
    def sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Rows and columns as factors: (H, k, k, ...) and (W, k, k, ...)."""
        rows, columns = zip(self.grid, *self.steps, strict=True)
        return rows, columns


class _Cells(NamedTuple):
    """An image [N, C, H, W], or flattened to [N, C, H*W], as a list of cells."""

    value: Value  # [N, cells, C], or [N, C, cells] channels-first
    order: _Order
    exact: bool
    is_flat: bool = False
    channels_first: bool = False


def conv_transpose_to_linear(graph: Graph) -> Graph:
    """Rewrite each transposed convolution with kernel = stride, and what reads it."""
    if not graph.has("conv_transpose2d"):
        return graph
    rewriter = Rewriter(graph)
    cells: dict[str, _Cells] = {}
    for node in graph:
        made = _in_cells(rewriter, node, cells)
        if made is not None:
            cells[node.result.name] = made
            continue
        for value in node.inputs:
            _to_image(rewriter, value, cells)
        rewriter.keep(node)
    for _, value in graph.outputs:
        _to_image(rewriter, value, cells)
    return rewriter.finish()


def _in_cells(rewriter: Rewriter, node: Node, cells: dict[str, _Cells]) -> _Cells | None:
    """The result of a node as cells; None where it must read an image."""
    known = [cells.get(value.name) for value in node.inputs]
    if node.op in _BINARY:
        return _binary(rewriter, node, known)
    if node.op == "matmul" and known[0] is None and known[1] is not None:
        return _product(rewriter, node, known[1])
    if not known or any(known[1:]):
        return None
    x = known[0]
    if node.op == "conv_transpose2d" and _fits(node):
        x = x or _start(rewriter, node)
        return None if x is None else _upscale(rewriter, node, x)
    if x is None:
        return None
    if node.op == "reshape":
        return _reshaped(node, x)
    op = "layer_norm" if node.op == "layer_norm_2d" else node.op
    if op != "layer_norm" and op not in _UNARY:
        return None
    weights = [rewriter.new(value) for value in node.inputs[1:]]
    y = rewriter.emit(op, x.value, *weights, exact=node.exact, **node.attributes)
    return x._replace(value=y, exact=node.exact)


def _fits(node: Node) -> bool:
    return node.attributes["stride"] == node.inputs[1].type.shape[2:]


def _start(rewriter: Rewriter, node: Node) -> _Cells | None:
    """The image that a convolution reads as cells row by row, if it is channels-last."""
    moved = rewriter.maker(rewriter.new(node.inputs[0]))
    if moved is None or moved.op != "transpose" or moved.attributes["axes"] != CHANNELS_SECOND:
        return None
    N, H, W, C = moved.inputs[0].type.shape
    if not isinstance(H, int) or not isinstance(W, int):
        return None
    flat = rewriter.emit("reshape", moved.inputs[0], exact=node.exact, shape=(N, H * W, C))
    return _Cells(flat, _Order((H, W), ()), node.exact)


def _upscale(rewriter: Rewriter, node: Node, x: _Cells) -> _Cells:
    weight, *bias = (rewriter.new(value) for value in node.inputs[1:])
    C, out, rows, columns = (int(str(dim)) for dim in weight.type.shape)
    times, (N, count, _) = rows * columns, x.value.type.shape
    weight = rewriter.emit("transpose", weight, axes=(2, 3, 1, 0))
    bias = [rewriter.emit("concat", *[value] * times, axis=0) for value in bias]
    weight = rewriter.emit("reshape", weight, shape=(times * out, C))
    y = rewriter.emit("linear", x.value, weight, *bias, exact=node.exact)
    y = rewriter.emit("reshape", y, exact=node.exact, shape=(N, count * times, out))
    return _Cells(y, _Order(x.order.grid, (*x.order.steps, (rows, columns))), node.exact)


def _product(rewriter: Rewriter, node: Node, x: _Cells) -> _Cells | None:
    """A matrix times the channels of each pixel, [N, M, C] @ [N, C, H*W]."""
    if not x.is_flat or node.inputs[0].type.rank != 3:
        return None
    columns = x.value
    if not x.channels_first:
        columns = rewriter.emit("transpose", columns, exact=node.exact, axes=_SWAP)
    y = rewriter.emit("matmul", rewriter.new(node.inputs[0]), columns, exact=node.exact)
    return x._replace(value=y, exact=node.exact, channels_first=True)


def _binary(rewriter: Rewriter, node: Node, known: list[_Cells | None]) -> _Cells | None:
    """A sum or product with a number, or with an image of the same size and channels."""
    x = known[0] or known[1]
    if x is None or x.is_flat:
        return None
    operands = []
    for value, cells in zip(node.inputs, known, strict=True):
        if value.type.rank == 0:
            operands.append(rewriter.new(value))
        elif value.type.shape[1:] != node.result.type.shape[1:]:
            return None
        elif cells is None:
            operands.append(_to_cells(rewriter, rewriter.new(value), x.order, node.exact))
        elif cells.order == x.order:
            operands.append(cells.value)
        else:
            return None
    y = rewriter.emit(node.op, *operands, exact=node.exact)
    return x._replace(value=y, exact=node.exact)


def _reshaped(node: Node, x: _Cells) -> _Cells | None:
    """The same cells where pixels are only flattened or unflattened."""
    front, (rows, columns) = node.inputs[0].type.shape[:2], _size(x.order)
    if node.result.type.shape == (*front, rows * columns):
        return x._replace(is_flat=True)
    if node.result.type.shape == (*front, rows, columns) and not x.channels_first:
        return x._replace(is_flat=False)
    return None


def _size(order: _Order) -> tuple[int, int]:
    height = width = 1
    for rows, columns in (order.grid, *order.steps):
        height, width = height * rows, width * columns
    return height, width


def _to_cells(rewriter: Rewriter, image: Value, order: _Order, exact: bool) -> Value:
    """An image in the order of cells: [N, C, H, W] -> [N, H*W, C]."""
    N, C, H, W = image.type.shape
    (rows, columns), depth = order.sides, len(order.steps) + 1
    axes = [axis for step in range(depth) for axis in (1 + step, 1 + depth + step)]
    last = rewriter.emit("transpose", image, exact=exact, axes=CHANNELS_LAST)
    split = rewriter.emit("reshape", last, exact=exact, shape=(N, *rows, *columns, C))
    split = rewriter.emit("transpose", split, exact=exact, axes=(0, *axes, -1))
    return rewriter.emit("reshape", split, exact=exact, shape=(N, H * W, C))


def _to_image(rewriter: Rewriter, old: Value, cells: dict[str, _Cells]) -> None:
    """Emit the image [N, C, H, W] of cells, where `old` is read as an image."""
    x = cells.get(old.name)
    if x is None or rewriter.new(old) is not old:
        return
    N, C = old.type.shape[:2]
    depth = len(x.order.steps) + 1
    pairs: list[Dim] = [side for step in (x.order.grid, *x.order.steps) for side in step]
    rows, columns = range(0, 2 * depth, 2), range(1, 2 * depth, 2)
    if x.channels_first:
        shape, axes = (N, C, *pairs), (0, 1, *(2 + i for i in rows), *(2 + i for i in columns))
    else:
        shape = (N, *pairs, C)
        axes = (0, 1 + 2 * depth, *(1 + i for i in rows), *(1 + i for i in columns))
    split = rewriter.emit("reshape", x.value, exact=x.exact, shape=shape)
    split = rewriter.emit("transpose", split, exact=x.exact, axes=axes)
    image = rewriter.emit("reshape", split, exact=x.exact, shape=old.type.shape)
    rewriter.replace(old, image)
