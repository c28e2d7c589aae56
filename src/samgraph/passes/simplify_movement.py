"""simplify_movement: merge or remove reshapes, transposes and other data movement.

%0 = transpose(%x, axes=(1,0,2))    %0 = reshape(%x, shape=(6,4))
%1 = transpose(%0, axes=(1,0,2))    return y=%0
%2 = reshape(%1, shape=(2,12))  =>
%3 = reshape(%2, shape=(6,4))
return y=%3
"""

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

_MOVING = ("reshape", "transpose", "expand", "cast")


def simplify_movement(graph: Graph) -> Graph:
    """Visit nodes in order, so that chains fold step by step."""
    if not graph.has(*_MOVING):
        return graph
    rewriter = Rewriter(graph)
    for node in graph:
        result = rewriter.keep(node)
        if node.op in _MOVING:
            rewriter.replace(node.result, _simpler(rewriter, node, result))
    return rewriter.finish()


def _simpler(rewriter: Rewriter, node: Node, result: Value) -> Value:
    source = rewriter.new(node.inputs[0])
    before = rewriter.maker(source)
    if before is not None and before.op == node.op == "reshape":
        source = before.inputs[0]
        if source.type == result.type:
            return source
        return rewriter.emit("reshape", source, exact=node.exact, shape=result.type.shape)
    if before is not None and before.op == node.op == "transpose":
        order = tuple(_axes(before)[axis] for axis in _axes(node))
        if order == tuple(range(len(order))):
            return before.inputs[0]
        return rewriter.emit("transpose", before.inputs[0], exact=node.exact, axes=order)
    still = node.op != "transpose" or _axes(node) == tuple(range(source.type.rank))
    return source if still and source.type == result.type else result


def _axes(node: Node) -> tuple[int, ...]:
    rank = node.result.type.rank
    return tuple(axis % rank for axis in node.integers("axes"))
