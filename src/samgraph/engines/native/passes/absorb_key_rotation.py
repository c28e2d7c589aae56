"""absorb_key_rotation: attend over a narrow memory, whose rotated keys are never made.

    %0 = linear(%m, %w, %b)
    %1 = axial_rope(%0)            =>    %0 = rope_key_attention(%q, %m, %v, %w, %b)
    %2 = attention(%q, %1, %v)           return y=%0
    return y=%2

The score of a query with a key at column x and row y is (u_x + v_y) . m, with u and v of as many
channels as the memory has, made per query and column or row: exact, and a quarter of the products
when the keys are four times as wide as the memory. With one head, and no mask or one of the keys
alone, where the rotated keys are read by nothing else and are at least twice as wide as the memory.
"""

import numpy as np

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter, rewrite


def absorb_key_rotation(graph: Graph) -> Graph:
    """Rewrite each attention whose keys are a rotated projection."""
    uses = graph.use_counts()
    found = {
        node.result.name
        for node in graph
        if node.op == "attention" and _fits(graph, node, uses.get(node.inputs[1].name, 0))
    }
    return rewrite(graph, found, _absorbed) if found else graph


def _fits(graph: Graph, node: Node, uses: int) -> bool:
    keys = node.inputs[1].type.shape[-2:-1]
    if node.integer("heads") != 1 or node.inputs[0].type.rank != 3:
        return False
    if any(mask.type.shape != keys for mask in node.inputs[3:]):
        return False
    producers = graph.producers()
    rope = producers.get(node.inputs[1].name)
    if rope is None or rope.op != "axial_rope" or rope.integer("heads") != 1 or uses != 1:
        return False
    projection = producers.get(rope.inputs[0].name)
    if projection is None or projection.op != "linear":
        return False
    D, C = projection.inputs[1].type.lengths
    return projection.text("activation", "none") == "none" and 2 * C <= D


def _absorbed(rewriter: Rewriter, node: Node) -> Value:
    producers = rewriter.graph.producers()
    rope = producers[node.inputs[1].name]
    memory, weight, *bias = producers[rope.inputs[0].name].inputs
    q, m, v, w = (rewriter.new(x) for x in (node.inputs[0], memory, node.inputs[2], weight))
    zeros = np.zeros(weight.type.lengths[0])
    b = rewriter.new(bias[0]) if bias else rewriter.constant(zeros, weight.type.dtype)
    return rewriter.emit(
        "rope_key_attention",
        q,
        m,
        v,
        w,
        b,
        *(rewriter.new(mask) for mask in node.inputs[3:]),
        exact=node.exact,
        grid=rope.integers("grid"),
        theta=rope.number("theta"),
        unrotated=rope.dim("unrotated"),
        scale=node.number("scale"),
        **({"pooled": rope.dim("pooled")} if "pooled" in rope.attributes else {}),
    )
