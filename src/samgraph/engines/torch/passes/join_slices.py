"""join_slices: a concatenation of neighbouring slices is one slice.

    %0 = slice(%x, columns 0 to 8)
    %1 = slice(%x, columns 8 to 24)            %0 = slice(%x, columns 0 to 24)
    %2 = concat(%0, %1, axis=1)         =>     return y=%0
    return y=%2

A slice is a view here; a concatenation is a copy. Reshapes of the parts
that add or drop an axis of length one do not matter.
"""

from samgraph.engines.torch.passes.layers import Search
from samgraph.graph.dims import Dim
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter


def join_slices(graph: Graph) -> Graph:
    """Rewrite every concatenation of neighbouring slices."""
    if not graph.has("concat"):
        return graph
    search, rewriter = Search(graph), Rewriter(graph)
    for node in graph:
        found = _joined(search, node) if node.op == "concat" else None
        if found is None:
            rewriter.keep(node)
            continue
        source, starts, ends = found
        new, steps = rewriter.new(source), (1,) * source.type.rank
        whole = rewriter.emit("slice", new, starts=starts, ends=ends, steps=steps)
        rewriter.replace(node.result, whole)
    return rewriter.finish()


def _joined(search: Search, node: Node) -> tuple[Value, tuple[Dim, ...], tuple[Dim, ...]] | None:
    """What the parts were cut from, and the bounds of all of them together."""
    parts = [_slice_of(search, value) for value in node.inputs]
    first, last = parts[0], parts[-1]
    if first is None or last is None or len(parts) < 2:
        return None
    rank = node.result.type.rank
    axis = int(str(node.attributes["axis"])) % rank
    source, starts, end = first.inputs[0], _bounds(first, "starts"), None
    for part in parts:
        if part is None or part.inputs[0] != source or part.result.type.rank != rank:
            return None
        begin, finish = _bounds(part, "starts"), _bounds(part, "ends")
        others = [begin[i] == starts[i] for i in range(rank) if i != axis]
        if not all(others) or (end is not None and begin[axis] != end[axis]):
            return None
        if end is not None and any(end[i] != finish[i] for i in range(rank) if i != axis):
            return None
        end = finish
    fits = end is not None and node.result.type.rank == source.type.rank
    return (source, starts, end) if fits and end is not None else None


def _slice_of(search: Search, value: Value) -> Node | None:
    """The slice that a value is, looking through reshapes that cancel."""
    node = search.maker(value, "slice", "reshape")
    while node is not None and node.op == "reshape":
        inner = search.maker(node.inputs[0], "slice", "reshape")
        if inner is not None and inner.op == "slice" and inner.result.type == value.type:
            node = inner
            break
        node = inner
    if node is None or node.result.type != value.type:
        return None
    return node if node.attributes["steps"] == (1,) * value.type.rank else None


def _bounds(node: Node, key: str) -> tuple[Dim, ...]:
    bounds = node.attributes[key]
    return bounds if isinstance(bounds, tuple) else ()  # type: ignore[return-value]  # dimensions
