"""drop_unused: remove nodes and params that no output needs. Inputs stay: they are the interface.

%0 = gelu(%x)                       %0 = add(%x, %x)
%1 = add(%x, %x)          =>        return y=%0
return y=%1
"""

from samgraph.graph.graph import Graph
from samgraph.passes.rewriter import Rewriter, with_params


def drop_unused(graph: Graph) -> Graph:
    """Dead code elimination, by the rewriter."""
    rewriter = Rewriter(graph)
    for node in graph:
        rewriter.keep(node)
    return with_params(rewriter.finish(), {value.name: value for value in graph.params})
