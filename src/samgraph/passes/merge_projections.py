"""merge_projections: several linear layers of one value become one, and slices of its result.

    %0 = linear(%x, %wq, %bq)           %0 = concat(%wq, %wk, axis=0)
    %1 = linear(%x, %wk, %bk)           %1 = concat(%bq, %bk, axis=0)
    return q=%0, k=%1         =>        %2 = linear(%x, %0, %1)
                                        %3 = slice(%2, first half)
                                        %4 = slice(%2, second half)
                                        return q=%3, k=%4

Only layers whose weights are params are merged, with equal activations, and all or none with bias.
"""

from samgraph.graph.dims import Dim
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter


def merge_projections(graph: Graph) -> Graph:
    """Merge the linear layers of each value, at the position of the first."""
    groups = _groups(graph)
    first = {members[0].result.name: members for members in groups}
    later = {node.result.name for members in groups for node in members[1:]}
    rewriter = Rewriter(graph)
    for node in graph:
        if node.result.name in first:
            _merge(rewriter, first[node.result.name])
        elif node.result.name not in later:
            rewriter.keep(node)
    return rewriter.finish()


def _groups(graph: Graph) -> list[list[Node]]:
    params = {value.name for value in graph.params}
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in graph:
        if node.op == "linear" and all(v.name in params for v in node.inputs[1:]):
            activation = node.text("activation", "none")
            key = (node.inputs[0].name, len(node.inputs), activation, node.exact)
            groups.setdefault(key, []).append(node)
    return [members for members in groups.values() if len(members) > 1]


def _merge(rewriter: Rewriter, members: list[Node]) -> None:
    columns = range(1, len(members[0].inputs))
    joined = [rewriter.emit("concat", *(n.inputs[i] for n in members), axis=0) for i in columns]
    head = members[0]
    x = rewriter.new(head.inputs[0])
    y = rewriter.emit("linear", x, *joined, exact=head.exact, **head.attributes)
    start: Dim = 0
    for node in members:
        end = start + node.result.type.shape[-1]
        rewriter.replace(node.result, _columns(rewriter, y, start, end, head.exact))
        start = end


def _columns(rewriter: Rewriter, y: Value, start: Dim, end: Dim, exact: bool) -> Value:
    front = y.type.rank - 1
    return rewriter.emit(
        "slice",
        y,
        exact=exact,
        starts=(*(0,) * front, start),
        ends=(*y.type.shape[:-1], end),
        steps=(1,) * y.type.rank,
    )
