"""absorb_value_projection: attend over the unprojected value, project the average afterwards.

    %0 = linear(%m, %wv, %bv)
    %1 = attention(%q, %k, %0)          %0 = attention(%q, %k, %m)
    %2 = linear(%1, %wo, %bo)   =>      %1 = linear(%0, wo @ wv, wo @ bv + bo)
    return y=%2                         return y=%1

Exact, because the weights of an average sum to one: avg(m wv' + bv) = avg(m) wv' + bv. With one
head only, and only when `m` is narrower than its projection, which is when it saves work. With
no linear layer after the attention, the projection itself is applied to the average.
"""

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter


def absorb_value_projection(graph: Graph) -> Graph:
    """Rewrite each attention whose value is a wider projection."""
    if not graph.has("attention"):
        return graph
    rewriter = Rewriter(graph)
    uses = graph.use_counts()
    readers = {value.name: node for node in graph for value in node.inputs}
    absorbed: dict[str, Node] = {}  # attention result -> the projection it no longer applies
    for node in graph:
        projection = _projection(graph, node)
        if projection is not None:
            bare = (*node.inputs[:2], projection.inputs[0], *node.inputs[3:])
            inputs = [rewriter.new(value) for value in bare]
            average = rewriter.emit("attention", *inputs, exact=node.exact, **node.attributes)
            reader = readers.get(node.result.name)
            alone = uses.get(node.result.name) == 1 and reader is not None
            if alone and reader is not None and _plain_linear(reader, node.result):
                absorbed[node.result.name] = projection
                rewriter.replace(node.result, average)
            else:
                weights = [rewriter.new(value) for value in projection.inputs[1:]]
                projected = rewriter.emit("linear", average, *weights, exact=node.exact)
                rewriter.replace(node.result, projected)
        elif node.inputs and node.inputs[0].name in absorbed:
            _merge(rewriter, node, absorbed[node.inputs[0].name])
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _projection(graph: Graph, node: Node) -> Node | None:
    """The linear layer that produces the value of this attention, if absorbing it pays."""
    if node.op != "attention" or node.integer("heads") != 1:
        return None
    value = graph.producers().get(node.inputs[2].name)
    if value is None or value.op != "linear":
        return None
    if value.text("activation", "none") != "none":
        return None
    narrow, wide = value.inputs[0].type.shape[-1], value.result.type.shape[-1]
    pays = isinstance(narrow, int) and isinstance(wide, int) and narrow < wide
    return value if pays else None


def _plain_linear(node: Node, value: Value) -> bool:
    return node.op == "linear" and node.inputs[0] == value and value not in node.inputs[1:]


def _merge(rewriter: Rewriter, node: Node, projection: Node) -> None:
    """One linear layer for the projection and the output layer `node`."""
    x = rewriter.new(node.inputs[0])
    inner, outer = rewriter.new(projection.inputs[1]), rewriter.new(node.inputs[1])
    weight = rewriter.emit("matmul", outer, inner)
    biases = [rewriter.new(value) for value in node.inputs[2:]]
    if len(projection.inputs) > 2:
        moved = rewriter.emit("linear", rewriter.new(projection.inputs[2]), outer, *biases)
        biases = [moved]
    merged = rewriter.emit("linear", x, weight, *biases, exact=node.exact, **node.attributes)
    rewriter.replace(node.result, merged)
