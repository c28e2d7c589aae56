"""A detour for attention masks in bf16, around a fault of OpenVINO.

Its fused attention reads a mask that is an input or a constant of the model as if it were bf16
already, and gives garbage (2026.4; `tests/engines/test_bf16.py` shows it without this detour). A
mask that a node of the same model has made is right. So a zero is added that only a run can tell:

    %1 = attention(%q, %k, %v, %mask)   =>   %1 = clip(one element of q, k and v, low=0, high=0)
                                             %2 = add(%mask, %1)
                                             %3 = attention(%q, %k, %v, %2)
"""

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter, rewrite


def make_masks(graph: Graph) -> Graph:
    """The same graph, in which a node beside each attention makes its mask; not for exact ones."""
    masked = {node.result.name for node in graph if _is_masked(node)}
    return rewrite(graph, masked, _with_made_mask) if masked else graph


def _with_made_mask(rewriter: Rewriter, node: Node) -> Value:
    *parts, mask = (rewriter.new(value) for value in node.inputs)
    made = rewriter.emit("add", mask, _zero(rewriter, parts))
    return rewriter.emit("attention", *parts, made, exact=node.exact, **node.attributes)


def _is_masked(node: Node) -> bool:
    masked = node.op == "attention" and len(node.inputs) == 4
    return masked and not node.exact and 0 not in node.result.type.shape


def _zero(rewriter: Rewriter, parts: list[Value]) -> Value:
    """A zero that depends on all of `parts`, so that it is made in the segment where they meet."""
    q, k, v = (_first(rewriter, part) for part in parts)
    total = rewriter.emit("add", rewriter.emit("add", q, k), v)
    return rewriter.emit("clip", total, low=0.0, high=0.0)


def _first(rewriter: Rewriter, x: Value) -> Value:
    """The first element, as a scalar; zero where there is none."""
    rank = x.type.rank
    ones = (1,) * rank
    first = rewriter.emit("slice", x, starts=(0,) * rank, ends=ones, steps=ones)
    return rewriter.emit("reduce", first, axes=tuple(range(rank)), how="sum", keep=False)
