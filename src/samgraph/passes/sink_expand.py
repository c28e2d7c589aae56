"""sink_expand: move expansions of the batch as late as possible, so that shared rows run once.

    %0 = expand(%x, shape=(N,I,C))              %0 = linear(%x, %w)              [1,I,D]
    %1 = linear(%0, %w)                         %1 = linear(%x, %v)              [1,I,D]
    %2 = linear(%0, %v)                         %2 = reshape(%q)                 [1,N*T,D]
    %3 = attention(%q, %1, %2)           =>     %3 = attention(%2, %0, %1)
    %4 = add(%0, %y)                            %4 = reshape(%3)                 [N,T,D]
    return a=%3, b=%4                           %5 = add(%x, %y)
                                                return a=%4, b=%5

Exact. A node that treats the batch row by row is computed on one row, and the result repeated;
where it has another operand with rows of its own, it broadcasts instead. Queries of all rows that
attend to the same keys and values become the queries of one row.
"""

from collections.abc import Sequence

from samgraph.graph.dims import Dim
from samgraph.graph.graph import Attribute, Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

_ELEMENTWISE = (
    "add", "sub", "mul", "div", "maximum", "minimum", "where", "compare", "clip", "cast",
    "gelu", "relu", "sigmoid", "exp", "log", "sqrt", "sin", "cos",
)  # fmt: skip
_OF_THE_FIRST = (
    "linear", "layer_norm", "layer_norm_2d", "conv2d", "conv_transpose2d", "max_pool2d", "resize",
)  # fmt: skip


def sink_expand(graph: Graph) -> Graph:
    """Move every expansion of a batch of one behind what does not need it."""
    if not graph.has("expand"):
        return graph
    rewriter = Rewriter(graph)
    for node in graph:
        made = _sunk(rewriter, node)
        if made is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.result, made)
    return rewriter.finish()


def _sunk(rewriter: Rewriter, node: Node) -> Value | None:
    """The replacement of a node with the expansion moved behind it, or removed."""
    inputs = [rewriter.new(value) for value in node.inputs]
    makers = [rewriter.maker(value) for value in inputs]
    rows = [None if made is None else repeated_row(made) for made in makers]
    if all(row is None for row in rows) or node.result.type.rank < 2:
        return None
    if node.op == "attention":
        return _attention(rewriter, node, inputs, rows)
    if node.op in _ELEMENTWISE:
        return _elementwise(rewriter, node, inputs, rows)
    attributes = _for_one_row(node)
    row = rows[0]
    if row is None or attributes is None or any(other is not None for other in rows[1:]):
        return None
    one = rewriter.emit(node.op, row, *inputs[1:], exact=node.exact, **attributes)
    return _repeated(rewriter, one, node)


def repeated_row(node: Node) -> Value | None:
    """The batch of one that a node repeats, if it does nothing else."""
    if node.op != "expand":
        return None
    row, shape = node.inputs[0], node.result.type.shape
    return row if len(shape) >= 2 and row.type.shape == (1, *shape[1:]) else None


def _repeated(rewriter: Rewriter, row: Value, node: Node) -> Value:
    shape = node.result.type.shape
    if row.type.shape == shape:
        return row
    return rewriter.emit("expand", row, exact=node.exact, shape=shape)


def _for_one_row(node: Node) -> dict[str, Attribute] | None:
    """The attributes of a node for a batch of one; None where rows are not apart in it."""
    attributes = dict(node.attributes)
    before, after = node.inputs[0].type.shape, node.result.type.shape
    if node.op in _OF_THE_FIRST:
        return attributes
    if node.op == "reshape" and after[:1] == before[:1]:
        return {**attributes, "shape": (1, *after[1:])}
    if node.op == "transpose":
        axes = attributes["axes"]
        return attributes if isinstance(axes, tuple) and axes[0] == 0 else None
    return None


def _elementwise(
    rewriter: Rewriter, node: Node, inputs: Sequence[Value], rows: Sequence[Value | None]
) -> Value | None:
    chosen = [value if row is None else row for value, row in zip(inputs, rows, strict=True)]
    rank = node.result.type.rank
    own = any(value.type.rank == rank and value.type.shape[0] != 1 for value in chosen)
    made = rewriter.emit(node.op, *chosen, exact=node.exact, **node.attributes)
    if own:
        return made if made.type == node.result.type else None
    return _repeated(rewriter, made, node)


def _attention(
    rewriter: Rewriter, node: Node, inputs: Sequence[Value], rows: Sequence[Value | None]
) -> Value | None:
    """Queries of the batch side by side, where all rows have the same keys and values."""
    q, k, v = rows[:3]
    if k is None or v is None or len(inputs) != 3 or node.result.type.rank != 3:
        return None
    if q is not None:
        one = rewriter.emit("attention", q, k, v, exact=node.exact, **node.attributes)
        return _repeated(rewriter, one, node)
    N, T, width = inputs[0].type.shape
    joined: tuple[Dim, ...] = (1, N * T, width)
    queries = rewriter.emit("reshape", inputs[0], exact=node.exact, shape=joined)
    y = rewriter.emit("attention", queries, k, v, exact=node.exact, **node.attributes)
    return rewriter.emit("reshape", y, exact=node.exact, shape=node.result.type.shape)
