"""materialise_attention_masks: in bf16, a node of the model makes every attention mask.

    %0 = attention(%q, %k, %v, %mask)   =>   %0 = clip(one element of q, k and v, low=0, high=0)
    return y=%0                              %1 = add(%mask, %0)
                                             %2 = attention(%q, %k, %v, %1)
                                             return y=%2

Works around a fault of OpenVINO: its fused attention reads a mask that is an input or a constant of
the model as if it were bf16 already, and gives garbage (2026.4;
`tests/engines/openvino/test_bf16.py` shows it without this pass). A mask computed by a node of the
same model is right, so a zero is added that is known only at run time. In bf16 only.
"""

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.fold_params import foldable
from samgraph.passes.rewriter import Rewriter, rewrite


def materialise_attention_masks(graph: Graph) -> Graph:
    """Rewrite each attention that has a mask and is not exact."""
    masked = {node.result.name for node in graph if _is_masked(graph, node)}
    masked -= foldable(graph)
    return rewrite(graph, masked, _with_sum) if masked else graph


def _with_sum(rewriter: Rewriter, node: Node) -> Value:
    *parts, mask = (rewriter.new(value) for value in node.inputs)
    made = rewriter.emit("add", mask, _zero(rewriter, parts))
    return rewriter.emit("attention", *parts, made, exact=node.exact, **node.attributes)


def _is_masked(graph: Graph, node: Node) -> bool:
    if node.op != "attention" or len(node.inputs) < 4 or node.exact:
        return False
    return 0 not in node.result.type.shape and not _is_sum(graph, node.inputs[3])


def _is_sum(graph: Graph, mask: Value) -> bool:
    """Whether a mask is one of ours already."""
    made = graph.producers().get(mask.name)
    zero = graph.producers().get(made.inputs[1].name) if made and made.op == "add" else None
    return zero is not None and zero.op == "clip" and zero.number("low") == zero.number("high") == 0


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
