"""merge_columns: linear layers of one value become one layer, and slices of its result.

As the shared `merge_projections`, for weights that are computed from params as well, and for
`fused_linear`: layers join with those that pool alike.

    %0 = linear(%x, %w1, %b1)           %0 = concat(%w1, %w2, axis=0), biases likewise
    %1 = linear(%x, %w2, %b2)    =>     %1 = linear(%x, %0, ...)
    return y=%0, z=%1                   return y=first columns, z=the others
"""

from samgraph.engines.torch.passes.layers import LAYERS, weight_values
from samgraph.graph.dims import Dim
from samgraph.graph.graph import Graph, Node
from samgraph.passes.rewriter import Rewriter


def merge_columns(graph: Graph) -> Graph:
    """Join the layers of each value at the position of the first."""
    groups = _groups(graph)
    first = {members[0].result.name: members for members in groups}
    later = {node.result.name for members in groups for node in members[1:]}
    rewriter = Rewriter(graph)
    kept = [node for node in graph if node.result.name not in later]
    for node in _weights_first(graph, kept):
        if node.result.name in first:
            _merge(rewriter, first[node.result.name])
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _weights_first(graph: Graph, nodes: list[Node]) -> list[Node]:
    """What needs no input comes first, so that a layer finds the weights of later layers."""
    known = weight_values(graph)
    return sorted(nodes, key=lambda node: node.result.name not in known)


def _groups(graph: Graph) -> list[list[Node]]:
    known = weight_values(graph)
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in graph:
        is_layer = node.op in LAYERS and len(node.inputs) == 3
        if not is_layer or node.result.name in known:
            continue
        if all(value.name in known for value in node.inputs[1:]):
            key = (node.inputs[0].name, node.op, node.exact, *sorted(node.attributes.items()))
            groups.setdefault(key, []).append(node)
    return [members for members in groups.values() if len(members) > 1]


def _merge(rewriter: Rewriter, members: list[Node]) -> None:
    head = members[0]
    weight, bias = (
        rewriter.emit("concat", *(rewriter.new(n.inputs[i]) for n in members), axis=0)
        for i in (1, 2)
    )
    x = rewriter.new(head.inputs[0])
    y = rewriter.emit(head.op, x, weight, bias, exact=head.exact, **head.attributes)
    start: Dim = 0
    front, steps = y.type.rank - 1, (1,) * y.type.rank
    for node in members:
        end = start + node.result.type.shape[-1]
        starts, ends = (*(0,) * front, start), (*y.type.shape[:-1], end)
        part = rewriter.emit("slice", y, exact=head.exact, starts=starts, ends=ends, steps=steps)
        rewriter.replace(node.result, part)
        start = end
