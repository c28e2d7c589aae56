"""merge_duplicates: common subexpression elimination.

%0 = exp(%x)                        %0 = exp(%x)
%1 = exp(%x)              =>        %1 = add(%0, %0)
%2 = add(%0, %1)                    return y=%1
return y=%2
"""

from samgraph.graph.graph import Graph, Value
from samgraph.passes.rewriter import Rewriter


def merge_duplicates(graph: Graph) -> Graph:
    """Merge nodes whose op, inputs, attributes and type agree."""
    rewriter = Rewriter(graph)
    seen: dict[tuple[object, ...], Value] = {}
    for node in graph:
        result = rewriter.keep(node)
        made = rewriter.maker(result)
        first = seen.setdefault(made.key if made else (), result)
        if first is not result:
            rewriter.replace(node.result, first)
    return rewriter.finish()
